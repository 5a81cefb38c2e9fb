// Half precision for numbers of any size, such as sums over many samples. A run shares one power of two, which brings
// its largest number near the largest half. Layout: the power (f32), then the halves. Multiplying by it is exact.
import { GridError } from '../errors.ts'
import { largestIn, requireBytes, scratchFloats, type Codec, type Movable } from './codec.ts'
import { decodeF16, encodeF16 } from './encode-f16.ts'

const SCALE_BYTES = 4
const HALF_BYTES = 2
/** The largest number of a run comes to lie below 2 to this; halves reach to 65504. */
const TOP_EXPONENT = 15
/** Of the smallest normal f32: a smaller power would lose bits itself. */
const LEAST_EXPONENT = -126

export function scaledF16Codec(): Codec {
  const [scaled, scratch] = [scratchFloats(), scratchFloats()]
  return {
    name: 'scaled-f16',
    lossless: false,
    bytes: (count) => SCALE_BYTES + HALF_BYTES * count,
    encode(values) {
      const scale = scaleOf(values)
      const into = scaled(values.length)
      for (let i = 0; i < into.length; i++) into[i] = (values[i] ?? 0) / scale
      const bytes = new Uint8Array(SCALE_BYTES + HALF_BYTES * values.length)
      new DataView(bytes.buffer).setFloat32(0, scale, true)
      bytes.set(encodeF16(into), SCALE_BYTES)
      return bytes
    },
    decode(bytes, count) {
      const { buffer, byteOffset } = requireBytes(bytes, SCALE_BYTES + HALF_BYTES * count)
      const scale = new DataView(buffer, byteOffset).getFloat32(0, true)
      if (!(scale > 0 && scale < Infinity))
        throw new GridError('message-malformed', `expected a positive finite scale of a run, got ${scale}`)
      const into = scratch(count)
      decodeF16(bytes.subarray(SCALE_BYTES), into)
      for (let i = 0; i < count; i++) into[i] = (into[i] ?? 0) * scale
      return into
    },
  }
}

/** 1 for zeros, and for what is not finite: that shows in the halves. */
function scaleOf(values: Movable): number {
  const largest = largestIn(values, 0, values.length)
  if (!(largest > 0 && largest < Infinity)) return 1
  return 2 ** Math.max(LEAST_EXPONENT, exponentOf(largest) + 1 - TOP_EXPONENT)
}

/** ⌊log₂ value⌋ of a normal f32, from its bits: a logarithm need not be exact. */
function exponentOf(value: number): number {
  bits.setFloat32(0, value)
  return (bits.getUint32(0) >>> 23) - 127
}

const bits = new DataView(new ArrayBuffer(SCALE_BYTES))
