// A member at its assignment of one step: computes it piece by piece, adds the gradients up, and says when it falls
// behind. Which blocks are whose is decided elsewhere (member/assignment.ts); this file only carries it out.
import type { CancelTimer, Clock } from '@starling-grid/protocol'
import { onAbort } from '../abort.ts'
import type { Compute } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import type { EarlyRanges } from '../graph/executor.ts'
import { nextBlocks, type StepId } from '../member/assignment.ts'
import type { MemberCore, MemberInput } from '../member/member-state.ts'
import { blockMsNow, isBehind, pieceOf, plannedMs, type AssignmentState } from './assignment-pace.ts'
import { type AssignmentResult, AssignmentSum, type Piece } from './assignment-sum.ts'

/** ms between looks at an assignment that takes its time */
const LOOK_MS = 100
/** ms between two calls for help: one round of moves is over by then */
const CALL_MS = 500

/** What a member knows of its own speed from one assignment to the next. */
export interface WorkPace {
  /** ms per block of the last piece: a member that got slower knows it at its next assignment; 0: not known */
  blockMs: number
}

export interface AssignmentWorkParts {
  readonly clock: Clock
  readonly core: Readonly<MemberCore>
  readonly compute: Compute
  readonly batches: Pick<Batches, 'blockSamples'>
  readonly pace: WorkPace
  /** of the generation */
  readonly signal: AbortSignal
  /** Buckets that leave as soon as each is final, and what an executor may encode of them; undefined: all at once. */
  readonly early: { readonly ranges: EarlyRanges['ranges']; encode?(): EarlyRanges['encode'] | undefined } | undefined
  tell(input: MemberInput): void
  /** Σ gradients of off-ring members, once (A1); undefined: another one is here */
  takeOffRing(id: number): Float32Array | undefined
}

export class AssignmentWork {
  readonly #at: StepId
  readonly #parts: AssignmentWorkParts
  readonly #sum: AssignmentSum
  readonly #clock: AssignmentClock
  readonly #release: () => void
  #goOn: () => void = () => undefined

  constructor(at: StepId, parts: AssignmentWorkParts) {
    this.#at = at
    this.#parts = parts
    this.#sum = new AssignmentSum(parts.compute)
    this.#clock = new AssignmentClock(at, parts)
    this.#release = onAbort(parts.signal, () => this.end())
  }

  /** Σ gradients of the assignment, whole when it is finished. */
  get gradient(): Float32Array {
    return this.#sum.gradient
  }

  /** What to compute next: begun or sealed from now on. wait: others may hand over some blocks. over: drop it. */
  next(): ReturnType<typeof nextBlocks> {
    const { core, tell } = this.#parts
    if (this.#sum.isOver) return 'over'
    const { left, blockMs } = this.#clock
    const gradientBytes = this.gradient.byteLength
    const next = nextBlocks(core, this.#at, pieceOf({ blocks: left, blockMs: this.#expectedBlockMs, gradientBytes }))
    if (next === 'complete') tell({ type: 'seal', ...this.#at, blockMs })
    else if (next !== 'over') tell({ type: 'begin', ...this.#at, blocks: next === 'wait' ? [] : next, blockMs })
    return next
  }

  /** Until other members handed blocks over, or this one waits for none any more. */
  mayGoOn(): Promise<void> {
    return new Promise((resolve) => {
      this.#goOn = resolve
    })
  }

  resume(): void {
    this.#goOn()
  }

  /** Forward and backward of a piece. `onFinal`: takes the buckets of the last one while backward goes on. */
  async add(piece: Piece, onFinal: EarlyRanges['onFinal']): Promise<void> {
    if (this.#sum.isOver) return // a ballot came while the samples were fetched
    this.#clock.begin(piece.blocks.length)
    await this.#sum.add(piece, this.#early(onFinal))
    if (!this.#sum.isOver) this.#parts.pace.blockMs = this.#clock.end()
  }

  /** Nothing is computed any more that could fall behind. */
  stopClock(): void {
    this.#clock.stop()
  }

  finish(): AssignmentResult {
    this.#addOffRing()
    return this.#sum.finish()
  }

  /** R3, or the next step begins: a computation that still runs ends without an effect. */
  end(): void {
    this.#release()
    this.#sum.end()
    this.#clock.stop()
    this.#goOn()
  }

  get #expectedBlockMs(): number {
    const { batches, compute, pace } = this.#parts
    return Math.max(pace.blockMs, (1000 * batches.blockSamples) / Math.max(compute.samplesPerSecond, 1e-3))
  }

  /**
   * Buckets of the last piece: from the first of them on the assignment can neither lose blocks nor get any, so it is
   * sealed now.
   */
  #early(onFinal: EarlyRanges['onFinal']): EarlyRanges | undefined {
    const { core, early, tell, pace } = this.#parts
    if (early === undefined || nextBlocks(core, this.#at, 1) !== 'complete') return undefined
    tell({ type: 'seal', ...this.#at, blockMs: pace.blockMs })
    // What is encoded cannot be added to: the assignment must be this piece and nothing else.
    const isAlone = this.#sum.isEmpty && core.ring?.flight?.offRing === undefined
    const encode = isAlone ? early.encode?.() : undefined
    this.#addOffRing()
    return {
      ranges: early.ranges,
      ...(encode ? { encode } : {}),
      onFinal: (bucket, encoded) => {
        const range = early.ranges[bucket]
        if (range === undefined) return
        this.#sum.complete(range)
        onFinal(bucket, encoded)
      },
    }
  }

  /** Into the assignment, once, when it is sealed (A1). */
  #addOffRing(): void {
    const wanted = this.#parts.core.ring?.flight?.offRing
    if (wanted === undefined) return
    const sum = this.#parts.takeOffRing(wanted.id)
    if (sum !== undefined) this.#sum.addOffRing(wanted, sum)
  }
}

/** Looks at the clock while an assignment is computed, and says `behind` when it is. */
class AssignmentClock {
  readonly #at: StepId
  readonly #parts: AssignmentWorkParts
  readonly #beganAt: number
  readonly #stopLooking: CancelTimer
  readonly #plannedMs: number
  #calledAt = Number.NEGATIVE_INFINITY
  #pieceAt = 0
  #pieceBlocks = 0
  #blocks = 0
  #ms = 0

  constructor(at: StepId, parts: AssignmentWorkParts) {
    const planned = parts.core.ring?.plan.get(at.step)
    this.#at = at
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
    this.#parts.tell({ type: 'behind', ...this.#at, blockMs: blockMsNow(state) })
  }
}
