// The certificate of the coordinator's https door: the owner's, or one that is made at the first start. It is kept in
// the data folder, so that browsers and volunteers that trusted it once go on doing so.
import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { hostname, networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { createSecureContext } from 'node:tls'
import { keepSecret, requireOwn } from '@starling-grid/coordinator/own-modes'
import { describeError, GridError } from '@starling-grid/protocol'

const DAY_MS = 86_400_000
/** The longest that Apple's systems accept of a certificate that a user trusts by hand. */
const DAYS = 825
/** With fewer days left another one is made. */
const RENEWED_DAYS = 30
const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
/** TLS server, RFC 5280 §4.2.1.12 */
const SERVER_AUTHENTICATION = '1.3.6.1.5.5.7.3.1'

export interface Certificate {
  /** PEM */
  readonly certificate: string
  readonly key: string
  /** SHA-256, "AB:CD:…" */
  readonly fingerprint: string
  /** no authority signed it: browsers warn, and volunteers need its fingerprint */
  readonly isOwn: boolean
  /** it was made just now: what trusted another one before has to trust this one */
  readonly isNew: boolean
}

export interface CertificateFiles {
  readonly cert?: string | undefined
  readonly key?: string | undefined
}

/** @throws GridError 'usage' when given files are no pair, 'folder-unwritable' */
export async function certificateOf(dataDir: string, { cert, key }: CertificateFiles): Promise<Certificate> {
  if (cert !== undefined && key !== undefined) return givenCertificate(cert, key)
  if (cert !== undefined || key !== undefined)
    throw new GridError('usage', 'expected --cert and --key together, got one of them; name both files')
  const files = { certificate: join(dataDir, 'https-certificate.pem'), key: join(dataDir, 'https-key.pem') }
  const kept = await keptCertificate(files)
  if (kept !== undefined) {
    await requireOwn(files.key)
    return kept
  }
  const made = await makeCertificate()
  await keepSecret(dataDir, files.key, made.key)
  await keepSecret(dataDir, files.certificate, made.certificate)
  return { ...made, fingerprint: fingerprintOf(made.certificate), isOwn: true, isNew: true }
}

async function givenCertificate(certFile: string, keyFile: string): Promise<Certificate> {
  const [certificate, key] = await Promise.all([readPem(certFile), readPem(keyFile)])
  try {
    createSecureContext({ cert: certificate, key })
    const { issuer, subject } = new X509Certificate(certificate)
    return { certificate, key, fingerprint: fingerprintOf(certificate), isOwn: issuer === subject, isNew: false }
  } catch (cause) {
    throw new GridError(
      'usage',
      `expected a certificate in ${certFile} and its key in ${keyFile}, both as PEM, got ${describeError(cause)}; ` +
        'name the two files that belong together',
      { cause },
    )
  }
}

async function readPem(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((cause: unknown) => {
    throw new GridError('usage', `expected a PEM file at ${file}, got ${describeError(cause)}; name another`, { cause })
  })
}

type Pem = Pick<Certificate, 'certificate' | 'key'>

/** What an earlier start kept; undefined when it is gone, damaged or ends soon. */
async function keptCertificate(files: Pem): Promise<Certificate | undefined> {
  try {
    const [certificate, key] = await Promise.all([readFile(files.certificate, 'utf8'), readFile(files.key, 'utf8')])
    createSecureContext({ cert: certificate, key })
    const left = Date.parse(new X509Certificate(certificate).validTo) - Date.now()
    if (left < RENEWED_DAYS * DAY_MS) return undefined
    return { certificate, key, fingerprint: fingerprintOf(certificate), isOwn: true, isNew: false }
  } catch {
    return undefined
  }
}

async function makeCertificate(): Promise<Pem> {
  await import('reflect-metadata') // before what follows, which needs it
  const x509 = await import('@peculiar/x509')
  const keys = await crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])
  const now = Date.now()
  const made = await x509.X509CertificateGenerator.createSelfSigned({
    name: 'CN=Starling coordinator',
    notBefore: new Date(now - DAY_MS), // clocks of other machines may be behind
    notAfter: new Date(now + (DAYS - 1) * DAY_MS),
    signingAlgorithm: ALGORITHM,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([SERVER_AUTHENTICATION]),
      new x509.SubjectAlternativeNameExtension(namesOfThisMachine()),
    ],
  })
  const key = Buffer.from(await crypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64')
  return { certificate: made.toString('pem'), key: pem('PRIVATE KEY', key) }
}

function pem(label: string, base64: string): string {
  return [`-----BEGIN ${label}-----`, ...(base64.match(/.{1,64}/g) ?? []), `-----END ${label}-----`, ''].join('\n')
}

function namesOfThisMachine(): { readonly type: 'dns' | 'ip'; readonly value: string }[] {
  const names = [...new Set(['localhost', hostname(), `${hostname().replace(/\..*$/, '')}.local`])]
  const addresses = ['127.0.0.1', '::1', ...addressesOfThisMachine()]
  return [
    ...names.map((value) => ({ type: 'dns' as const, value })),
    ...addresses.map((value) => ({ type: 'ip' as const, value })),
  ]
}

/** That other machines of its networks reach, IPv4 first. Link-local ones need a zone, which no URL has. */
export function addressesOfThisMachine(): string[] {
  const all = Object.values(networkInterfaces()).flatMap((of) => of ?? [])
  const reached = all.filter(({ internal, address }) => !internal && !address.toLowerCase().startsWith('fe80'))
  return reached.sort((a, b) => a.family.localeCompare(b.family)).map(({ address }) => address)
}

function fingerprintOf(certificate: string): string {
  return new X509Certificate(certificate).fingerprint256
}
