// A member at its assignment of one step: computes it piece by piece, adds the gradients up, and says when it falls
// behind. Which blocks are whose is decided elsewhere (assignment.ts); this file only carries it out.
import type { BlockId, CancelTimer, Clock } from '@starling-grid/protocol'
import type { Compute } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import type { EarlyRanges } from '../graph/executor.ts'
import { nextBlocksOf } from '../member/assignment.ts'
import type { MemberCore, MemberInput } from '../member/member-state.ts'
import { blockMsNow, isBehind, pieceOf, plannedMs, type AssignmentState } from './assignment-pace.ts'
import { type AssignmentResult, AssignmentSum } from './assignment-sum.ts'

/** ms between looks at an assignment that takes its time */
const LOOK_MS = 100
/** ms between two calls for help: one round of moves is over by then */
const CALL_MS = 500

/** Pieces of an assignment's gradient that leave as soon as each is final. */
export interface EarlyBuckets extends Pick<EarlyRanges, 'ranges' | 'encode'> {
  onFinal(index: number, gradient: Float32Array, encoded?: readonly Uint8Array[]): void
}

export interface AssignmentWorkParts {
  readonly clock: Clock
  readonly core: MemberCore
  readonly compute: Compute
  readonly batches: Batches
  tell(input: MemberInput): void
  /** Σ gradients of off-ring members, from the coordinator (A1) */
  offRingSum(id: number): Promise<Float32Array>
  /** Takes pieces of the gradient as soon as each is final; undefined: all at once. */
  bucketsOf(generation: number, step: number): EarlyBuckets | undefined
}

interface StepId {
  readonly generation: number
  readonly step: number
}

export class AssignmentWork {
  readonly #parts: AssignmentWorkParts
  /** of the step under way, until it is over (R3) or the next begins */
  #assignment: AssignmentSum | undefined
  #clock: AssignmentClock | undefined
  /** ms per block of the last piece: a member that got slower knows it at its next share */
  #lastBlockMs = 0
  #resume: () => void = () => undefined
  /** of off-ring members, until it is in an assignment */
  #offRing: { readonly id: number; readonly sum: Float32Array } | undefined

  constructor(parts: AssignmentWorkParts) {
    this.#parts = parts
  }

