// The certificate of this process for its links over TCP: made at its start, kept nowhere, known to others by its
// fingerprint alone. So it holds no more than TLS has to find in it. Written here, because libraries that write any
// certificate take longer to load than all else that a volunteer loads.
import { generateKeyPairSync, sign, X509Certificate } from 'node:crypto'
import { type Sha256, sha256Name } from '@starling-grid/protocol'

export interface OwnCertificate {
  /** PEM */
  readonly cert: string
  readonly key: string
  readonly fingerprint: Sha256
}

/** Tags of the ASN.1 types in it (X.690). */
const INTEGER = 0x02
const BIT_STRING = 0x03
const OBJECT_ID = 0x06
const UTF8_STRING = 0x0c
const GENERALIZED_TIME = 0x18
const SEQUENCE = 0x30
const SET = 0x31
/** 1.3.101.112, RFC 8410 */
const ED25519 = [0x2b, 0x65, 0x70]
/** 2.5.4.3 */
const COMMON_NAME = [0x55, 0x04, 0x03]
/** Clocks of machines differ, and members ignore the dates of a pinned certificate: RFC 5280 §4.1.2.5 has no end. */
const FROM = '20200101000000Z'
const UNTIL = '99991231235959Z'
/** From here on a length has bytes of its own. */
const LONG_FORM = 0x80

export function ownCertificate(): OwnCertificate {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519')
  const algorithm = tagged(SEQUENCE, tagged(OBJECT_ID, Buffer.from(ED25519)))
  const attribute = [tagged(OBJECT_ID, Buffer.from(COMMON_NAME)), tagged(UTF8_STRING, Buffer.from('Starling link'))]
  const name = tagged(SEQUENCE, tagged(SET, tagged(SEQUENCE, ...attribute)))
  const time = (text: string): Buffer => tagged(GENERALIZED_TIME, Buffer.from(text))
  // Version 1 (RFC 5280 §4.1): it has no extensions.
  const unsigned = tagged(
    SEQUENCE,
    tagged(INTEGER, Buffer.from([1])),
    algorithm,
    name,
    tagged(SEQUENCE, time(FROM), time(UNTIL)),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
  )
  const noUnusedBits = Buffer.from([0])
  const der = tagged(SEQUENCE, unsigned, algorithm, tagged(BIT_STRING, noUnusedBits, sign(null, unsigned, privateKey)))
  const certificate = new X509Certificate(der)
  return {
    cert: certificate.toString(),
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    fingerprint: fingerprintOf(certificate),
  }
}

export function fingerprintOf({ fingerprint256 }: Pick<X509Certificate, 'fingerprint256'>): Sha256 {
  return sha256Name(fingerprint256.replaceAll(':', '').toLowerCase())
}

function tagged(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts)
  const { length } = content
  return Buffer.concat([Buffer.from([tag, ...lengthBytes(length)]), content])
}

function lengthBytes(length: number): number[] {
  if (length < LONG_FORM) return [length]
  return length <= 0xff ? [LONG_FORM | 1, length] : [LONG_FORM | 2, length >> 8, length & 0xff]
}
