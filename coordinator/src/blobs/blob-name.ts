// A blob's name is the SHA-256 of its bytes in hex, and nothing else is a name: no path can be smuggled in by one.
import { createHash } from 'node:crypto'
import { GridError, type Sha256, sha256Name } from '@starling-grid/protocol'

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
