// A member at its assignment of a step: piece by piece, now and then slower than planned, so that blocks change members
// (R12). Computing takes time and nothing else; which blocks are whose is decided by the real code
// (sync/assignment.ts).
import { type BlockId, type Consumed, type ErrorCode, type MemberId, sameVersion } from '@starling-grid/protocol'
import { type MemberCore, type MemberInput, react } from '@starling-grid/volunteer/member'
import { takeBlocks } from '@starling-grid/volunteer/testing'
import type { Context } from './context.ts'

/** of the pieces: after how many a member finds that it is behind */
const BEHIND = 0.3
/** of the assignments whose last piece is begun: how often a bucket of the gradient leaves before that piece is done */
const EARLY = 0.5
/** times that a member is slower for one assignment, now and then */
const SLOWNESS = [1, 1, 1, 8] as const

interface Worker {
  readonly id: MemberId
  readonly seat: number
  readonly core: MemberCore
  take(input: MemberInput): void
  /** These blocks could not be had. */
  cannotRead(generation: number, blocks: readonly BlockId[], code: ErrorCode): void
  /** A bucket of the sealed share's gradient is final. */
  contributeEarly(generation: number, step: number, blocks: readonly BlockId[]): void
}

interface Assignment {
  readonly generation: number
  readonly step: number
  /** ms that a block takes */
  readonly blockMs: number
  readonly done: BlockId[]
  /** in a round: what inner steps learned from, in this attempt and before */
  readonly learned: Consumed | undefined
}

export class AssignmentWork {
  readonly #context: Context
  readonly #worker: Worker
  #waiting: Assignment | undefined

  constructor(context: Context, worker: Worker) {
    this.#context = context
    this.#worker = worker
  }

  begin({
    generation,
    step,
    kind,
    blocks,
  }: {
    readonly generation: number
    readonly step: number
    readonly kind: 'ring' | 'round'
    readonly blocks: readonly BlockId[]
  }): void {
    const { dice, scenario } = this.#context
    const ms = dice.between(scenario.computeMs >> 1, scenario.computeMs)
    this.#next({
      generation,
      step,
      blockMs: (ms * (dice.pick(SLOWNESS) ?? 1)) / Math.max(1, blocks.length),
      learned: this.#resumeRound(kind, generation, blocks),
      done: [],
    })
  }

  /**
   * A7: what the private copy learned from before goes on iff the base is the same and the assignment holds all of it.
   */
  #resumeRound(kind: 'ring' | 'round', generation: number, assignment: readonly BlockId[]): Consumed | undefined {
    const core = this.#worker.core
    const { consumed, version } = core
    if (kind !== 'round' || version === undefined) return undefined
    const same =
      consumed !== undefined &&
      sameVersion(consumed.base, version) &&
      consumed.blocks.every((block) => assignment.includes(block))
    if (same) this.#context.counts.resumedBlocks += consumed.blocks.length
    const learned = same ? consumed : { base: version, blocks: [] }
    react(core, { type: 'learned', generation, consumed: learned })
    return learned
  }

  resume(): void {
    const assignment = this.#waiting
    this.#waiting = undefined
    if (assignment !== undefined) this.#next(assignment)
  }

  #next(assignment: Assignment): void {
    const { agenda, dice } = this.#context
    const { id } = this.#worker
    const { generation, step, blockMs, done } = assignment
    const most = dice.pick([1, 2, Number.POSITIVE_INFINITY]) ?? 1
    const blocks = takeBlocks(this.#worker.core, { generation, step, most, blockMs })
    if (blocks === 'over') return
    if (blocks === 'wait') {
      this.#waiting = assignment
      return
    }
    if (blocks === 'complete') return this.#computed(assignment)
    const failure = this.#context.shards.failure(id, blocks, agenda.now)
    if (failure !== undefined) return this.#worker.cannotRead(generation, blocks, failure)
    if (dice.chance(BEHIND))
      agenda.later(
        0,
        () => `${id} is behind in step ${step} of g${generation}`,
        () => this.#worker.take({ type: 'behind', generation, step, blockMs }),
      )
    this.#maySendEarly(assignment, blocks)
    agenda.later(
      blockMs * blocks.length,
      () => `${id} computed of step ${step} of g${generation}: [${blocks.join(' ')}]`,
      () => {
        const core = this.#worker.core
        if (core.ring?.generation !== generation) return
        const learned = learnedMore(assignment.learned, blocks)
        if (learned !== undefined) react(core, { type: 'learned', generation, consumed: learned })
        this.#next({ ...assignment, learned, done: [...done, ...blocks] })
      },
    )
  }

  /** Once a bucket has left, the assignment can neither lose blocks nor get any: it is sealed before. */
  #maySendEarly({ generation, step, blockMs, done, learned }: Assignment, last: readonly BlockId[]): void {
    const { agenda, dice } = this.#context
    const core = this.#worker.core
    if (learned !== undefined || core.ring?.flight?.todo.length !== 0 || !dice.chance(EARLY)) return
    if (takeBlocks(core, { generation, step, most: 0, blockMs }) !== 'complete') return
    agenda.later(
      (blockMs * last.length) / 2,
      () => `${this.#worker.id} has a bucket of step ${step} of g${generation}`,
      () => this.#worker.contributeEarly(generation, step, [...done, ...last]),
    )
  }

  #computed({ generation, step, done: computed, learned }: Assignment): void {
    const own = learned === undefined ? computed : [...learned.blocks]
    const done = [...own, ...(this.#worker.core.ring?.flight?.offRing?.blocks ?? [])]
    const samples = done.length
    const finite = !this.#context.poisoned(done) && !this.#context.has('no-ring-steps', this.#worker)
    this.#worker.take({
      type: 'computed',
      generation,
      step,
      finite,
      manifest: { blocks: done, samples, targets: samples, lossSum: samples, correct: 0 },
    })
  }
}

function learnedMore(learned: Consumed | undefined, blocks: readonly BlockId[]): Consumed | undefined {
  return learned && { ...learned, blocks: [...new Set([...learned.blocks, ...blocks])] }
}
