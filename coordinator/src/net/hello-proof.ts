// What HELLO proves: that its sender holds the key behind the id that it names, now, and meant this coordinator. The
// proof needs no memory, so an id cannot be taken over after a restart either.
import { createPublicKey, type KeyObject, verify } from 'node:crypto'
import { GridError, helloText, incarnationOf, type MessageFrom } from '@starling-grid/protocol'

export interface Expected {
  /** of this socket's challenge */
  readonly nonce: string
  /** name and port under which this coordinator is known */
  readonly names: readonly string[]
}

/** @throws GridError 'identity-unproven' */
export function requireProof(hello: MessageFrom<'hello'>, { nonce, names }: Expected): void {
  const { coordinator, incarnation, publicKey, salt, signature } = hello
  if (!names.includes(coordinator))
    throw unproven(
      `a hello to ${names.join(' or ')}, got one to ${coordinator.slice(0, 80)}; ` +
        'dial the address that the coordinator prints, or start it with --public-url',
    )
  if (incarnation !== incarnationOf(publicKey, salt))
    throw unproven('the id of this key and salt, got another; start the volunteer again')
  if (!isSigned(helloText({ nonce, coordinator, incarnation }), { publicKey, signature }))
    throw unproven("a signature of this socket's challenge, got another; start the volunteer again")
}

function isSigned(
  text: Uint8Array,
  { publicKey, signature }: Pick<MessageFrom<'hello'>, 'publicKey' | 'signature'>,
): boolean {
  const key = keyOf(publicKey)
  return key !== undefined && verify(null, text, key, Buffer.from(signature, 'hex'))
}

/** As a JSON Web Key, which Node reads ten times as fast as DER. undefined: these bytes are no point of the curve. */
function keyOf(publicKey: string): KeyObject | undefined {
  const x = Buffer.from(publicKey, 'hex').toString('base64url')
  try {
    return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' })
  } catch {
    return undefined
  }
}

function unproven(expected: string): GridError {
  return new GridError('identity-unproven', `expected ${expected}`)
}
