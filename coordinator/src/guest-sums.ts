// Σ gradients of guests of a ring (A1), in memory only: the open sum that pushes join, and the one that a member was given. When this
// process goes, so do they, and their blocks, which are in no record, are done again.
import type { PushedGradient } from '@starling-grid/model'

export class GuestSums {
  readonly #length: number
  #open: Float32Array | undefined
  #given: { readonly id: number; readonly sum: Float32Array } | undefined
  /** a push is written here before it is scaled */
  #scratch: Float32Array | undefined

  /** floats of a gradient */
  constructor(length: number) {
    this.#length = length
  }

  add(gradient: PushedGradient, factor: number): void {
    this.#scratch ??= new Float32Array(this.#length)
    this.#open ??= new Float32Array(this.#length)
    gradient.writeTo(this.#scratch)
    const [sum, more] = [this.#open, this.#scratch]
    for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] ?? 0) + factor * (more[i] ?? 0)
  }

  give(id: number): void {
    if (this.#open !== undefined) this.#given = { id, sum: this.#open }
    this.#open = undefined
  }

  /** `open`: also what nobody was given yet */
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
}
