// Σ gradients of off-ring members (A1), in memory only: the open sum that pushes join, and the sum that a member was
// given. When this process goes, so do they, and their blocks, which are in no record, are done again.
import type { ParameterLayout, PushedGradient } from '@starling-grid/model'
import type { Clock } from '@starling-grid/protocol'
import { addPush, type PushWeights } from '../parameter-server/add-push.ts'
import type { PushNorms } from '../parameter-server/norm-clip.ts'
import { BLOCK_ELEMENTS, blockSquares, normOf } from '../parameter-server/ranges.ts'
import { inTurns, PIECE_BYTES } from '../turns.ts'

/** Whole blocks, so that a norm has the same bits as in one go. */
const PIECE_ELEMENTS = BLOCK_ELEMENTS * Math.floor(PIECE_BYTES / Float32Array.BYTES_PER_ELEMENT / BLOCK_ELEMENTS)

export class OffRingSums {
  readonly #layout: Pick<ParameterLayout, 'total' | 'trained'>
  readonly #clock: Pick<Clock, 'sleep'>
  #open: Float32Array | undefined
  #given: { readonly id: number; readonly sum: Float32Array } | undefined
  /** a push is written here before it is measured or weighed */
  #scratch: Float32Array | undefined
  /** ends when nothing uses the scratch any more */
  #last: Promise<unknown> = Promise.resolve()

  constructor(layout: Pick<ParameterLayout, 'total' | 'trained'>, clock: Pick<Clock, 'sleep'>) {
    this.#layout = layout
    this.#clock = clock
  }

  /** Of the means over its targets. */
  normsOf(gradient: PushedGradient, targets: number): Promise<PushNorms> {
    const { trained } = this.#layout
    return this.#withScratch(gradient, function* (vector) {
      const sum = yield* squaresOf(vector.subarray(0, trained))
      const statistics = yield* squaresOf(vector.subarray(trained))
      return { gradient: normOf(sum) / Math.max(targets, 1), statistics: normOf(statistics) / Math.max(targets, 1) }
    })
  }

  /** Nothing is given or forgotten meanwhile: the outbox of the run awaits each. */
  add(gradient: PushedGradient, weights: PushWeights): Promise<void> {
    const { trained, total } = this.#layout
    const sum = this.#open ?? new Float32Array(total)
    this.#open = sum
    return this.#withScratch(gradient, function* (vector) {
      for (let start = 0; start < total; start += PIECE_ELEMENTS) {
        const end = start + PIECE_ELEMENTS
        const trainedHere = Math.min(Math.max(trained - start, 0), PIECE_ELEMENTS)
        addPush(sum.subarray(start, end), vector.subarray(start, end), { trained: trainedHere, weights })
        if (end <= total) yield
      }
    })
  }

  give(id: number): void {
    if (this.#open !== undefined) this.#given = { id, sum: this.#open }
    this.#open = undefined
  }

  /** `open`: also pushes that no member was given yet */
  forget(open: boolean): void {
    this.#given = undefined
    this.#scratch = undefined
    if (open) this.#open = undefined
  }

  /** The sum that was given under this number, while it is kept. */
  bytes(id: number): Uint8Array | undefined {
    if (this.#given?.id !== id) return undefined
    const { buffer, byteOffset, byteLength } = this.#given.sum
    return new Uint8Array(buffer, byteOffset, byteLength)
  }

  /** The gradient is written out, then `work` reads it; in pieces, so one push after the other. */
  #withScratch<T>(gradient: PushedGradient, work: (vector: Float32Array) => Iterator<unknown, T>): Promise<T> {
    const done = this.#last.then(async () => {
      const scratch = this.#scratch ?? new Float32Array(this.#layout.total)
      this.#scratch = scratch
      await inTurns(gradient.writing(scratch), this.#clock)
      return inTurns(work(scratch), this.#clock)
    })
    this.#last = done.catch(() => undefined)
    return done
  }
}

/** Σ x² of each block, in pieces. */
function* squaresOf(values: Float32Array): Generator<undefined, Float64Array[]> {
  const squares: Float64Array[] = []
  for (let start = 0; start < values.length; start += PIECE_ELEMENTS) {
    squares.push(blockSquares(values.subarray(start, start + PIECE_ELEMENTS)))
    if (start + PIECE_ELEMENTS <= values.length) yield
  }
  return squares
}
