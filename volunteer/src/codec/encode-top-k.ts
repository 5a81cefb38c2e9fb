// Only the k numbers of largest magnitude travel, with their places; what stays behind belongs into the residual.
// Layout: k places (u32, rising), then k numbers (f32).
import { GridError } from '@starling-grid/protocol'
import { placesOfLargest, requireBytes } from '@starling-grid/protocol/floats'

const BYTES = 8

/** How many of `length` numbers a share of them is: at least one. */
export function topKCount(length: number, fraction: number): number {
  return Math.min(length, Math.max(1, Math.round(length * fraction)))
}

/** values (n) → bytes (8k) */
export function encodeTopK(values: Float32Array, k: number): Uint8Array {
  const places = placesOfLargest(values, k)
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
