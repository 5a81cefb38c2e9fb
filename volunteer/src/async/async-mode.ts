// Async mode on a volunteer: pull the base version, compute the leased blocks, push Σ gradients under the grant's
// number, ask for more (A2). In a run of groups it makes inner steps of the blocks, and pushes the difference (G1),
// when it leaves that of the steps so far. One grant at a time; a new ballot or mode ends it. The coordinator decides
// when grants come, and so which member waits.
import {
  encodeVector,
  type LossyEncoding,
  type ParameterEntry,
  type ParameterLayout,
  type RowsByName,
  writeGradient,
} from '@starling-grid/model'
import {
  type BlockId,
  type Clock,
  describeError,
  type GradientEncoding,
  type MemberId,
  type MessageTo,
  GridError,
  type PushHeader,
  type ToCoordinator,
  type VersionRef,
} from '@starling-grid/protocol'
import { startFeedback, swapped, withResidual } from '../codec/encoding.ts'
import type { Compute, GradientLease, NamedParameters } from '../compute.ts'
import type { PushReply } from '../coordinator-http.ts'
import type { Batches } from '../data/batch.ts'
import { endsWork } from '../fatal.ts'
import type { Batch, BatchSums } from '../graph/executor.ts'
import type { InnerSteps, RoundOrder } from '../local/round-work.ts'
import { backoffMs } from '../retry.ts'
import { rowsOfBatch } from './pull-rows.ts'
import { RoundCut } from './round-cut.ts'
import { giveBack } from './validation.ts'

export interface AsyncEvents {
  onActivity(activity: 'computing' | 'exchanging', detail: string): void
  onPushed(samples: number, loss: number): void
  onFatal(error: unknown): void
}

export interface AsyncParts extends AsyncEvents {
  readonly self: MemberId
  readonly clock: Clock
  readonly compute: Compute
  readonly batches: Pick<Batches, 'of' | 'isLoading'>
  readonly layout: ParameterLayout
  /** in jobs with rounds */
  readonly rounds?: (InnerSteps & { readonly contribution: Float32Array }) | undefined
  /** of rounds: how their differences travel where the grant does not say it */
  readonly encoding: GradientEncoding
  /** of embeddings: pushed by rows when few of them were touched */
  readonly tables: readonly ParameterEntry[]
  /** of these, the ones that a batch needs only by the rows of its tokens */
  readonly lookups: readonly ParameterEntry[]
  /** parameters of a version, from the coordinator; `rows`: of some matrices only these */
  pull(version: VersionRef, rows?: RowsByName): Promise<NamedParameters>
  /** what a round starts from, as its encoding has it: from these members, and from the coordinator */
  pullRoundBase(asked: PulledRound, signal: AbortSignal): Promise<PulledBase>
  push(push: PushHeader, gradient: Uint8Array): Promise<PushReply>
  send(message: ToCoordinator): void
}

export interface PulledRound {
  readonly version: VersionRef
  readonly sources: readonly MemberId[]
  /** of the round */
  readonly encoding: GradientEncoding
}

export interface PulledBase extends NamedParameters {
  /** sources that did not serve it: the coordinator is told (G3) */
  readonly unserved: readonly MemberId[]
}

interface PushedWork {
  /** of the grant: all, or the first of a round that was cut */
  readonly blocks: number
  readonly samples: number
  readonly sums: BatchSums
  readonly encoding?: LossyEncoding
}

/** ms before work is asked for again after a pull or push failed */
const RETRY = { firstMs: 1000, mostMs: 15_000 }

export function openAsyncMode(parts: AsyncParts): AsyncMode {
  return new AsyncMode(parts)
}

export class AsyncMode {
  readonly #parts: AsyncParts
  /** raised by every grant and every end of async mode: older work stops at its next step */
  #turn = 0
  /** grants in a row that came to nothing */
  #failures = 0
  /** of the grant under way */
  #lease: GradientLease | undefined
  #ending = new AbortController()
  /** raised when this volunteer leaves */
  readonly #leaving = new AbortController()
  #underWay: Promise<void> = Promise.resolve()
  #feedback = startFeedback(0)
  /** of the newest round */
  #unserved: readonly MemberId[] = []

  constructor(parts: AsyncParts) {
    this.#parts = parts
  }

  /** What is still computed for the grant ends without an effect (R3). */
  stop(): void {
    this.#turn++
    this.#lease?.end()
    this.#ending.abort(new GridError('generation-stale', 'another grant came, or a ballot'))
    this.#ending = new AbortController()
  }

