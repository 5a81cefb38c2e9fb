// The first frame of a link proves two things. Its sender holds the key behind its member id, and both ends see the
// same two DTLS certificates. Signalling that swapped a fingerprint cannot make such a signature.
import { GridError } from './errors.ts'
import { incarnationOf, PUBLIC_KEY_BYTES, SALT_BYTES, SIGNATURE_BYTES, type Signer } from './identity.ts'
import { bytesOfHex, hex, type MemberId } from './ids.ts'
import { PROTOCOL_VERSION } from './limits.ts'

const PROOF_BYTES = PUBLIC_KEY_BYTES + SALT_BYTES + SIGNATURE_BYTES

/** A member, and the key that its id is made of. */
export interface LinkIdentity {
  /** hex */
  readonly publicKey: string
  /** hex */
  readonly salt: string
  readonly signer: Pick<Signer, 'sign' | 'verify'>
}

/** One end of a link. `fingerprint`: of the DTLS certificate, as a session description names it. */
export interface LinkEnd {
  readonly member: MemberId
  readonly fingerprint: string
}

/** publicKey (32) ‖ salt (16) ‖ signature (64) */
export async function linkProof(
  { publicKey, salt, signer }: LinkIdentity,
  from: LinkEnd,
  to: LinkEnd,
): Promise<Uint8Array<ArrayBuffer>> {
  const proof = new Uint8Array(PROOF_BYTES)
  proof.set(bytesOfHex(publicKey))
  proof.set(bytesOfHex(salt), PUBLIC_KEY_BYTES)
  proof.set(await signer.sign(linkText(from, to)), PUBLIC_KEY_BYTES + SALT_BYTES)
  return proof
}

/** `from` and `to` as the receiver sees them. @throws GridError 'identity-unproven' */
export async function requireLinkProof(
  proof: Uint8Array,
  { signer }: Pick<LinkIdentity, 'signer'>,
  from: LinkEnd,
  to: LinkEnd,
): Promise<void> {
  if (proof.byteLength !== PROOF_BYTES)
    throw new GridError(
      'identity-unproven',
      `expected a greeting that proves member ${from.member} in ${PROOF_BYTES} bytes, got ${proof.byteLength}`,
    )
  const publicKey = proof.slice(0, PUBLIC_KEY_BYTES)
  const salt = proof.slice(PUBLIC_KEY_BYTES, PUBLIC_KEY_BYTES + SALT_BYTES)
  const signature = proof.slice(PUBLIC_KEY_BYTES + SALT_BYTES)
  if (incarnationOf(hex(publicKey), hex(salt)) !== from.member)
    throw new GridError('identity-unproven', `expected the key of member ${from.member}, got another`)
  if (!(await signer.verify(publicKey, linkText(from, to), signature)))
    throw new GridError(
      'identity-unproven',
      `expected member ${from.member} to sign the fingerprints of this link, got others: signalling changed them`,
    )
}

/** The first line keeps it apart from what else the key signs. */
function linkText(from: LinkEnd, to: LinkEnd): Uint8Array<ArrayBuffer> {
  const ends = `from ${from.member} ${from.fingerprint}\nto ${to.member} ${to.fingerprint}\n`
  return new TextEncoder().encode(`starling link\nprotocol ${PROTOCOL_VERSION}\n${ends}`)
}
