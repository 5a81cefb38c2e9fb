// Sparse, two bits a number: of each chunk of 4096 numbers the 256 of largest magnitude travel, as a sign and one of
// two magnitudes. The others are zero, so what is lost has to join the next vector (error feedback). For differences of
// many steps: chunk-wise top-k and 2-bit codes as in SparseLoCo (Sarfi et al., 2025). A chunk takes 264 bytes of 16 kB.
//
// Layout of a chunk of n numbers, of which k travel: two magnitudes (f32, the smaller first), then bits, the lowest
// first. The places are an Elias–Fano sequence: the low bits of each place, then for each the unary difference of its
// high bits to those of the place before. Then two bits a number: its sign, and 1 for the larger magnitude. The number
// of bits follows from n alone.
import { GridError } from '../errors.ts'
import { requireBytes, scratchFloats, type Codec, type KeptNumbers, type Movable } from './codec.ts'
import { placesOfLargest } from './kth-largest.ts'

/** numbers that share two magnitudes, and among which the largest are chosen */
export const SPARSE2_CHUNK = 4096
/**
 * One number of so many travels. The paper's 1 to 3 % are for thousands of rounds. After 35 rounds of an MLP on
 * digits 3 % left the loss 8 % above that of 6 %.
 */
const ONE_OF = 16
const MAGNITUDE_BYTES = 4
const CODE_BITS = 2
/** of a chunk, behind its magnitudes */
const FIRST_BIT = 8 * 2 * MAGNITUDE_BYTES

export function sparse2Codec(): Codec {
  const scratch = scratchFloats()
  return {
    name: 'sparse2',
    lossless: false,
    bytes: sparse2Bytes,
    encode: encodeSparse2,
    decode(bytes, count) {
      const into = scratch(count)
      decodeSparse2(bytes, into)
      return into
    },
    kept: keptOf,
  }
}

interface ChunkForm {
  /** numbers that travel */
  readonly kept: number
  /** of each place, as they are */
  readonly lowBits: number
  /** of all differences of high bits: a one for each place, a zero for each step */
  readonly highBits: number
  readonly bytes: number
}

/** `count`: 1 to SPARSE2_CHUNK. */
function chunkForm(count: number): ChunkForm {
  const kept = Math.ceil(count / ONE_OF)
  const lowBits = 31 - Math.clz32(count / kept)
  const highBits = kept + ((count - 1) >> lowBits)
  const bits = kept * (lowBits + CODE_BITS) + highBits
  return { kept, lowBits, highBits, bytes: 2 * MAGNITUDE_BYTES + Math.ceil(bits / 8) }
}

const WHOLE = chunkForm(SPARSE2_CHUNK)

function formOf(count: number): ChunkForm {
  return count === SPARSE2_CHUNK ? WHOLE : chunkForm(count)
}

function sparse2Bytes(count: number): number {
  const rest = count % SPARSE2_CHUNK
  return Math.floor(count / SPARSE2_CHUNK) * WHOLE.bytes + (rest === 0 ? 0 : chunkForm(rest).bytes)
}

/** values (n) → chunks, one after the other. A chunk with NaN or infinity decodes to NaN where it is kept. */
export function encodeSparse2(values: Movable): Uint8Array {
  const bytes = new Uint8Array(sparse2Bytes(values.length))
  const floats = values instanceof Float32Array ? values : Float32Array.from(values)
  let at = 0
  for (let start = 0; start < floats.length; start += SPARSE2_CHUNK) {
    const chunk = floats.subarray(start, start + SPARSE2_CHUNK)
    const form = formOf(chunk.length)
    encodeChunk(chunk, form, bytes.subarray(at, at + form.bytes))
    at += form.bytes
  }
  return bytes
}

function encodeChunk(values: Float32Array, { kept, lowBits, highBits }: ChunkForm, into: Uint8Array): void {
  const places = placesOfLargest(values, kept)
  const chosen = Float32Array.from(places, (place) => values[place] ?? 0)
  const { small, large } = magnitudesOf(chosen)
  const view = new DataView(into.buffer, into.byteOffset)
  view.setFloat32(0, small, true)
  view.setFloat32(MAGNITUDE_BYTES, large, true)
  const bits = into.subarray(2 * MAGNITUDE_BYTES)
  const [highAt, codesAt] = [kept * lowBits, kept * lowBits + highBits]
  for (let i = 0; i < kept; i++) {
    const [place, value] = [places[i] ?? 0, chosen[i] ?? 0]
    writeBits(bits, { at: i * lowBits, count: lowBits }, place & ((1 << lowBits) - 1))
    writeBits(bits, { at: highAt + (place >> lowBits) + i, count: 1 }, 1)
    const code = Number(value < 0) + 2 * Number(isLarge(Math.abs(value), small, large))
    writeBits(bits, { at: codesAt + CODE_BITS * i, count: CODE_BITS }, code)
  }
}

/** Whether the larger of the two is nearer. */
function isLarge(size: number, small: number, large: number): boolean {
  return large - size < size - small
}

interface Magnitudes {
  readonly small: number
  readonly large: number
}

/**
 * The means of those below and above the mean of all: a step of Lloyd's. Where zeros had to be chosen, too, they stay
 * zeros. NaN when one number is none or infinite.
 */
