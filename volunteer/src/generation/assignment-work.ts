// A member at its assignment of one step. Computes it piece by piece and adds the gradients up, with a sum that it was
// given (A1). Which blocks are whose is decided elsewhere (member/assignment.ts), and when it falls behind in
// assignment-pace.ts. The memory of the sum is leased for this assignment alone (compute.ts). The computation writes
// it, then the exchange reads it, until the step is over.
import type { BlockId } from '@starling-grid/protocol'
import { onAbort } from '../abort.ts'
import { combine } from '../codec/numbers.ts'
import type { Compute, GradientLease } from '../compute.ts'
import type { FloatRange } from '../floats.ts'
import type { Batch, BatchSums, EarlyRanges } from '../graph/executor.ts'
import { nextBlocks, type StepId } from '../member/assignment.ts'
import type { GivenSum } from '../member/given-sums.ts'
import { AssignmentClock, type AssignmentClockParts, pieceOf } from './assignment-pace.ts'

export interface AssignmentResult {
  readonly blocks: readonly BlockId[]
  readonly samples: number
  readonly sums: BatchSums
  readonly finite: boolean
}

const NOTHING: AssignmentResult = { blocks: [], samples: 0, sums: { lossSum: 0, targets: 0, correct: 0 }, finite: true }

/** A piece of an assignment: its blocks, and their samples. */
export interface Piece {
  readonly blocks: readonly BlockId[]
  readonly batch: Batch
}

/** What a member knows of its own speed from one assignment to the next. */
export interface WorkPace {
  /** ms per block of the last piece: a member that got slower knows it at its next assignment; 0: not known */
  blockMs: number
}

export interface AssignmentWorkParts extends AssignmentClockParts {
  readonly compute: Compute
  readonly pace: WorkPace
  /** of the generation */
  readonly signal: AbortSignal
  /** Buckets that leave as soon as each is final, and what an executor may encode of them; undefined: all at once. */
  readonly early: { readonly ranges: EarlyRanges['ranges']; encode?(): EarlyRanges['encode'] | undefined } | undefined
  /** the gradients of a given sum, once (A1); undefined: those of another one are here */
  takeGiven(id: number): Float32Array | undefined
}

export class AssignmentWork {
  readonly #at: StepId
  readonly #parts: AssignmentWorkParts
  readonly #clock: AssignmentClock
  readonly #release: () => void
  readonly #lease: GradientLease
  /**
   * Σ gradients of earlier pieces and of what it was given, as far as they are not in `gradient` yet; leased when first
   * needed
   */
  #rest: GradientLease | undefined
  #result = NOTHING
  #given: GivenSum | undefined
  #goOn: () => void = () => undefined

  constructor(at: StepId, parts: AssignmentWorkParts) {
    this.#at = at
    this.#parts = parts
    this.#lease = parts.compute.buffers.lease()
    this.#clock = new AssignmentClock(at, parts)
    this.#release = onAbort(parts.signal, () => this.end())
  }

  /** Σ gradients of the assignment (parameterCount,), whole when it is finished. */
  get gradient(): Float32Array {
    return this.#lease.values
  }

  /** What to compute next: begun or sealed from now on. wait: others may hand over some blocks. over: drop it. */
  next(): ReturnType<typeof nextBlocks> {
    const { core, tell, compute } = this.#parts
    if (this.#lease.isOver) return 'over'
    const { left, blockMs } = this.#clock
    const gradientBytes = this.gradient.byteLength
    const atOnce = compute.executor.blocksAtOnce
    const piece = pieceOf({ blocks: left, blockMs: this.#expectedBlockMs, gradientBytes, atOnce })
    const next = nextBlocks(core, this.#at, piece)
    if (next === 'complete') tell({ type: 'seal', ...this.#at, blockMs })
    else if (next !== 'over') tell({ type: 'begin', ...this.#at, blocks: next === 'wait' ? [] : next, blockMs })
    return next
  }

  /** Until other members handed blocks over, or this one no longer waits for any. */
  mayGoOn(): Promise<void> {
    return new Promise((resolve) => {
      this.#goOn = resolve
    })
  }

  resume(): void {
    this.#goOn()
  }

  /** Forward and backward of a piece. `onFinal`: takes the buckets of the last one while backward goes on. */
  async add({ blocks, batch }: Piece, onFinal: EarlyRanges['onFinal']): Promise<void> {
    if (this.#lease.isOver) return // a ballot came while the samples were fetched
    this.#clock.begin(blocks.length)
    const early = this.#early(onFinal)
    if (!this.#isEmpty) combine('sum', this.#restValues, this.gradient) // the executor overwrites the gradient
    const computed = await this.#parts.compute.heldGradient(this.#lease, batch, early)
    if (computed === undefined) return
    this.#result = joined(this.#result, { blocks, samples: batch.samples, ...computed })
    this.#parts.pace.blockMs = this.#clock.end()
  }

  /** Nothing is computed any more that could fall behind. */
  stopClock(): void {
    this.#clock.stop()
  }

  /** The whole assignment. It names the blocks of a given sum if that is in it, and only then. */
  finish(): AssignmentResult {
    this.#addGiven()
    if (this.#isEmpty) this.gradient.fill(0)
    this.#complete({ start: 0, end: this.gradient.length })
    if (this.#given === undefined) return this.#result
    const { blocks, samples, targets, lossSum, correct } = this.#given
    return joined(this.#result, { blocks, samples, finite: true, sums: { lossSum, targets, correct } })
  }

  /** R3, or the next step begins: a computation that still runs ends without an effect. */
  end(): void {
    this.#release()
    this.#lease.end()
    this.#rest?.end()
    this.#clock.stop()
    this.#goOn()
  }

  get #isEmpty(): boolean {
    return this.#result.blocks.length === 0
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
    const isAlone = this.#isEmpty && core.ring?.flight?.given === undefined
    const encode = isAlone ? early.encode?.() : undefined
    this.#addGiven()
    return {
      ranges: early.ranges,
      ...(encode ? { encode } : {}),
      onFinal: (bucket, encoded) => {
        const range = early.ranges[bucket]
        if (range === undefined || this.#lease.isOver) return // a ballot came: the piece is no news (R3)
        this.#complete(range)
        onFinal(bucket, encoded)
      },
    }
  }

  /** Into the assignment, once, when it is sealed (A1). */
  #addGiven(): void {
    const wanted = this.#parts.core.ring?.flight?.given
    const sum = wanted && this.#parts.takeGiven(wanted.id)
    if (sum === undefined) return
    if (this.#given !== undefined) throw new Error('internal: an assignment has one given sum')
    this.#given = wanted
    combine('sum', this.#restValues, sum)
  }

  /** A run of the gradient is final in the last piece: what was computed before joins it now. */
  #complete({ start, end }: FloatRange): void {
    const rest = this.#rest?.values.subarray(start, end)
    if (rest === undefined) return
    combine('sum', this.gradient.subarray(start, end), rest)
    rest.fill(0) // not again with the rest
  }

  get #restValues(): Float32Array {
    if (this.#rest === undefined) {
      this.#rest = this.#parts.compute.buffers.lease()
      this.#rest.values.fill(0)
    }
    return this.#rest.values
  }
}

function joined(a: AssignmentResult, b: AssignmentResult): AssignmentResult {
  return {
    blocks: [...a.blocks, ...b.blocks],
    samples: a.samples + b.samples,
    finite: a.finite && b.finite,
    sums: {
      lossSum: a.sums.lossSum + b.sums.lossSum,
      targets: a.sums.targets + b.sums.targets,
      correct: a.sums.correct + b.sums.correct,
    },
  }
}
