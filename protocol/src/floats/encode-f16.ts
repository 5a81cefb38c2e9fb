// IEEE 754 half precision by bit operations: equal bytes on every machine, rounding to nearest, ties to even.
// Above 65504 (from 65520 on) numbers become infinite; NaN stays NaN; the smallest step is 2⁻²⁴.
import { requireBytes, scratchFloats, type Codec, type Movable } from './codec.ts'

const BYTES = 2
/**
 * f32 bit patterns, without sign: infinity; the first that rounds to an infinite half; 2⁻¹⁴, the smallest normal half;
 * 2⁻²⁵.
 */
const INFINITE = 0x7f800000
const OVERFLOWS = 0x477ff000
const SMALLEST_NORMAL = 0x38800000
const HALF_OF_SMALLEST = 0x33000000
/** exponent bias of f32 minus that of f16, as it stands in a half's bits */
const BIAS_DIFFERENCE = (127 - 15) << 10

export function f16Codec(): Codec {
  const scratch = scratchFloats()
  return {
    name: 'f16',
    lossless: false,
    bytes: (count) => BYTES * count,
    encode: encodeF16,
    decode(bytes, count) {
      const into = scratch(count)
      decodeF16(bytes, into)
      return into
    },
  }
}

/** values (n) → bytes (2n), little-endian */
export function encodeF16(values: Movable): Uint8Array {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
  const halves = new Uint16Array(values.length)
  for (let i = 0; i < bits.length; i++) halves[i] = halfOf(bits[i] ?? 0)
  return new Uint8Array(halves.buffer)
}

/**
 * bytes (2n) → into (n)
 * @throws GridError 'message-malformed'
 */
export function decodeF16(bytes: Uint8Array, into: Float32Array): void {
  const { buffer, byteOffset } =
    requireBytes(bytes, BYTES * into.length).byteOffset % BYTES === 0 ? bytes : bytes.slice()
  const halves = new Uint16Array(buffer, byteOffset, into.length)
  floatsOfHalves ??= makeTable()
  const table = floatsOfHalves
  for (let i = 0; i < into.length; i++) into[i] = table[halves[i] ?? 0] ?? 0
}

/** The half that is nearest to the f32 with these bits. */
function halfOf(bits: number): number {
  const sign = (bits >>> 16) & 0x8000
  const size = bits & 0x7fffffff
  if (size > INFINITE) return sign | 0x7e00
  if (size >= OVERFLOWS) return sign | 0x7c00
  if (size >= SMALLEST_NORMAL) return sign | (rounded(size, 13) - BIAS_DIFFERENCE)
  if (size <= HALF_OF_SMALLEST) return sign
  const exponent = size >>> 23
  return sign | rounded((size & 0x7fffff) | 0x800000, 126 - exponent)
}

/** value ÷ 2^shift, to nearest, ties to even. A carry into the exponent is right: the patterns are in order. */
function rounded(value: number, shift: number): number {
  const kept = value >>> shift
  const rest = value & ((1 << shift) - 1)
  const half = 1 << (shift - 1)
  return rest > half || (rest === half && (kept & 1) === 1) ? kept + 1 : kept
}

/** All 65,536 halves as floats, 256 KiB, made when first needed. */
let floatsOfHalves: Float32Array | undefined

function makeTable(): Float32Array {
  const bits = Uint32Array.from({ length: 0x10000 }, (_, half) => floatBitsOf(half))
  return new Float32Array(bits.buffer)
}

function floatBitsOf(half: number): number {
  const sign = (half & 0x8000) << 16
  const exponent = (half >>> 10) & 0x1f
  const fraction = half & 0x3ff
  if (exponent === 0x1f) return (sign | INFINITE | (fraction << 13)) >>> 0
  if (exponent > 0) return (sign | (((half & 0x7fff) + BIAS_DIFFERENCE) << 13)) >>> 0
  if (fraction === 0) return sign >>> 0
  // A subnormal half is fraction · 2⁻²⁴, a normal f32.
  const top = 31 - Math.clz32(fraction)
  return (sign | ((103 + top) << 23) | ((fraction << (23 - top)) & 0x7fffff)) >>> 0
}
