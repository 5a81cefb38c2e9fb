// The body of a push as it comes, encoded or not: what only who adds pushes up needs.
import { GridError } from '@starling-grid/protocol'
import { completed, decodingVector, encodedParts, type EncodedVector, MAX_PART_NUMBERS } from './encoded-vector.ts'
import { type GradientForm, type PushedGradient, readingGradient, requireFinite } from './gradient-body.ts'

/** All at once. @throws GridError as readingPush */
export function readPush(body: Uint8Array, form: GradientForm): PushedGradient {
  return completed(readingPush(body, form))
}

/**
 * In pieces, between which the caller may do other work; nothing of the model's size is allocated.
 * @throws GridError 'gradient-shape', 'gradient-not-finite', 'message-malformed'
 */
export function* readingPush(body: Uint8Array, form: GradientForm): Generator<undefined, PushedGradient> {
  const { encoding, pieces } = form
  if (encoding === undefined) return yield* readingGradient(body, form)
  return yield* readingEncoded({ bytes: body, encoding, length: pieces[0]?.length ?? 0 }, form)
}

/** Decoded anew each time: kept is what came, which is a fraction of the vector. */
function* readingEncoded(encoded: EncodedVector, form: GradientForm): Generator<undefined, PushedGradient> {
  const { bytes, encoding, length } = encoded
  if (bytes.byteLength !== form.bytes)
    throw new GridError('gradient-shape', `expected a body of ${form.bytes} bytes, got ${bytes.byteLength}`)
  const room = new Float32Array(Math.min(MAX_PART_NUMBERS, length))
  for (const part of encodedParts(encoded, { start: 0, end: length })) {
    const numbers = room.subarray(0, part.length)
    yield* decodingVector(part.bytes, encoding, numbers)
    requireFinite(numbers)
  }
  const writing = (vector: Float32Array): Generator<undefined, void> => decodingVector(bytes, encoding, vector)
  return { encoded, writing, writeTo: (vector) => completed(writing(vector)) }
}
