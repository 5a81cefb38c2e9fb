// A vector in fewer bytes, as rounds of replica groups push differences and pull versions: runs of numbers, one after
// the other, each encoded on its own. What an encoding loses stays with the member and joins its next push (error
// feedback: Seide et al., 2014; Karimireddy et al., 2019).
import { type GradientEncoding, GridError } from '@starling-grid/protocol'
import { type Codec, int8Codec, type Movable, scaledF16Codec, sparse2Codec } from '@starling-grid/protocol/floats'
import type { GradientRun } from './gradient-runs.ts'

export type LossyEncoding = Exclude<GradientEncoding, 'f32'>

/** Numbers of a run: whole scales of eight bits, whole sparse chunks, and less than a millisecond of work. */
const RUN = 64 * 1024
/** Encoded numbers that travel in one message to who decodes them elsewhere. */
export const MAX_PART_NUMBERS = 4 * RUN

const CODECS: Readonly<Record<LossyEncoding, () => Codec>> = {
  f16: scaledF16Codec,
  int8: int8Codec,
  sparse2: sparse2Codec,
}

/** Of `length` numbers. */
export function encodedVectorBytes(length: number, encoding: LossyEncoding): number {
  const codec = CODECS[encoding]()
  return Math.floor(length / RUN) * codec.bytes(RUN) + (length % RUN === 0 ? 0 : codec.bytes(length % RUN))
}

/** values (n) → bytes, in pieces; `lost` (n) becomes values − what is decoded. */
export function* encodingVector(
  values: Float32Array,
  encoding: LossyEncoding,
  lost?: Float32Array,
): Generator<undefined, Uint8Array<ArrayBuffer>> {
  const codec = CODECS[encoding]()
  const bytes = new Uint8Array(encodedVectorBytes(values.length, encoding))
  let at = 0
  for (let start = 0; start < values.length; start += RUN) {
    const run = values.subarray(start, start + RUN)
    const encoded = codec.encode(run)
    bytes.set(encoded, at)
    at += encoded.byteLength
    if (lost !== undefined) {
      const seen = codec.decode(encoded, run.length)
      for (let i = 0; i < run.length; i++) lost[start + i] = (run[i] ?? 0) - (seen[i] ?? 0)
    }
    yield
  }
  return bytes
}

/** All at once. */
export function encodeVector(
  values: Float32Array,
  encoding: LossyEncoding,
  lost?: Float32Array,
): Uint8Array<ArrayBuffer> {
  return completed(encodingVector(values, encoding, lost))
}

/**
 * bytes → into (n), in pieces between which the caller may do other work.
 * @throws GridError 'gradient-shape', 'message-malformed'
 */
export function* decodingVector(
  bytes: Uint8Array,
  encoding: LossyEncoding,
  into: Float32Array,
): Generator<undefined, void> {
  const codec = CODECS[encoding]()
  requireLength(bytes, encodedVectorBytes(into.length, encoding))
  let at = 0
  for (let start = 0; start < into.length; start += RUN) {
    const count = Math.min(RUN, into.length - start)
    const length = codec.bytes(count)
    into.set(codec.decode(bytes.subarray(at, at + length), count), start)
    at += length
    yield
  }
}

/**
 * The numbers of an encoded vector, run by run: of sparse ones only those that travel.
 * @throws GridError 'gradient-shape', 'message-malformed'
 */
export function* decodedRuns({ bytes, encoding, length }: EncodedVector): Generator<GradientRun> {
  const codec = CODECS[encoding]()
  requireLength(bytes, encodedVectorBytes(length, encoding))
  let at = 0
  for (let start = 0; start < length; start += RUN) {
    const count = Math.min(RUN, length - start)
    const encoded = bytes.subarray(at, at + codec.bytes(count))
    at += encoded.byteLength
    const numbers = codec.kept?.(encoded, count) ?? { values: asFloats(codec.decode(encoded, count)) }
    yield { start, length: count, ...numbers }
  }
}

function asFloats(values: Movable): Float32Array {
  return values instanceof Float32Array ? values : Float32Array.from(values)
}

function requireLength({ byteLength }: Uint8Array, expected: number): void {
  if (byteLength !== expected)
    throw new GridError('gradient-shape', `expected a body of ${expected} bytes, got ${byteLength}`)
}

export interface EncodedVector {
  readonly bytes: Uint8Array
  readonly encoding: LossyEncoding
  /** numbers */
  readonly length: number
}

/** Whole runs of an encoded vector, and which of its numbers they are for. */
export interface EncodedPart extends EncodedVector {
  /** numbers of the first run that are not meant */
  readonly skip: number
  /** where those that are meant begin in the vector, and how many they are */
  readonly start: number
  readonly count: number
}

/** The numbers from `start` to `end`, in parts that fit a message each; nothing is decoded or copied. */
export function* encodedParts(
  { bytes, encoding, length }: EncodedVector,
  { start, end }: { readonly start: number; readonly end: number },
): Generator<EncodedPart> {
  for (let from = start; from < end;) {
    const first = from - (from % RUN)
    const last = Math.min(first + MAX_PART_NUMBERS, RUN * Math.ceil(end / RUN), length)
    const to = Math.min(last, end)
    const part = bytes.subarray(encodedVectorBytes(first, encoding), encodedVectorBytes(last, encoding))
    yield { bytes: part, encoding, length: last - first, skip: from - first, start: from, count: to - from }
    from = to
  }
}

/** All at once. @throws GridError as decodingVector */
export function decodeVector(bytes: Uint8Array, encoding: LossyEncoding, into: Float32Array): void {
  completed(decodingVector(bytes, encoding, into))
}

/** In one go what may be done in pieces. */
export function completed<T>(work: Iterator<unknown, T>): T {
  for (;;) {
    const piece = work.next()
    if (piece.done === true) return piece.value
  }
}
