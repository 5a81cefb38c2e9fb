// Secrets that this coordinator gives out: 256 random bits behind an id. What is kept is a hash. One SHA-256 suffices:
// slow hashes protect what people choose, and 2^256 values cannot be tried.
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'

const ID_BYTES = 8
const SECRET_BYTES = 32
/** `ID.SECRET`; invites begin with another letter, so that none is taken for the other. */
const FORM = /^([ti][0-9a-f]{16})\.[0-9a-f]{64}$/

export interface NewSecret {
  readonly id: string
  /** what its holder is given, once */
  readonly text: string
  /** what is kept */
  readonly hash: string
}

/** `kind`: t for the token of an owner, i for an invite. */
export function newSecret(kind: 't' | 'i'): NewSecret {
  const id = kind + randomBytes(ID_BYTES).toString('hex')
  const text = `${id}.${randomBytes(SECRET_BYTES).toString('hex')}`
  return { id, text, hash: hashOf(text) }
}

/** The id within a secret; undefined for what no coordinator gave out. */
export function idIn(text: string): string | undefined {
  return FORM.exec(text)?.[1]
}

export function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

/** In the same time whatever the two are. */
export function matches(text: string, hash: string): boolean {
  return timingSafeEqual(Buffer.from(hashOf(text), 'hex'), Buffer.from(hash, 'hex'))
}
