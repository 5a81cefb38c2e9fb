// A coordinator whose certificate no authority signed: its operator tells the certificate's fingerprint, and this
// process trusts that certificate and no other. For the whole process, as PeerJS opens its sockets by itself.
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls'
import { describeError, GridError } from '@starling-grid/protocol'
import type { ClientOptions } from 'ws'

/** ms: a coordinator that is there answers at once */
const HANDSHAKE_MS = 5000
const SHA256 = /^([0-9A-F]{2}:){31}[0-9A-F]{2}$/

type Trust = Pick<ConnectionOptions, 'ca' | 'checkServerIdentity'>

let trust: Trust = {}

/** Options of every request to the coordinator. */
export function tlsTrust(): Trust {
  return trust
}

/**
 * Options of every socket to it. `ws` passes them to `node:tls`. Its types want a result of this check, which TLS
 * ignores.
 */
export function socketTrust(): ClientOptions {
  return trust as unknown as ClientOptions
}

/**
 * @param url https origin
 * @param fingerprint SHA-256 of the certificate, "AB:CD:…" or without colons
 * @throws GridError 'usage' when there is another certificate, 'coordinator-lost' when there is no answer
 */
export async function pinCertificate(url: string, fingerprint: string): Promise<void> {
  const { protocol, hostname, port } = new URL(url)
  const expected = canonical(fingerprint)
  if (protocol !== 'https:' || !SHA256.test(expected))
    throw new GridError(
      'usage',
      `expected --fingerprint with 64 hexadecimal digits and an https address, got "${fingerprint}" and ${url}; ` +
        'copy both as the coordinator printed them',
    )
  const host = hostname.replace(/^\[(.*)\]$/, '$1')
  const { fingerprint256, raw } = await certificateAt(host, Number(port || 443))
  if (fingerprint256 !== expected)
    throw new GridError(
      'usage',
      `expected the certificate ${expected} at ${url}, got ${fingerprint256}; ` +
        'another machine answers there, or the coordinator has a new certificate: ' +
        'compare with what it prints at its start',
    )
  const ca = `-----BEGIN CERTIFICATE-----\n${raw.toString('base64')}\n-----END CERTIFICATE-----\n`
  trust = { ca, checkServerIdentity: () => undefined } // the certificate is known itself, whatever names it has
}

function canonical(fingerprint: string): string {
  const digits = fingerprint.replaceAll(':', '').toUpperCase()
  return digits.match(/../g)?.join(':') ?? ''
}

/** Nothing is sent to it, and nothing of what it says is believed but the certificate. */
function certificateAt(host: string, port: number): Promise<{ readonly fingerprint256: string; readonly raw: Buffer }> {
  return new Promise((resolve, reject) => {
    const fail = (why: string): void =>
      reject(new GridError('coordinator-lost', `https://${host}:${port} cannot be reached: ${why}`))
    const socket: TLSSocket = connect({ host, port, rejectUnauthorized: false }, () => {
      resolve(socket.getPeerCertificate())
      socket.destroy()
    })
    socket.setTimeout(HANDSHAKE_MS, () => {
      socket.destroy()
      fail('no answer')
    })
    socket.on('error', (error) => fail(describeError(error)))
  })
}

/** What a person does about a certificate that this machine does not trust; empty for other errors. */
export function adviceFor(error: Error): string {
  const code = 'code' in error ? String(error.code) : ''
  return /SELF_SIGNED|UNABLE_TO_|CERT_/.test(code)
    ? '; start the volunteer with --fingerprint and what the coordinator printed at its start'
    : ''
}
