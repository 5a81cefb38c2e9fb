// How numbers look on the wire: the interface of the codecs that work chunk by chunk, and the plain one. Every member
// decodes the same bytes to the same numbers: decoders use only operations that IEEE 754 fixes.
import { GridError } from '@starling-grid/protocol'
import { bytesOf, kindOf, numbersIn, type Movable } from './numbers.ts'

export interface Codec {
  /** with its settings: members that differ in it would misread each other */
  readonly name: string
  /** decoding gives back what was encoded */
  readonly lossless: boolean
  /** bytes of `count` encoded numbers, whatever they are */
  bytes(count: number): number
  /** May be a view of `values`. */
  encode(values: Movable): Uint8Array
  /**
   * Valid until the next call.
   * @throws GridError 'message-malformed' when these are no `count` encoded numbers
   */
  decode(bytes: Uint8Array, count: number): Movable
}

/** Numbers as they are. */
export function plainCodec(values: Movable): Codec {
  const kind = kindOf(values)
  const width = values.BYTES_PER_ELEMENT
  return {
    name: kind,
    lossless: true,
    bytes: (count) => width * count,
    encode: bytesOf,
    decode: (bytes, count) => numbersIn(kind, requireBytes(bytes, width * count)),
  }
}

/** @throws GridError 'message-malformed' */
export function requireBytes(bytes: Uint8Array, expected: number): Uint8Array {
  if (bytes.byteLength !== expected)
    throw new GridError('message-malformed', `expected ${expected} encoded bytes, got ${bytes.byteLength}`)
  return bytes
}

/** The largest magnitude from `start` up to `end`; NaN when one of them is. */
export function largestIn(values: Movable, start: number, end: number): number {
  let largest = 0
  for (let i = start; i < end; i++) {
    const size = Math.abs(values[i] ?? 0)
    if (!(size <= largest)) largest = size
    if (largest !== largest) break
  }
  return largest
}

/** An array that is made once per size and used again: decoders fill it chunk after chunk. */
export function scratchFloats(): (count: number) => Float32Array {
  let scratch = new Float32Array(0)
  return (count) => {
    if (scratch.length < count) scratch = new Float32Array(count)
    return scratch.subarray(0, count)
  }
}
