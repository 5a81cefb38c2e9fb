// Eight bits a number: blocks of 256 share one f32 scale, the largest magnitude ÷ 127, which makes 1.016 bytes of 4.
// A block with NaN or infinity decodes to NaN as a whole. Layout: all scales, then all numbers.
import { GridError } from '../errors.ts'
import { largestIn, requireBytes, scratchFloats, type Codec, type Movable } from './codec.ts'

/** numbers that share a scale: fewer are more exact, more are smaller */
export const INT8_BLOCK = 256
const SCALE_BYTES = 4
const LARGEST = 127

/**
 * `nearest` (ties away from zero) has the smaller error; `stochastic` is right on average, from the given 32 random
 * bits a number. Only the encoder rounds: members need not agree on it.
 */
export type Rounding = { readonly type: 'nearest' } | { readonly type: 'stochastic'; readonly random: () => number }

export function int8Codec(rounding: Rounding = { type: 'nearest' }): Codec {
  const scratch = scratchFloats()
  return {
    name: 'int8',
    lossless: false,
    bytes: int8Bytes,
    encode: (values) => encodeInt8(values, rounding),
    decode(bytes, count) {
      const into = scratch(count)
      decodeInt8(bytes, into)
      return into
    },
  }
}

function int8Bytes(count: number): number {
  return SCALE_BYTES * Math.ceil(count / INT8_BLOCK) + count
}

/** values (n) → scales (⌈n/256⌉) f32, then n bytes */
export function encodeInt8(values: Movable, rounding: Rounding): Uint8Array {
  const bytes = new Uint8Array(int8Bytes(values.length))
  const scales = new Float32Array(bytes.buffer, 0, Math.ceil(values.length / INT8_BLOCK))
  const codes = new Int8Array(bytes.buffer, scales.byteLength)
  for (let block = 0; block < scales.length; block++) {
    const from = block * INT8_BLOCK
    const end = Math.min(from + INT8_BLOCK, values.length)
    scales[block] = scaleOf(values, from, end)
    encodeBlock({ values, from, end, scale: scales[block] ?? 0 }, codes, rounding)
  }
  return bytes
}

/**
 * bytes → into (n): code · scale, rounded once to f32
 * @throws GridError 'message-malformed'
 */
export function decodeInt8(bytes: Uint8Array, into: Float32Array): void {
  const { buffer, byteOffset } =
    requireBytes(bytes, int8Bytes(into.length)).byteOffset % SCALE_BYTES === 0 ? bytes : bytes.slice()
  const scales = new Float32Array(buffer, byteOffset, Math.ceil(into.length / INT8_BLOCK))
  const codes = new Int8Array(buffer, byteOffset + scales.byteLength, into.length)
  for (let block = 0; block < scales.length; block++) {
    const scale = scales[block] ?? 0
    if (scale < 0 || scale === Infinity)
      throw new GridError('message-malformed', `expected a positive scale of a block or NaN, got ${scale}`)
    for (let i = block * INT8_BLOCK, end = Math.min(i + INT8_BLOCK, into.length); i < end; i++) {
      const code = codes[i] ?? 0
      if (code < -LARGEST)
        throw new GridError('message-malformed', `expected a code from -${LARGEST} to ${LARGEST}, got ${code}`)
      into[i] = code * scale
    }
  }
}

/** NaN when the block holds what is not finite. */
function scaleOf(values: Movable, from: number, end: number): number {
  const largest = largestIn(values, from, end)
  return largest === Infinity ? NaN : largest / LARGEST
}

interface Block {
  readonly values: Movable
  readonly from: number
  readonly end: number
  readonly scale: number
}

function encodeBlock({ values, from, end, scale }: Block, codes: Int8Array, rounding: Rounding): void {
  if (!(scale > 0)) return // all zeros, or NaN times zero
  if (rounding.type === 'nearest')
    for (let i = from; i < end; i++) {
      const exact = (values[i] ?? 0) / scale // storing cuts off what is behind the point
      codes[i] = exact < 0 ? Math.max(-LARGEST, exact - 0.5) : Math.min(LARGEST, exact + 0.5)
    }
  else
    for (let i = from; i < end; i++)
      codes[i] = Math.max(
        -LARGEST,
        Math.min(LARGEST, Math.floor((values[i] ?? 0) / scale + rounding.random() / 2 ** 32)),
      )
}
