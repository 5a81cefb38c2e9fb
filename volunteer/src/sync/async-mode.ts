// Async mode on a volunteer: pull the base version, compute the leased blocks, push Σ gradients with the lease tokens, ask
// for more (A2). One grant at a time; a new ballot or mode ends it. When grants come, and so who waits for whom, is the
// coordinator's decision.
import { describeError, type MemberId, type MessageTo, type Push, type ToCoordinator, type VersionRef } from '@starling-grid/protocol'
import { type ParameterEntry, type ParameterLayout, writeGradient } from '@starling-grid/model'
import type { Compute, NamedParameters } from '../compute.ts'
import type { PushAnswer } from '../coordinator-http.ts'
import type { Batches } from '../data/batch.ts'

export interface AsyncParts {
  readonly self: MemberId
  readonly compute: Compute
  readonly batches: Pick<Batches, 'of'>
  readonly layout: ParameterLayout
  /** of embeddings: pushed by rows when few of them were touched */
  readonly tables: readonly ParameterEntry[]
  /** parameters of a version, from the coordinator */
  pull(version: VersionRef): Promise<NamedParameters>
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
    const { batches, compute, layout, self, tables, pull, push, onActivity, onPushed } = this.#parts
    onActivity('exchanging', `fetching version ${base.v}`)
    const [batch, parameters] = await Promise.all([batches.of(leases.map(({ block }) => block)), pull(base)])
    if (!current()) return
    onActivity('computing', `${batch.samples} samples at version ${base.v}`)
    const { sums } = await compute.pulledGradient(parameters, batch)
    if (!current()) return
    onActivity('exchanging', 'sending gradients to the parameter server')
    const { body, sparse } = writeGradient(compute.gradient, layout, tables)
    const answer = await push({ incarnation: self, modeEpoch, base, leases, samples: batch.samples, ...sums, ...(sparse.length === 0 ? {} : { sparse: [...sparse] }) }, body)
    if (answer.verdict === 'received') onPushed(batch.samples, sums.lossSum / Math.max(sums.targets, 1))
  }
}
