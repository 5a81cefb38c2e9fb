// SHA-256 of every chunk of a version's bytes: what comes from other members is believed chunk by chunk. Its form on
// the wire is the number of bytes (u32, little-endian) and the hashes in their order.
import { GridError } from './errors.ts'
import { FETCH_CHUNK_BYTES } from './limits.ts'
import { chunksOfState } from './salted-digest.ts'

export const HASH_BYTES = 32
/** Members that one fetches a version from before its round (G3): each sends a part. */
export const MAX_VERSION_SOURCES = 2
const TOTAL_BYTES = 4

/** SHA-256 of every chunk, in order, and how many bytes they are in all. */
export interface HashList {
  readonly total: number
  readonly hashes: Uint8Array
}

export function chunksOf(total: number): number {
  return Math.ceil(total / FETCH_CHUNK_BYTES)
}

/** The hashes of all chunks, one after the other. */
export async function hashChunks(bytes: Uint8Array): Promise<Uint8Array> {
  const hashes = new Uint8Array(HASH_BYTES * chunksOf(bytes.byteLength))
  let at = 0
  for (const chunk of chunksOfState(bytes)) {
    hashes.set(new Uint8Array(await crypto.subtle.digest('SHA-256', chunk as BufferSource)), at)
    at += HASH_BYTES
  }
  return hashes
}

/** Bytes of the list of a version of so many bytes. */
export function hashListBytes(total: number): number {
  return TOTAL_BYTES + HASH_BYTES * chunksOf(total)
}

export function writeHashList({ total, hashes }: HashList): Uint8Array {
  const bytes = new Uint8Array(TOTAL_BYTES + hashes.byteLength)
  new DataView(bytes.buffer).setUint32(0, total, true)
  bytes.set(hashes, TOTAL_BYTES)
  return bytes
}

/** Of at most `maxBytes`. @throws GridError 'message-malformed' */
export function readHashList(bytes: Uint8Array, maxBytes: number): HashList {
  const total =
    bytes.byteLength < TOTAL_BYTES
      ? 0
      : new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0, true)
  if (total === 0 || total > maxBytes || bytes.byteLength !== hashListBytes(total))
    throw new GridError(
      'message-malformed',
      `expected the hashes of a version of at most ${maxBytes} bytes, got ${bytes.byteLength} bytes for ${total}; ` +
        'update volunteer or coordinator, the older one',
    )
  return { total, hashes: bytes.slice(TOTAL_BYTES) }
}
