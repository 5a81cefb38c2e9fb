// Runs of floats as a member of the ring sends them. The residual of the encoding stays with the member and joins its
// next contribution. This is error feedback (Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019). In a ring
// of two or more every member encodes every float of a step exactly once, so one residual a float is enough. Knows
// nothing of hops and frames.
import { type GradientEncoding, GridError } from '@starling-grid/protocol'
import {
  INT8_BLOCK,
  int8Codec,
  scaledF16Codec,
  scratchFloats,
  SPARSE2_CHUNK,
  sparse2Codec,
  type Codec,
} from '@starling-grid/protocol/floats'
import { allFinite } from '../floats.ts'
import { plainCodec } from './numbers.ts'

export class RingCodec {
  readonly #codec: Codec
  /** numbers that are encoded together: frames hold whole ones, but for the last of a segment */
  readonly #together: number
  readonly #scratch = scratchFloats()

  constructor(encoding: GradientEncoding) {
    this.#codec = codecOf(encoding)
    this.#together = TOGETHER[encoding]
  }

  /** nothing is ever lost */
  get lossless(): boolean {
    return this.#codec.lossless
  }

  /** payload bytes of so many floats */
  bytes(floats: number): number {
    return this.#codec.bytes(floats)
  }

  /** The most floats of a chunk whose payload takes no more bytes than this. */
  chunkFloats(bytes: number): number {
    return this.#together * Math.max(1, Math.floor(bytes / this.#codec.bytes(this.#together)))
  }

  /** @throws GridError 'message-malformed' when these are no such floats */
  decode(payload: Uint8Array, into: Float32Array): void {
    into.set(this.#codec.decode(payload, into.length))
  }

  /** Of floats that were encoded elsewhere. @throws GridError 'gradient-not-finite' */
  requireFinite(payload: Uint8Array, floats: number): void {
    const seen = this.#scratch(floats)
    this.decode(payload, seen)
    if (!allFinite(seen)) throw this.#notFinite()
  }

  /**
   * Writes what is lost to `lost`, which may be `values` itself. `keep`: `values` become what others decode. Without an
   * encoding it is a view of `values`, and nothing is lost.
   * @throws GridError 'gradient-not-finite' when the encoding cannot hold them
   */
  encode(values: Float32Array, residual: Float32Array | undefined, keep: boolean): Uint8Array {
    const bytes = this.#codec.encode(values)
    if (this.#codec.lossless) return bytes
    const seen = this.#scratch(values.length)
    this.decode(bytes, seen)
    if (!allFinite(seen)) throw this.#notFinite()
    if (residual !== undefined) for (let i = 0; i < seen.length; i++) residual[i] = (values[i] ?? 0) - (seen[i] ?? 0)
    if (keep) values.set(seen)
    return bytes
  }

  #notFinite(): GridError {
    return new GridError(
      'gradient-not-finite',
      `expected a sum of gradients that ${this.#codec.name} can hold, got NaN, infinity or too large a number`,
    )
  }
}

/** Of halves as of eight bits: kernels encode runs of both in such blocks. */
const TOGETHER: Readonly<Record<GradientEncoding, number>> = {
  f32: 1,
  f16: INT8_BLOCK,
  int8: INT8_BLOCK,
  sparse2: SPARSE2_CHUNK,
}

function codecOf(encoding: GradientEncoding): Codec {
  switch (encoding) {
    case 'f32':
      return plainCodec(new Float32Array(0))
    case 'f16':
      return scaledF16Codec() // sums over a batch may be beyond 65504
    case 'int8':
      return int8Codec()
    case 'sparse2':
      return sparse2Codec()
    default:
      return encoding satisfies never
  }
}
