// Digest of a state under a salt: whoever holds only a public digest of the state cannot make it.
import type { Sha256 } from './ids.ts'
import { FETCH_CHUNK_BYTES } from './limits.ts'

/** HMAC-SHA-256 with the salt over the HMACs of all chunks. Takes one chunk at a time: the caller's thread only copies. */
export async function saltedDigest(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  salt: Sha256,
): Promise<Sha256> {
  const key = await crypto.subtle.importKey(
    'raw',
    new TextEncoder().encode(salt),
    { name: 'HMAC', hash: 'SHA-256' },
    false,
    ['sign'],
  )
  const sign = async (bytes: Uint8Array): Promise<Uint8Array> =>
    new Uint8Array(await crypto.subtle.sign('HMAC', key, bytes as BufferSource))
  const parts: Uint8Array[] = []
  for await (const chunk of chunks) parts.push(await sign(chunk))
  const all = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0))
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.byteLength
  }
  return Array.from(await sign(all), (byte) => byte.toString(16).padStart(2, '0')).join('') as Sha256
}

/** Runs of FETCH_CHUNK_BYTES, as saltedDigest takes them; views, not copies. */
export function* chunksOfState(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.byteLength; at += FETCH_CHUNK_BYTES) yield bytes.subarray(at, at + FETCH_CHUNK_BYTES)
}