  /** Σ gradients of the assignment of the step under way, whole as soon as `compute` resolved. */
  get gradient(): Float32Array {
    if (this.#assignment === undefined) throw new Error('internal: no share is under way')
    return this.#assignment.gradient
  }

  /** Others may have handed blocks over, or no member waits for another any more. */
  resumed = (): void => this.#resume()

  /** R3: the generation is over. A computation that still runs ends without an effect. */
  halt(): void {
    this.#assignment?.end()
    this.#clock?.stop()
    this.#assignment = undefined
    this.#offRing = undefined
    this.#resume()
  }

  /** Σ gradients of the assignment into `gradient`. Undefined: the generation ended before. */
  compute = async ({ generation, step }: StepId): Promise<AssignmentResult | undefined> => {
    const order = { generation, step }
    const { core, compute } = this.#parts
    this.#assignment?.end() // its step is over, or this one would not have begun
    const assignment = new AssignmentSum(compute)
    this.#assignment = assignment
    const clock = new AssignmentClock(order, this.#parts)
    this.#clock = clock
    try {
      while (!assignment.isOver) {
        const blocks = nextBlocksOf(core, {
          ...order,
          most: pieceOf({
            blocks: clock.left,
            blockMs: this.#expectedBlockMs,
            gradientBytes: assignment.gradient.byteLength,
          }),
          blockMs: clock.blockMs,
        })
        if (blocks === 'over') return undefined
        if (blocks === 'sealed') return this.#finished(assignment)
        if (blocks === 'wait')
          await new Promise<void>((resolve) => {
            this.#resume = resolve
          })
        else await this.#add(assignment, blocks, clock)
      }
      return undefined
    } finally {
      clock.stop()
    }
  }

  /** A1. What cannot be fetched is not contributed: the coordinator takes it back when its generation closes. */
  async fetchOffRing(generation: number, id: number): Promise<void> {
    const { core, offRingSum, tell } = this.#parts
    const sum = await offRingSum(id).catch(() => undefined)
    if (sum === undefined || core.ring?.generation !== generation) return
    if (this.#offRing !== undefined) return // an earlier one waits for its assignment, which names its blocks already
    this.#offRing = { id, sum }
    tell({ type: 'off-ring-fetched', generation, id })
  }

  get #expectedBlockMs(): number {
    const { batches, compute } = this.#parts
    return Math.max(this.#lastBlockMs, (1000 * batches.blockSamples) / Math.max(compute.samplesPerSecond, 1e-3))
  }

  async #add(assignment: AssignmentSum, blocks: readonly BlockId[], clock: AssignmentClock): Promise<void> {
    const batch = await this.#parts.batches.of(blocks)
    if (assignment.isOver) return // a ballot came while the samples were fetched
    clock.begin(blocks.length)
    await assignment.add({ blocks, batch }, this.#early(assignment, clock))
    if (!assignment.isOver) this.#lastBlockMs = clock.end()
  }

  /**
   * Buckets of the last piece: from the first of them on the assignment can neither lose blocks nor get any, so it is
   * sealed now.
   */
  #early(assignment: AssignmentSum, { order, left }: AssignmentClock): EarlyRanges | undefined {
    const { core, bucketsOf } = this.#parts
    const early = left === 0 ? bucketsOf(order.generation, order.step) : undefined
    if (early === undefined || nextBlocksOf(core, { ...order, most: 0, blockMs: this.#lastBlockMs }) !== 'sealed')
      return undefined
    // What is encoded cannot be added to: the assignment must be this piece and nothing else.
    const encode = assignment.isEmpty && core.ring?.flight?.offRing === undefined ? early.encode : undefined
    this.#addOffRing(assignment)
    return {
      ranges: early.ranges,
      ...(encode ? { encode } : {}),
      onFinal: (index, encoded) => bucketFinal(assignment, early, { index, encoded }),
    }
  }

  #finished(assignment: AssignmentSum): AssignmentResult {
    this.#addOffRing(assignment)
    return assignment.finish()
  }

  /** Into the assignment, once, when it is sealed (A1). */
  #addOffRing(assignment: AssignmentSum): void {
    const wanted = this.#parts.core.ring?.flight?.offRing
    if (wanted === undefined || wanted.id !== this.#offRing?.id) return
    assignment.addOffRing(wanted, this.#offRing.sum)
    this.#offRing = undefined
  }
}

function bucketFinal(
  assignment: AssignmentSum,
  early: EarlyBuckets,
  { index, encoded }: { readonly index: number; readonly encoded: readonly Uint8Array[] | undefined },
): void {
  const range = early.ranges[index]
  if (range === undefined) return
  assignment.complete(range)
  early.onFinal(index, assignment.gradient, encoded)
}

/** Looks at the clock while an assignment is computed, and says `behind` when it is. */
class AssignmentClock {
  readonly order: StepId
  readonly #parts: AssignmentWorkParts
  readonly #beganAt: number
  readonly #stopLooking: CancelTimer
  readonly #plannedMs: number
  #calledAt = Number.NEGATIVE_INFINITY
  #pieceAt = 0
  #pieceBlocks = 0
  #blocks = 0
  #ms = 0

  constructor(order: StepId, parts: AssignmentWorkParts) {
    const planned = parts.core.ring?.plan.get(order.step)
    this.order = order
    this.#parts = parts
    this.#plannedMs = plannedMs((planned?.blocks.length ?? 0) * parts.batches.blockSamples, planned?.weights ?? [])
    this.#beganAt = parts.clock.now()
    this.#stopLooking = parts.clock.every(LOOK_MS, () => this.#look())
  }

  get left(): number {
    return this.#parts.core.ring?.flight?.todo.length ?? 0
  }

  /** of the pieces that are done */
  get blockMs(): number {
    return this.#blocks === 0 ? 0 : this.#ms / this.#blocks
  }

  begin(blocks: number): void {
    this.#pieceAt = this.#parts.clock.now()
    this.#pieceBlocks = blocks
  }

  /** ms for each block of the piece */
  end(): number {
    const ms = this.#parts.clock.now() - this.#pieceAt
    const perBlock = ms / Math.max(1, this.#pieceBlocks)
    this.#ms += ms
    this.#blocks += this.#pieceBlocks
    this.#pieceBlocks = 0
    this.#look()
    return perBlock
  }

  stop(): void {
    this.#stopLooking()
  }

  #look(): void {
    const now = this.#parts.clock.now()
    const state: AssignmentState = {
      elapsedMs: now - this.#beganAt,
      pieceMs: this.#pieceBlocks > 0 ? now - this.#pieceAt : 0,
      pieceBlocks: this.#pieceBlocks,
      left: this.left,
      blockMs: this.blockMs,
      plannedMs: this.#plannedMs,
    }
    if (now - this.#calledAt < CALL_MS || !isBehind(state)) return
    this.#calledAt = now
    this.#parts.tell({ type: 'behind', ...this.order, blockMs: blockMsNow(state) })
  }
}
