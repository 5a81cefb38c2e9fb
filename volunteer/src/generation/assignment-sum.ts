// Σ gradients of one member's assignment of one step: pieces that were computed one after the other, and what off-ring
// members computed. Its memory is leased for this assignment alone (gradient-buffers.ts): the computation writes it,
// then the exchange reads it, until the step is over.
import type { BlockId } from '@starling-grid/protocol'
import type { Compute, Computed } from '../compute.ts'
import type { FloatRange } from '../floats.ts'
import type { GradientLease } from '../gradient-buffers.ts'
import type { Batch, BatchSums, EarlyRanges } from '../graph/executor.ts'
import type { OffRingShare } from '../member/member-state.ts'

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

export class AssignmentSum {
  readonly #compute: Compute
  readonly #lease: GradientLease
  /**
   * Σ gradients of earlier pieces and of off-ring members, as far as they are not in `gradient` yet; leased when first
   * needed
   */
  #rest: GradientLease | undefined
  #result = NOTHING
  #offRing: OffRingShare | undefined

  constructor(compute: Compute) {
    this.#compute = compute
    this.#lease = compute.buffers.lease()
  }

  /** (parameterCount,) */
  get gradient(): Float32Array {
    return this.#lease.values
  }

  get isOver(): boolean {
    return this.#lease.isOver
  }

  get isEmpty(): boolean {
    return this.#result.blocks.length === 0
  }

  /** R3: nothing that is still being computed for this assignment counts. */
  end(): void {
    this.#lease.end()
    this.#rest?.end()
  }

  /** Computes a piece and adds it. Undefined: the assignment is over. */
  async add({ blocks, batch }: Piece, early?: EarlyRanges): Promise<Computed | undefined> {
    if (!this.isEmpty) addTo(this.#restValues, this.gradient) // the executor overwrites the gradient
    const computed = await this.#compute.heldGradient(this.#lease, batch, early)
    if (computed !== undefined) this.#result = joined(this.#result, { blocks, samples: batch.samples, ...computed })
    return computed
  }

  /** A1: when the assignment is sealed. */
  addOffRing(offRing: OffRingShare, sum: Float32Array): void {
    if (this.#offRing !== undefined) throw new Error('internal: an assignment has one sum of off-ring members')
    this.#offRing = offRing
    addTo(this.#restValues, sum)
  }

  /** A run of the gradient is final in the last piece: what was computed before joins it now. */
  complete(range: FloatRange): void {
    const rest = this.#rest?.values
    if (rest === undefined) return
    addTo(this.gradient, rest, range)
    rest.fill(0, range.start, range.end) // not again with the rest
  }

  /** The whole assignment. It names the blocks of off-ring members if their sum is in it, and only then. */
  finish(): AssignmentResult {
    const offRing = this.#offRing
    if (this.isEmpty) this.gradient.fill(0)
    this.complete({ start: 0, end: this.gradient.length })
    if (offRing === undefined) return this.#result
    const { blocks, samples, targets, lossSum, correct } = offRing
    return joined(this.#result, { blocks, samples, finite: true, sums: { lossSum, targets, correct } })
  }

  get #restValues(): Float32Array {
    if (this.#rest === undefined) {
      this.#rest = this.#compute.buffers.lease()
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

function addTo(
  sum: Float32Array,
  more: Float32Array,
  { start, end }: FloatRange = { start: 0, end: sum.length },
): void {
  for (let i = start; i < end; i++) sum[i] = (sum[i] ?? 0) + (more[i] ?? 0)
}
