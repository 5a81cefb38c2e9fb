// A member at its share of a step: piece by piece, now and then slower than planned, so that blocks change members
// (R12). Computing takes time and nothing else; which blocks are whose is decided by the real code (sync/share.ts).
import { type BlockId, type Consumed, type ErrorCode, type MemberId, sameVersion } from '@starling-grid/protocol'
import { type MemberCore, type MemberInput, nextBlocksOf } from '@starling-grid/volunteer'
import type { Context } from './context.ts'

/** of the pieces: after how many a member finds that it is behind */
const BEHIND = 0.3
/** of the shares whose last piece is begun: how often a bucket of the gradient leaves before that piece is done */
const EARLY = 0.5
/** times that a member is slower for one share, now and then */
const SLOWNESS = [1, 1, 1, 8] as const

interface Worker {
  readonly id: MemberId
  readonly seat: number
  /** as the member of this generation knows itself: with rule R3 switched off it may have left */
  coreOf(gen: number): MemberCore
  take(input: MemberInput): void
  /** These blocks could not be had. */
  cannotRead(gen: number, blocks: readonly BlockId[], code: ErrorCode): void
  /** A bucket of the sealed share's gradient is final. */
  contributeEarly(gen: number, step: number, blocks: readonly BlockId[]): void
}

interface Share {
  readonly gen: number
  readonly step: number
  /** ms that a block takes */
  readonly blockMs: number
  readonly done: BlockId[]
  /** in a round: what inner steps learned from, in this attempt and before */
  readonly learned: Consumed | undefined
}

export class ShareWork {
  readonly #context: Context
  readonly #worker: Worker
  #waiting: Share | undefined

  constructor(context: Context, worker: Worker) {
    this.#context = context
    this.#worker = worker
  }

  begin({
    gen,
    step,
    kind,
    blocks,
  }: {
    readonly gen: number
    readonly step: number
    readonly kind: 'ring' | 'round'
    readonly blocks: readonly BlockId[]
  }): void {
    const { dice, scenario } = this.#context
    const ms = dice.between(scenario.computeMs >> 1, scenario.computeMs)
    this.#next({
      gen,
      step,
      blockMs: (ms * (dice.pick(SLOWNESS) ?? 1)) / Math.max(1, blocks.length),
      learned: this.#resumeRound(kind, gen, blocks),
      done: [],
    })
  }

  /** A7: what the private copy learned from before goes on iff the base is the same and the share holds all of it. */
  #resumeRound(kind: 'ring' | 'round', gen: number, share: readonly BlockId[]): Consumed | undefined {
    const core = this.#worker.coreOf(gen)
    const { consumed, version } = core
    if (kind !== 'round' || version === undefined) return undefined
    const same =
      consumed !== undefined &&
      sameVersion(consumed.base, version) &&
      (consumed.blocks.every((block) => share.includes(block)) || core.off.has('A7'))
    if (same) this.#context.counts.resumedBlocks += consumed.blocks.length
    core.consumed = same ? consumed : { base: version, blocks: [] }
    return core.consumed
  }

  resume(): void {
    const share = this.#waiting
    this.#waiting = undefined
    if (share !== undefined) this.#next(share)
  }

  #next(share: Share): void {
    const { agenda, dice } = this.#context
    const { id } = this.#worker
    const { gen, step, blockMs, done } = share
    const most = dice.pick([1, 2, Number.POSITIVE_INFINITY]) ?? 1
    const blocks = nextBlocksOf(this.#worker.coreOf(gen), { gen, step, most, blockMs })
    if (blocks === 'over') return
    if (blocks === 'wait') {
      this.#waiting = share
      return
    }
    if (blocks === 'sealed') return this.#computed(share)
    const failure = this.#context.shards.failure(id, blocks, agenda.now)
    if (failure !== undefined) return this.#worker.cannotRead(gen, blocks, failure)
    if (dice.chance(BEHIND))
      agenda.later(
        0,
        () => `${id} is behind in step ${step} of g${gen}`,
        () => this.#worker.take({ type: 'behind', gen, step, blockMs }),
      )
    this.#maySendEarly(share, blocks)
    agenda.later(
      blockMs * blocks.length,
      () => `${id} computed of step ${step} of g${gen}: [${blocks.join(' ')}]`,
      () => {
        if (this.#worker.coreOf(gen).ring?.gen !== gen) return
        share.learned?.blocks.push(...blocks.filter((block) => !share.learned?.blocks.includes(block)))
        this.#next({ ...share, done: [...done, ...blocks] })
      },
    )
  }

  /** Once a bucket has left, the share can neither lose blocks nor get any: it is sealed before. */
  #maySendEarly({ gen, step, blockMs, done, learned }: Share, last: readonly BlockId[]): void {
    const { agenda, dice } = this.#context
    const core = this.#worker.coreOf(gen)
    if (learned !== undefined || core.ring?.flight?.todo.length !== 0 || !dice.chance(EARLY)) return
    if (nextBlocksOf(core, { gen, step, most: 0, blockMs }) !== 'sealed') return
    agenda.later(
      (blockMs * last.length) / 2,
      () => `${this.#worker.id} has a bucket of step ${step} of g${gen}`,
      () => this.#worker.contributeEarly(gen, step, [...done, ...last]),
    )
  }

  #computed({ gen, step, done: computed, learned }: Share): void {
    const own = learned === undefined ? computed : [...learned.blocks]
    const done = [...own, ...(this.#worker.coreOf(gen).ring?.flight?.guest?.blocks ?? [])]
    const samples = done.length
    const finite = !this.#context.poisoned(done) && !this.#context.has('no-ring-steps', this.#worker)
    this.#worker.take({
      type: 'computed',
      gen,
      step,
      finite,
      manifest: { blocks: done, samples, targets: samples, lossSum: samples, correct: 0 },
    })
  }
}