function magnitudesOf(chosen: Float32Array): Magnitudes {
  const all = meanOf(chosen, 0, Number.POSITIVE_INFINITY)
  if (!(all < Number.POSITIVE_INFINITY)) return { small: Number.NaN, large: Number.NaN }
  if (chosen.includes(0)) return { small: 0, large: Math.fround(all) }
  const small = Math.fround(meanOf(chosen, 0, all))
  return { small, large: Math.max(small, Math.fround(meanOf(chosen, all, Number.POSITIVE_INFINITY))) }
}

/** Of magnitudes above `least` and up to `most`; 0 of none. NaN when one of all is NaN. */
function meanOf(chosen: Float32Array, least: number, most: number): number {
  let [sum, count] = [0, 0]
  for (let i = 0; i < chosen.length; i++) {
    const size = Math.abs(chosen[i] ?? 0)
    if (size <= least || size > most) continue
    sum += size
    count++
  }
  return count === 0 ? 0 : sum / count
}

/**
 * bytes → into (n)
 * @throws GridError 'message-malformed'
 */
export function decodeSparse2(bytes: Uint8Array, into: Float32Array): void {
  const { places, values } = keptOf(bytes, into.length)
  into.fill(0)
  for (let i = 0; i < places.length; i++) into[places[i] ?? 0] = values[i] ?? 0
}

/** bytes → the numbers of `count` that travel. @throws GridError 'message-malformed' */
function keptOf(bytes: Uint8Array, count: number): KeptNumbers {
  requireBytes(bytes, sparse2Bytes(count))
  const kept = Math.ceil(count / ONE_OF) // whole chunks keep a whole number each
  const all = { places: new Uint32Array(kept), values: new Float32Array(kept) }
  let at = 0
  for (let start = 0; start < count; start += SPARSE2_CHUNK) {
    const length = Math.min(SPARSE2_CHUNK, count - start)
    const form = formOf(length)
    decodeChunk(bytes.subarray(at, at + form.bytes), { ...form, start, length }, all)
    at += form.bytes
  }
  return all
}

interface PlacedChunk extends ChunkForm {
  /** its first number */
  readonly start: number
  readonly length: number
}

function decodeChunk(
  bytes: Uint8Array,
  { kept, lowBits, highBits, start, length }: PlacedChunk,
  { places, values }: KeptNumbers,
): void {
  const first = start / ONE_OF
  const { small, large } = readMagnitudes(bytes)
  const sizes = [small, -small, large, -large]
  const codesAt = FIRST_BIT + kept * lowBits + highBits
  readHighBits(bytes, { at: FIRST_BIT + kept * lowBits, count: highBits }, places.subarray(first, first + kept))
  let last = -1
  for (let i = 0; i < kept; i++) {
    const place = ((places[first + i] ?? 0) << lowBits) | readBits(bytes, FIRST_BIT + i * lowBits, lowBits)
    if (place <= last || place >= length) throw malformed(`rising places below ${length}`, `${place} after ${last}`)
    places[first + i] = start + place
    values[first + i] = sizes[readBits(bytes, codesAt + CODE_BITS * i, CODE_BITS)] ?? 0
    last = place
  }
  const end = codesAt + CODE_BITS * kept
  if (readBits(bytes, end, 8 * bytes.length - end) !== 0) throw malformed('zeros behind the last code', 'ones')
}

/** Of each place. @throws GridError 'message-malformed' */
function readHighBits(bytes: Uint8Array, { at, count }: BitRange, into: Uint32Array): void {
  let number = 0
  for (let bit = 0; bit < count; bit += 8)
    for (let ones = readBits(bytes, at + bit, Math.min(8, count - bit)); ones !== 0; ones &= ones - 1) {
      into[number] = bit + 31 - Math.clz32(ones & -ones) - number // what is one too many has no element
      number++
    }
  if (number !== into.length) throw malformed(`${into.length} places of a chunk`, String(number))
}

function readMagnitudes(bytes: Uint8Array): Magnitudes {
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  const [small, large] = [view.getFloat32(0, true), view.getFloat32(MAGNITUDE_BYTES, true)]
  const isInOrder = 0 <= small && small <= large && large < Number.POSITIVE_INFINITY
  if (!isInOrder && !(Number.isNaN(small) && Number.isNaN(large)))
    throw malformed('two magnitudes of a chunk, the smaller first, or NaN', `${small} and ${large}`)
  return { small, large }
}

function malformed(expected: string, got: string): GridError {
  return new GridError('message-malformed', `expected ${expected}, got ${got}`)
}

/** `count`: up to 12 where they are one number, so that it is within three bytes. */
interface BitRange {
  readonly at: number
  readonly count: number
}

/** Into zeros. */
function writeBits(bytes: Uint8Array, { at, count }: BitRange, value: number): void {
  const shifted = value << (at & 7)
  for (let byte = at >> 3, bit = 0; bit < (at & 7) + count; byte++, bit += 8)
    bytes[byte] = (bytes[byte] ?? 0) | ((shifted >>> bit) & 0xff)
}

function readBits(bytes: Uint8Array, at: number, count: number): number {
  const byte = at >> 3
  const three = (bytes[byte] ?? 0) | ((bytes[byte + 1] ?? 0) << 8) | ((bytes[byte + 2] ?? 0) << 16)
  return (three >>> (at & 7)) & ((1 << count) - 1)
}
