// What the operator passes on to people on other machines. The address, and what their browsers and volunteers will say
// of a certificate that no authority signed.
import { addressesOfThisMachine, type Certificate } from './certificate.ts'

export const ALL_ADDRESSES = '0.0.0.0'

export interface OtherMachines extends Pick<Certificate, 'fingerprint' | 'isOwn'> {
  /** that the https door listens on */
  readonly host: string
  readonly port: number
  readonly publicUrl?: URL | undefined
}

/** Lines for the terminal, with the address as a QR code where it can show one. */
export async function otherMachines({ host, port, publicUrl, fingerprint, isOwn }: OtherMachines): Promise<string> {
  const hosts = host === ALL_ADDRESSES ? addressesOfThisMachine() : [host]
  const urls = hosts.map((name) => `https://${name.includes(':') ? `[${name}]` : name}:${port}`)
  const url = publicUrl?.origin ?? urls[0]
  if (url === undefined) return '\nThis machine has no address on a network: no other machine reaches it by https.'
  const others = urls.filter((other) => other !== url)
  return [
    '',
    'From other machines',
    `  take part with a browser:   ${url}/`,
    `  take part with Node:        npm run volunteer -- ${url}${isOwn ? ` --fingerprint ${fingerprint}` : ''}`,
    ...(others.length > 0 ? [`  its other addresses:        ${others.join(' ')}`] : []),
    ...(isOwn ? aboutOwnCertificate(fingerprint) : []),
    ...(process.stderr.isTTY ? ['', (await import('uqr')).renderUnicodeCompact(`${url}/`)] : []),
  ].join('\n')
}

function aboutOwnCertificate(fingerprint: string): string[] {
  return [
    `  certificate:                SHA-256 ${fingerprint}`,
    '                              No authority signed it, so a browser warns once on each machine:',
    '                              compare this fingerprint with the one it shows, and go on.',
  ]
}
