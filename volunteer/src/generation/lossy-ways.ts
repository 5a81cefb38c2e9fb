// What members need beside an encoding that loses something: what it lost so far, and what an executor is asked to
// encode. A generation has one encoding, which the coordinator may have chosen; losses go over from one to the next.
import type { Clock, GradientEncoding } from '@starling-grid/protocol'
import { EncodeRequests } from './encode-requests.ts'
import { Residual } from './residual.ts'

export interface LossyWay {
  readonly residual: Residual
  /** undefined: an executor encodes nothing of it */
  readonly encodes: EncodeRequests | undefined
}

export class LossyWays {
  readonly #length: number
  readonly #clock: Clock
  #last: (LossyWay & { readonly encoding: GradientEncoding }) | undefined

  constructor(length: number, clock: Clock) {
    this.#length = length
    this.#clock = clock
  }

  /** Undefined: nothing is lost. The same for one encoding until another is asked for. */
  of(encoding: GradientEncoding): LossyWay | undefined {
    if (encoding === 'f32') return undefined
    if (this.#last?.encoding === encoding) return this.#last
    const residual = this.#last?.residual ?? new Residual(this.#length)
    const encodes = encoding === 'sparse2' ? undefined : new EncodeRequests(encoding, this.#clock)
    this.#last = { encoding, residual, encodes }
    return this.#last
  }
}
