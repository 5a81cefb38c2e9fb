// Digest of a state under a salt: a public digest of the state does not help to make it.
import type { Sha256 } from './ids.ts'
import { FETCH_CHUNK_BYTES } from './limits.ts'

/** SHA-256 of the salt and the SHA-256s of salt and chunk. One chunk at a time: the caller's thread only copies. */
export async function saltedDigest(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  salt: Sha256,
): Promise<Sha256> {
  const prefix = new TextEncoder().encode(salt)
  const parts: Uint8Array[] = []
  for await (const chunk of chunks) parts.push(await sha256(prefix, [chunk]))
  return Array.from(await sha256(prefix, parts), (byte) => byte.toString(16).padStart(2, '0')).join('') as Sha256
}

async function sha256(prefix: Uint8Array, parts: readonly Uint8Array[]): Promise<Uint8Array> {
  const all = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, prefix.byteLength))
  all.set(prefix)
  let at = prefix.byteLength
  for (const part of parts) {
    all.set(part, at)
    at += part.byteLength
  }
  return new Uint8Array(await crypto.subtle.digest('SHA-256', all))
}

/** Runs of FETCH_CHUNK_BYTES, as saltedDigest takes them; views, not copies. */
export function* chunksOfState(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.byteLength; at += FETCH_CHUNK_BYTES) yield bytes.subarray(at, at + FETCH_CHUNK_BYTES)
}
