// Σ gradients of off-ring members (A1), in memory only: the open sum that pushes join, and the sum that a member was
// given. When this process goes, so do they, and their blocks, which are in no record, are done again.
import type { ParameterLayout, PushedGradient } from '@starling-grid/model'
import { addPush, type PushWeights } from '../parameter-server/add-push.ts'
import type { PushNorms } from '../parameter-server/norm-clip.ts'
import { blockSquares, normOf } from '../parameter-server/ranges.ts'

export class OffRingSums {
  readonly #layout: Pick<ParameterLayout, 'total' | 'trained'>
  #open: Float32Array | undefined
  #given: { readonly id: number; readonly sum: Float32Array } | undefined
  /** a push is written here before it is measured or weighed */
  #scratch: Float32Array | undefined

  constructor(layout: Pick<ParameterLayout, 'total' | 'trained'>) {
    this.#layout = layout
  }

  /** Of the means over its targets. */
  normsOf(gradient: PushedGradient, targets: number): PushNorms {
    const vector = this.#written(gradient)
    const { trained } = this.#layout
    const norm = (part: Float32Array): number => normOf([blockSquares(part)]) / Math.max(targets, 1)
    return { gradient: norm(vector.subarray(0, trained)), statistics: norm(vector.subarray(trained)) }
  }

  add(gradient: PushedGradient, weights: PushWeights): void {
    this.#open ??= new Float32Array(this.#layout.total)
    addPush(this.#open, this.#written(gradient), { trained: this.#layout.trained, weights })
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

  #written(gradient: PushedGradient): Float32Array {
    this.#scratch ??= new Float32Array(this.#layout.total)
    gradient.writeTo(this.#scratch)
    return this.#scratch
  }
}
