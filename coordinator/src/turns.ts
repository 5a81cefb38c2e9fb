// Long work in pieces, so that the event loop goes on meanwhile. A piece touches about PIECE_BYTES.
import { createHash } from 'node:crypto'
import type { Clock } from '@starling-grid/protocol'

/** Bytes that are worked on in one turn of the event loop: about a millisecond, ten where the memory is new. */
export const PIECE_BYTES = 1024 * 1024

/** What the work returns. Other work gets its turns at each `yield`, and may change what is still to be read. */
export async function inTurns<T>(work: Iterator<unknown, T>, clock: Pick<Clock, 'sleep'>): Promise<T> {
  for (let piece = work.next(); ; piece = work.next()) {
    if (piece.done === true) return piece.value
    await clock.sleep(0)
  }
}

/** SHA-256 in hex. */
export function* hashing(bytes: Uint8Array): Generator<undefined, string> {
  const hash = createHash('sha256')
  for (let start = 0; start < bytes.byteLength; start += PIECE_BYTES) {
    hash.update(bytes.subarray(start, start + PIECE_BYTES))
    if (start + PIECE_BYTES <= bytes.byteLength) yield
  }
  return hash.digest('hex')
}
