// How floats travel in fewer bytes: the interface of codecs that work chunk by chunk. Everyone decodes the same bytes
// to the same numbers: decoders use only operations that IEEE 754 fixes. Independent of what the numbers are.
import { GridError } from '../errors.ts'

/** What can be moved. */
export type Movable = Float32Array | Int32Array | Uint8Array

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
  /** Where most numbers are zero: the others alone, of `count`. Valid and refused as those of `decode`. */
  kept?(bytes: Uint8Array, count: number): KeptNumbers
}

/** The numbers of a vector that are not left out as zeros. */
export interface KeptNumbers {
  /** rising */
  readonly places: Uint32Array
  /** one for each place */
  readonly values: Float32Array
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
