// Σ gradients of off-ring members (A1), in memory only: the open sum that pushes join, and the sum that a member was
// given. When this process goes, so do they, and their blocks, which are in no record, are done again.
import type { ParameterLayout, PushedGradient } from '@starling-grid/model'
import type { Clock } from '@starling-grid/protocol'
import { addingPush, type PushWeights } from '../parameter-server/add-push.ts'
import { inTurns } from '../turns.ts'

export class OffRingSums {
  readonly #layout: Pick<ParameterLayout, 'total' | 'trained'>
  readonly #clock: Pick<Clock, 'sleep'>
  #open: Float32Array | undefined
  #given: { readonly id: number; readonly sum: Float32Array } | undefined

  constructor(layout: Pick<ParameterLayout, 'total' | 'trained'>, clock: Pick<Clock, 'sleep'>) {
    this.#layout = layout
    this.#clock = clock
  }

  /** Nothing is given or forgotten meanwhile: the outbox of the run awaits each. */
  add(gradient: PushedGradient, weights: PushWeights): Promise<void> {
    const { trained, total } = this.#layout
    this.#open ??= new Float32Array(total)
    return inTurns(addingPush(this.#open, gradient, { trained, weights }), this.#clock)
  }

  give(id: number): void {
    if (this.#open !== undefined) this.#given = { id, sum: this.#open }
    this.#open = undefined
  }

  /** `open`: also pushes that no member was given yet */
  forget(open: boolean): void {
    this.#given = undefined
    if (open) this.#open = undefined
  }

  /** The sum that was given under this number, while it is kept. */
  bytes(id: number): Uint8Array | undefined {
    if (this.#given?.id !== id) return undefined
    const { buffer, byteOffset, byteLength } = this.#given.sum
    return new Uint8Array(buffer, byteOffset, byteLength)
  }
}
