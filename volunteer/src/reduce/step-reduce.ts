// What the reduces of a step have in common, whichever way their frames take (ring-reduce.ts, direct-reduce.ts):
// what they are told, what a member puts in, and which frames fit nowhere. Independent of which member sends to which.
import {
  type Frame,
  type GradientEncoding,
  GridError,
  type Manifest,
  MAX_FRAME_PAYLOAD_BYTES,
} from '@starling-grid/protocol'
import { type Feedback, withResidual } from '../codec/encoding.ts'
import type { RingCodec } from '../codec/ring-codec.ts'
import { allFinite, type FloatRange } from '../floats.ts'
import type { Chunk, WorldRank } from './schedule.ts'

export const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT

export interface StepReduceOptions {
  readonly generation: number
  readonly step: number
  readonly world: WorldRank
  /** floats of the vector, equal on all members */
  readonly length: number
  /** payload bytes of one frame */
  readonly chunkBytes?: number
  /**
   * what members contribute one by one: runs that make up the vector, in any order, equal on all members; absent: even
   * ones
   */
  readonly buckets?: readonly FloatRange[]
  /** how sums travel, equal on all members; absent: f32 */
  readonly encoding?: GradientEncoding
  /** where the sum is built; a new array when absent. Holds no sum until `done` */
  readonly into?: Float32Array
}

/** Frames from other members: how far the reduce is. */
export interface ReduceProgress {
  readonly received: number
  readonly expected: number
}

/** A step's sum when it is whole: equal bytes on all members, and their manifests in the order of their ranks. */
export interface StepSum {
  readonly sum: Float32Array
  readonly manifests: readonly Manifest[]
}

/** The buckets of its contribution that a member has put in, each once. */
export class OwnContribution {
  readonly #buckets: readonly FloatRange[]
  readonly #length: number
  /** nothing is ever lost: residuals have no meaning */
  readonly #lossless: boolean
  readonly #contributed: boolean[]
  #feedback: Feedback | undefined
  #values: Float32Array | undefined

  constructor({
    buckets,
    length,
    lossless,
  }: {
    readonly buckets: readonly FloatRange[]
    readonly length: number
    readonly lossless: boolean
  }) {
    this.#buckets = buckets
    this.#length = length
    this.#lossless = lossless
    this.#contributed = buckets.map(() => false)
  }

  has(bucket: number): boolean {
    return this.#contributed[bucket] === true
  }

  /** Buckets that are not in yet. */
  get left(): number[] {
    return this.#buckets.flatMap((_, bucket) => (this.has(bucket) ? [] : [bucket]))
  }

  /** The gradient, and what was lost of earlier ones; only the buckets that are in. */
  get values(): Float32Array {
    if (this.#values === undefined) throw new Error("internal: no bucket of this member's contribution is in")
    return this.#values
  }

  /** Where what encoding loses of this step is written. */
  get residual(): Float32Array | undefined {
    return this.#feedback?.next
  }

  /** @throws GridError 'gradient-not-finite' */
  put(bucket: number, gradient: Float32Array, feedback: Feedback | undefined): FloatRange {
    const range = this.#buckets[bucket]
    if (range === undefined || this.has(bucket)) throw new Error(`internal: bucket ${bucket} is contributed once`)
    if (gradient.length !== this.#length)
      throw new Error(`internal: the reduce has ${this.#length} floats, the gradient ${gradient.length}`)
    if (!allFinite(gradient, range))
      throw new GridError('gradient-not-finite', 'expected a finite gradient of this member, got NaN or infinity')
    this.#contributed[bucket] = true
    if (!this.#lossless) this.#feedback = feedback
    this.#values = addResidual(gradient, this.#feedback, range)
    return range
  }

  /**
   * A run that was encoded where it was computed: what it lost is kept there. @throws GridError 'gradient-not-finite'
   */
  putEncoded({ start, floats }: Chunk, bytes: Uint8Array, codec: RingCodec): Uint8Array {
    codec.requireFinite(bytes, floats)
    this.residual?.fill(0, start, start + floats)
    return bytes
  }
}

/** Gradient + residual, in the memory where what is lost of it will stand. */
function addResidual(gradient: Float32Array, feedback: Feedback | undefined, { start, end }: FloatRange): Float32Array {
  if (feedback === undefined) return gradient
  withResidual(
    gradient.subarray(start, end),
    feedback.residual.subarray(start, end),
    feedback.next.subarray(start, end),
  )
  return feedback.next
}

export function checkOptions({
  world: { rank: index, size },
  length,
  chunkBytes = FLOAT_BYTES,
  buckets,
  into,
}: StepReduceOptions & { readonly buckets: readonly FloatRange[] }): void {
  if (!(Number.isInteger(index) && index >= 0 && index < size))
    throw new Error(`internal: no member ${index} among ${size}`)
  if (!(chunkBytes > 0 && chunkBytes <= MAX_FRAME_PAYLOAD_BYTES && chunkBytes % FLOAT_BYTES === 0))
    throw new Error(`internal: a chunk is a positive number of whole floats in a frame, got ${chunkBytes} bytes`)
  if (!tiles(buckets, length)) throw new Error(`internal: the buckets do not make up ${length} floats`)
  if (into !== undefined && into.length !== length)
    throw new Error(`internal: the sum has ${length} floats, its array ${into.length}`)
}

function tiles(buckets: readonly FloatRange[], length: number): boolean {
  const inOrder = [...buckets].sort((a, b) => a.start - b.start)
  const isTiled = inOrder.every(
    ({ start, end }, i) => Number.isInteger(end) && end > start && start === (inOrder[i - 1]?.end ?? 0),
  )
  return isTiled && (inOrder.at(-1)?.end ?? 0) === length
}

export function unexpected(message: string): GridError {
  return new GridError('message-unexpected', message)
}

export function malformed(frame: Frame, message: string): GridError {
  return new GridError(
    'message-malformed',
    `${frame.type} frame at bucket ${frame.bucket}, float ${frame.offset}, hop ${frame.hop}: ${message}`,
  )
}
