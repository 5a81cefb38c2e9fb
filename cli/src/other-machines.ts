// What the operator passes on to people on other machines. The address, and what their browsers and volunteers will say
// of a certificate that no authority signed.
import { isLoopbackUrl, ROUTES } from '@starling-grid/protocol'
import { addressesOfThisMachine, type Certificate } from './certificate.ts'

export const ALL_ADDRESSES = '0.0.0.0'
const ALL = new Set([ALL_ADDRESSES, '::'])

/** One that the coordinator listens on. */
export interface ListeningDoor {
  /** address of this machine, or all of them */
  readonly host: string
  readonly port: number
}

export interface Doors extends ListeningDoor {
  readonly https?: (ListeningDoor & Pick<Certificate, 'fingerprint' | 'isOwn'>) | undefined
  /** of a proxy in front */
  readonly publicUrl?: URL | undefined
}

/** Lines for the terminal, with the address as a QR code where it can show one; none where no other machine gets in. */
export async function otherMachines({ https, publicUrl, ...http }: Doors): Promise<readonly string[]> {
  if (https !== undefined) return throughHttps(urlsOf(https, 'https'), https, publicUrl)
  if (publicUrl !== undefined) return [...invitation(publicUrl.origin, ''), ...(await qrCode(publicUrl.origin))]
  const [url, ...others] = urlsOf(http, 'http')
  if (url === undefined || isLoopbackUrl(url)) return []
  return [
    '',
    'From other machines',
    `  take part with Node:        npm run volunteer -- ${url}`,
    `  watch the run:              ${url}${ROUTES.dashboard}`,
    ...alsoAt(others),
    '  Their browsers lend a GPU to https addresses only: start with --https for one.',
  ]
}

async function throughHttps(
  urls: readonly string[],
  { fingerprint, isOwn }: Pick<Certificate, 'fingerprint' | 'isOwn'>,
  publicUrl: URL | undefined,
): Promise<readonly string[]> {
  const url = publicUrl?.origin ?? urls[0]
  if (url === undefined) return ['', 'This machine has no address on a network: no other machine reaches it by https.']
  return [
    ...invitation(url, isOwn ? ` --fingerprint ${fingerprint}` : ''),
    ...alsoAt(urls.filter((other) => other !== url)),
    ...(isOwn ? aboutOwnCertificate(fingerprint) : []),
    ...(await qrCode(url)),
  ]
}

function urlsOf({ host, port }: ListeningDoor, scheme: 'http' | 'https'): string[] {
  const hosts = ALL.has(host) ? addressesOfThisMachine() : [host]
  return hosts.map((name) => `${scheme}://${name.includes(':') ? `[${name}]` : name}:${port}`)
}

function invitation(url: string, trust: string): string[] {
  return [
    '',
    'From other machines',
    `  take part with a browser:   ${url}/`,
    `  take part with Node:        npm run volunteer -- ${url}${trust}`,
  ]
}

function alsoAt(others: readonly string[]): string[] {
  return others.length > 0 ? [`  its other addresses:        ${others.join(' ')}`] : []
}

async function qrCode(url: string): Promise<string[]> {
  return process.stderr.isTTY ? ['', (await import('uqr')).renderUnicodeCompact(`${url}/`)] : []
}

function aboutOwnCertificate(fingerprint: string): string[] {
  return [
    `  certificate:                SHA-256 ${fingerprint}`,
    '                              No authority signed it, so a browser warns once on each machine:',
    '                              compare this fingerprint with the one it shows, and go on.',
  ]
}
