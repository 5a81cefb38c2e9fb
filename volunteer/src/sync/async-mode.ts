// Async mode on a volunteer: pull the base version, compute the leased blocks, push Σ gradients with the lease tokens, ask
// for more (A2). One grant at a time; a new ballot or mode ends it. When grants come, and so who waits for whom, is the
// coordinator's decision.
import { type BlockId, describeError, type MemberId, type MessageTo, type Push, type ToCoordinator, type VersionRef } from '@starling-grid/protocol'
import { type ParameterEntry, type ParameterLayout, type RowsByName, writeGradient } from '@starling-grid/model'
import type { Compute, NamedParameters } from '../compute.ts'
import type { PushAnswer } from '../coordinator-http.ts'
import type { Batches } from '../data/batch.ts'
import type { Batch } from '../graph/executor.ts'
import { rowsOfBatch } from './pull-rows.ts'

export interface AsyncParts {
  readonly self: MemberId
  readonly compute: Compute
  readonly batches: Pick<Batches, 'of'>
  readonly layout: ParameterLayout
  /** of embeddings: pushed by rows when few of them were touched */
  readonly tables: readonly ParameterEntry[]
  /** of these, the ones that a batch needs only by the rows of its tokens */
  readonly lookups: readonly ParameterEntry[]
  /** parameters of a version, from the coordinator; `rows`: of some matrices only these */
  pull(version: VersionRef, rows?: RowsByName): Promise<NamedParameters>
  push(push: Push, gradient: Uint8Array): Promise<PushAnswer>
  send(message: ToCoordinator): void
  onActivity(activity: 'computing' | 'exchanging', detail: string): void
  onPushed(samples: number, loss: number): void
  onFatal(error: unknown): void
}

/** ms before work is asked for again after a pull or push failed */
const RETRY_MS = 1000

export class AsyncMode {
  readonly #parts: AsyncParts
  /** raised by every grant and every end of async mode: older work stops at its next step */
  #turn = 0

  constructor(parts: AsyncParts) {
    this.#parts = parts
  }

  stop(): void {
    this.#turn++
  }

  async granted(grant: MessageTo<'grant'>): Promise<void> {
    const turn = ++this.#turn
    const current = (): boolean => turn === this.#turn
    try {
      await this.#work(grant, current)
    } catch (error) {
      if (!current()) return
      this.#parts.onActivity('exchanging', `trying again: ${describeError(error)}`)
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
    }
    if (current()) this.#parts.send({ type: 'lease-request', modeEpoch: grant.modeEpoch })
  }

  async #work({ modeEpoch, base, leases }: MessageTo<'grant'>, current: () => boolean): Promise<void> {
    const { compute, layout, self, tables, push, onActivity, onPushed } = this.#parts
    onActivity('exchanging', `fetching version ${base.v}`)
    const { batch, parameters } = await this.#fetch(base, leases.map(({ block }) => block))
    if (!current()) return
    onActivity('computing', `${batch.samples} samples at version ${base.v}`)
    const { sums } = await compute.pulledGradient(parameters, batch)
    if (!current()) return
    onActivity('exchanging', 'sending gradients to the parameter server')
    const { body, sparse } = writeGradient(compute.gradient, layout, tables)
    const answer = await push({ incarnation: self, modeEpoch, base, leases, samples: batch.samples, ...sums, ...(sparse.length === 0 ? {} : { sparse: [...sparse] }) }, body)
    if (answer.verdict === 'received') onPushed(batch.samples, sums.lossSum / Math.max(sums.targets, 1))
  }

  /** At once, unless the rows to pull depend on the batch. */
  async #fetch(base: VersionRef, blocks: readonly BlockId[]): Promise<{ readonly batch: Batch; readonly parameters: NamedParameters }> {
    const { batches, lookups, pull } = this.#parts
    const loading = batches.of(blocks)
    const pulling = lookups.length === 0 ? pull(base) : loading.then((batch) => pull(base, rowsOfBatch(batch, lookups)))
    const [batch, parameters] = await Promise.all([loading, pulling])
    return { batch, parameters }
  }
}
