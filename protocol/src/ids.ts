// Branded names: one type per kind of identifier, so that the compiler notices a swap.

declare const brand: unique symbol
type Brand<T, B extends string> = T & { readonly [brand]: B }

/**
 * 128 random bits in hex, made at page load or process start; a reload is a new member. Also the member's PeerJS id.
 */
export type MemberId = Brand<string, 'MemberId'>
/** A volunteer's key, whatever page or process uses it. */
export type VolunteerId = Brand<string, 'VolunteerId'>
export type JobId = Brand<string, 'JobId'>
/** `epoch:index` of a training block, or `v:index` of a validation block. */
export type BlockId = Brand<string, 'BlockId'>
/** Hex SHA-256 of the chain of records up to a version (docs/RULES.md). */
export type VersionId = Brand<string, 'VersionId'>
/** Hex SHA-256 of some bytes: the name of a shard, a blob, a digest. */
export type Sha256 = Brand<string, 'Sha256'>

export const memberId = (text: string): MemberId => text as MemberId
export const volunteerId = (text: string): VolunteerId => text as VolunteerId
export const jobId = (text: string): JobId => text as JobId
export const versionId = (text: string): VersionId => text as VersionId
export const sha256Name = (text: string): Sha256 => text as Sha256

/** The id of training block `index` of `epoch`. */
export const trainingBlock = (epoch: number, index: number): BlockId => `${epoch}:${index}` as BlockId
/** The id of validation block `index`. */
export const validationBlock = (index: number): BlockId => `v:${index}` as BlockId

export function epochOf(block: BlockId): number {
  return Number(block.slice(0, block.indexOf(':')))
}
export function blockIndex(block: BlockId): number {
  return Number(block.slice(block.indexOf(':') + 1))
}

/** A new member id from the platform's random numbers. */
export function newMemberId(): MemberId {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return memberId(hex(bytes))
}

export function hex(bytes: Uint8Array): string {
  let text = ''
  for (const byte of bytes) text += byte.toString(16).padStart(2, '0')
  return text
}

export function bytesOfHex(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(text.match(/../g) ?? [], (digits) => Number.parseInt(digits, 16))
}

/** Every asker begins elsewhere in a list of members, so that a herd spreads over them. */
export function turnedBy(asker: MemberId, members: readonly MemberId[]): MemberId[] {
  const start = members.length === 0 ? 0 : Number.parseInt(asker.slice(0, 8), 16) % members.length || 0
  return [...members.slice(start), ...members.slice(0, start)]
}
