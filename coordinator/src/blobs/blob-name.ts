// A blob's name is the SHA-256 of its bytes in hex, and nothing else is a name: no path can be smuggled in by one.
import { createHash } from 'node:crypto'
import { GridError, type Sha256, sha256Name } from '@starling-grid/protocol'
import { processClock } from '../clock.ts'
import { hashing, inTurns } from '../turns.ts'

const NAME = /^[0-9a-f]{64}$/

export function nameOf(bytes: Uint8Array): Sha256 {
  return sha256Name(createHash('sha256').update(bytes).digest('hex'))
}

export function isBlobName(text: string): text is Sha256 {
  return NAME.test(text)
}

/** @throws GridError('message-malformed') for what cannot be a name, whatever its type says */
export function requireName(name: Sha256): void {
  if (!isBlobName(name))
    throw new GridError(
      'message-malformed',
      `expected 64 hex digits as the name of a blob, got ${JSON.stringify(name).slice(0, 80)}`,
    )
}

/** @throws GridError('shard-corrupt') */
export function requireIntact(name: Sha256, bytes: Uint8Array, where: string): void {
  requireDigest(name, nameOf(bytes), `${where} (${bytes.byteLength} bytes)`)
}

/** @throws GridError('shard-corrupt') */
export function requireDigest(name: Sha256, found: string, where: string): void {
  if (found === name) return
  throw new GridError(
    'shard-corrupt',
    `expected blob ${name} in ${where} to match its name, got bytes with SHA-256 ${found}; ` +
      'import the dataset again to replace it',
  )
}

/** Piece by piece: other requests are served between two of them. */
export function digestOf(bytes: Uint8Array): Promise<string> {
  return inTurns(hashing(bytes), processClock)
}

/** The same of a stream, without holding it. @throws GridError('shard-corrupt') */
export async function requireIntactStream(
  name: Sha256,
  stream: AsyncIterable<Uint8Array>,
  where: string,
): Promise<void> {
  const hash = createHash('sha256')
  let bytes = 0
  for await (const piece of stream) {
    hash.update(piece)
    bytes += piece.byteLength
  }
  requireDigest(name, hash.digest('hex'), `${where} (${bytes} bytes)`)
}