  granted(grant: MessageTo<'grant'>): Promise<void> {
    if (this.#leaving.signal.aborted) return Promise.resolve()
    this.#underWay = this.#granted(grant)
    return this.#underWay
  }

  /**
   * This volunteer leaves: it takes no more work, and pushes what the round under way has learned. Resolves when that
   * is over. A gradient under way is of blocks that others compute soon enough.
   */
  async leave(): Promise<void> {
    this.#leaving.abort()
    if (this.#parts.rounds !== undefined) await this.#underWay.catch(() => undefined)
  }

  async #granted(grant: MessageTo<'grant'>): Promise<void> {
    this.stop()
    const turn = this.#turn
    const current = (): boolean => turn === this.#turn
    const lease = this.#parts.compute.buffers.lease()
    this.#lease = lease
    try {
      await this.#work(grant, lease)
    } catch (error) {
      if (!current()) return
      if (endsWork(error)) throw error
      giveBack(grant.leases, error, this.#parts.send)
      if (this.#leaving.signal.aborted) return
      this.#parts.onActivity('exchanging', `trying again: ${describeError(error)}`)
      await this.#parts.clock.sleep(backoffMs(this.#failures++, RETRY))
    } finally {
      lease.end()
    }
    if (current() && !this.#leaving.signal.aborted) this.#parts.send(this.#request(grant))
  }

  #request({ modeEpoch }: MessageTo<'grant'>): ToCoordinator {
    const unserved = [...this.#unserved]
    this.#unserved = []
    return { type: 'lease-request', modeEpoch, ...(unserved.length === 0 ? {} : { unserved }) }
  }

  async #work(grant: MessageTo<'grant'>, lease: GradientLease): Promise<void> {
    return grant.innerSteps === undefined ? this.#gradient(grant, lease) : this.#round(grant, this.#ending.signal)
  }

  async #gradient(grant: MessageTo<'grant'>, lease: GradientLease): Promise<void> {
    const { base, leases } = grant
    const { compute, onActivity } = this.#parts
    onActivity('exchanging', `fetching version ${base.v}`)
    const { batch, parameters } = await this.#fetch(
      base,
      leases.map(({ block }) => block),
    )
    if (lease.isOver) return
    onActivity('computing', `${batch.samples} samples at version ${base.v}`)
    const computed = await compute.pulledGradient(lease, parameters, batch)
    if (computed === undefined) return
    const pushed = { blocks: leases.length, samples: batch.samples, sums: computed.sums }
    await lease.use((gradient) => this.#push(grant, gradient, pushed))
  }

  async #round(grant: MessageTo<'grant'>, signal: AbortSignal): Promise<void> {
    const { clock, batches } = this.#parts
    const leaving = this.#leaving.signal
    const cut = new RoundCut(clock, { deadlineMs: grant.deadlineMs, leaving, isLoading: () => batches.isLoading })
    await this.#learn(grant, signal, cut).finally(() => cut.end())
  }

  /** The private copy begins at the base, and what it learned is its difference from there (G1). */
  async #learn(grant: MessageTo<'grant'>, signal: AbortSignal, cut: RoundCut): Promise<void> {
    const { base, leases, innerSteps = 1, fromStep = 0, rate = 1 } = grant
    const { encoding = this.#parts.encoding, sources = [] } = grant
    const { rounds, pullRoundBase, onActivity } = this.#parts
    if (rounds === undefined)
      throw new GridError('message-unexpected', 'expected rounds in a job that has them, got some in another')
    onActivity('exchanging', `fetching version ${base.v}`)
    const { parameters, unserved } = await pullRoundBase({ version: base, sources, encoding }, signal)
    if (signal.aborted) return
    this.#unserved = unserved
    const blocks = leases.map(({ block }) => block)
    onActivity('computing', `${innerSteps} inner steps from version ${base.v}`)
    const onLearned: RoundOrder['onLearned'] = (consumed) => cut.learned(consumed)
    const order = { base, parameters, blocks, innerSteps, fromStep, rate, signal, cut: cut.signal, onLearned }
    const result = await rounds.run(order)
    if (result === undefined || signal.aborted) return
    if (!result.finite)
      throw new GridError('gradient-not-finite', 'expected finite parameters after inner steps, got NaN or infinity')
    const pushed = { ...result, blocks: result.learned }
    await this.#push(grant, rounds.contribution, encoding === 'f32' ? pushed : { ...pushed, encoding })
  }

  async #push(
    { modeEpoch, base, leases }: MessageTo<'grant'>,
    gradient: Float32Array,
    { blocks, samples, sums, encoding }: PushedWork,
  ): Promise<void> {
    const { layout, self, tables, push, onActivity, onPushed } = this.#parts
    onActivity('exchanging', 'sending to the parameter server')
    const { body, sparse } =
      encoding === undefined
        ? writeGradient(gradient, layout, tables)
        : { body: this.#encode(gradient, encoding), sparse: [] }
    const answer = await push(
      {
        incarnation: self,
        modeEpoch,
        base,
        leaseEpoch: leases[0]?.leaseEpoch ?? 0,
        blocks,
        samples,
        ...sums,
        ...(sparse.length === 0 ? {} : { sparse: [...sparse] }),
        ...(encoding === undefined ? {} : { encoding }),
      },
      body,
    )
    this.#failures = 0
    if (answer.verdict !== 'received') return
    if (encoding !== undefined) this.#feedback = swapped(this.#feedback)
    onPushed(samples, sums.lossSum / Math.max(sums.targets, 1))
  }

  /** With what earlier pushes lost. What this one loses counts once it is taken. */
  #encode(gradient: Float32Array, encoding: LossyEncoding): Uint8Array {
    const { length } = gradient
    if (this.#feedback.residual.length !== length) this.#feedback = startFeedback(length)
    const { residual, next } = this.#feedback
    withResidual(gradient, residual, next)
    return encodeVector(next, encoding, next)
  }

  /** At once, unless the rows to pull depend on the batch. */
  async #fetch(
    base: VersionRef,
    blocks: readonly BlockId[],
  ): Promise<{ readonly batch: Batch; readonly parameters: NamedParameters }> {
    const { batches, lookups, pull } = this.#parts
    const loading = batches.of(blocks)
    const pulling = lookups.length === 0 ? pull(base) : loading.then((batch) => pull(base, rowsOfBatch(batch, lookups)))
    const [batch, parameters] = await Promise.all([loading, pulling])
    return { batch, parameters }
  }
}
