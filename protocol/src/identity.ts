// Who a volunteer is. It keeps an Ed25519 key. Its lasting id is the key's hash, and the id of one page load or process
// start is the hash of key and salt. So a member proves that it owns its id to a coordinator that remembers nothing.
import { digest } from './chain.ts'
import { hex, type MemberId, memberId, type VolunteerId, volunteerId } from './ids.ts'
import { PROTOCOL_VERSION } from './limits.ts'

/** Bytes of an Ed25519 public key and signature (RFC 8032). */
export const PUBLIC_KEY_BYTES = 32
export const SIGNATURE_BYTES = 64
/** Bytes of the random numbers that make an id new, and a signature good for one socket only. */
export const SALT_BYTES = 16
export const NONCE_BYTES = 32
/** Hex digits of a member's id: 128 bits, so that finding a second key and salt for one is out of reach. */
const ID_DIGITS = 32

/** The key of a volunteer. Where it is kept, and how safely, is the platform's matter. */
export interface Signer {
  readonly publicKey: Uint8Array
  sign(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array>
  /** Whether another volunteer's key signed these bytes; false for what is no key. */
  verify(
    publicKey: Uint8Array<ArrayBuffer>,
    bytes: Uint8Array<ArrayBuffer>,
    signature: Uint8Array<ArrayBuffer>,
  ): Promise<boolean>
}

/** One page load or process start of a volunteer. */
export interface Incarnation {
  readonly incarnation: MemberId
  /** hex */
  readonly publicKey: string
  /** hex */
  readonly salt: string
}

/** What HELLO proves, and to which coordinator. */
export interface HelloClaim {
  /** hex, from this socket's challenge */
  readonly nonce: string
  /** name and port of the coordinator as the volunteer dialled it: a proof made for one is worth nothing to another */
  readonly coordinator: string
  readonly incarnation: MemberId
}

/** A new member with this key. */
export function newIncarnation(publicKey: Uint8Array): Incarnation {
  const salt = hex(crypto.getRandomValues(new Uint8Array(SALT_BYTES)))
  const key = hex(publicKey)
  return { incarnation: incarnationOf(key, salt), publicKey: key, salt }
}

/** The member id of a key, both in hex, and one salt. */
export function incarnationOf(publicKey: string, salt: string): MemberId {
  return memberId(hashOf(`starling incarnation\n${publicKey}\n${salt}`).slice(0, ID_DIGITS))
}

/** The lasting id of a volunteer: the same in all jobs, tabs and processes that use this key (hex). */
export function volunteerIdOf(publicKey: string): VolunteerId {
  return volunteerId(hashOf(`starling volunteer\n${publicKey}`).slice(0, ID_DIGITS))
}

/** What a volunteer signs. Its first line keeps it apart from everything else that the key may ever sign. */
export function helloText({ nonce, coordinator, incarnation }: HelloClaim): Uint8Array<ArrayBuffer> {
  return encoded(
    `starling hello\nprotocol ${PROTOCOL_VERSION}\ncoordinator ${coordinator}\nnonce ${nonce}\n` +
      `incarnation ${incarnation}\n`,
  )
}

function hashOf(text: string): string {
  return digest(encoded(text))
}

function encoded(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text)
}
