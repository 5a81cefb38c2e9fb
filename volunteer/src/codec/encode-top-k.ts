// Only the k numbers of largest magnitude travel, with their places; what stays behind belongs into the residual.
// Layout: k places (u32, rising), then k numbers (f32). NaN counts as the largest, so that it is not hidden.
import { GridError } from '@starling-grid/protocol'
import { requireBytes } from '@starling-grid/protocol/floats'

const BYTES = 8
const SIZE_MASK = 0x7fffffff
const HALF_BITS = 16
const HALVES = 1 << HALF_BITS

/** How many of `length` numbers a share of them is: at least one. */
export function topKCount(length: number, fraction: number): number {
  return Math.min(length, Math.max(1, Math.round(length * fraction)))
}

/** values (n) → bytes (8k) */
export function encodeTopK(values: Float32Array, k: number): Uint8Array {
  const places = new Uint32Array(k)
  const sizes = new Uint32Array(values.buffer, values.byteOffset, values.length)
  const { least, ties } = kthLargest(sizes, k)
  let found = 0
  let tiesLeft = ties
  for (let i = 0; i < sizes.length && found < k; i++) {
    const size = (sizes[i] ?? 0) & SIZE_MASK
    if (size < least || (size === least && tiesLeft-- <= 0)) continue
    places[found++] = i
  }
  const bytes = new Uint8Array(BYTES * k)
  bytes.set(new Uint8Array(places.buffer))
  new Float32Array(bytes.buffer, 4 * k).set(Float32Array.from(places, (place) => values[place] ?? 0))
  return bytes
}

/**
 * Adds what the bytes hold to `into`.
 * @throws GridError 'message-malformed'
 */
export function addTopK(bytes: Uint8Array, into: Float32Array, k: number): void {
  const { buffer, byteOffset } = requireBytes(bytes, BYTES * k).byteOffset % 4 === 0 ? bytes : bytes.slice()
  const places = new Uint32Array(buffer, byteOffset, k)
  const values = new Float32Array(buffer, byteOffset + 4 * k, k)
  let last = -1
  for (let i = 0; i < k; i++) {
    const place = places[i] ?? 0
    if (place <= last || place >= into.length)
      throw new GridError(
        'message-malformed',
        `expected ascending indices below ${into.length}, got ${place} after ${last}`,
      )
    into[place] = (into[place] ?? 0) + (values[i] ?? 0)
    last = place
  }
}

/**
 * The k-th largest magnitude as bits, and how many numbers of exactly this magnitude are among the k. Bits of positive
 * floats are in the order of the floats, so two counts of 16 bits each find it without sorting.
 */
function kthLargest(bits: Uint32Array, k: number): { readonly least: number; readonly ties: number } {
  const high = countFromTop(bits, k, (size) => size >>> HALF_BITS)
  const low = countFromTop(bits, high.left, (size) => (size >>> HALF_BITS === high.bucket ? size & (HALVES - 1) : -1))
  return { least: high.bucket * HALVES + low.bucket, ties: low.left }
}

/** The bucket that the k-th number from the top is in, and its place in there. */
function countFromTop(
  bits: Uint32Array,
  k: number,
  bucketOf: (size: number) => number,
): { readonly bucket: number; readonly left: number } {
  const counts = new Uint32Array(HALVES)
  for (let i = 0; i < bits.length; i++) {
    const bucket = bucketOf((bits[i] ?? 0) & SIZE_MASK)
    if (bucket >= 0) counts[bucket] = (counts[bucket] ?? 0) + 1
  }
  let left = k
  let bucket = HALVES - 1
  while (bucket > 0 && left > (counts[bucket] ?? 0)) left -= counts[bucket--] ?? 0
  return { bucket, left }
}
