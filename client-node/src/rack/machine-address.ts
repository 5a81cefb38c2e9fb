// Machines of a rack that compute with a volunteer, and the key that all of them have. Pure.
import { isIPv6 } from 'node:net'
import { GridError } from '@starling-grid/protocol'

/** Where a lent machine listens, where its owner says nothing else. */
export const LENT_PORT = 8795
/** More compute no faster: each gets a part of one batch. */
const MOST_MACHINES = 64
/** hexadecimal digits of a key: 128 bits, so that no recorded handshake can be guessed */
const LEAST_KEY_LENGTH = 32

export interface MachineAddress {
  readonly host: string
  readonly port: number
}

/** "HOST[:PORT],…", an IPv6 address in brackets. @throws GridError 'usage' */
export function machinesIn(text: string): MachineAddress[] {
  const parts = text.split(',').map((part) => part.trim())
  const machines = parts.map((part) => machineIn(part))
  const names = new Set(machines.map(nameOf))
  if (machines.length <= MOST_MACHINES && names.size === machines.length) return machines
  throw new GridError(
    'usage',
    `expected --machines with at most ${MOST_MACHINES} different machines, got ${machines.length}; name each once`,
  )
}

function machineIn(text: string): MachineAddress {
  const [, bracketed, plain, port = String(LENT_PORT)] =
    /^(?:\[([0-9a-f:.]+)\]|([^:[\]\s/]+))(?::(\d{1,5}))?$/i.exec(text) ?? []
  const host = bracketed ?? plain
  const isPort = Number(port) >= 1 && Number(port) <= 65_535
  if (host !== undefined && isPort && (bracketed === undefined || isIPv6(bracketed)))
    return { host, port: Number(port) }
  throw new GridError(
    'usage',
    `expected --machines HOST[:PORT],…, got "${text.slice(0, 60)}"; for example --machines 10.0.0.2,10.0.0.3:9000`,
  )
}

export function nameOf({ host, port }: MachineAddress): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

/** @throws GridError 'usage' */
export function rackKeyIn(text: string): Buffer {
  const digits = text.trim()
  if (digits.length >= LEAST_KEY_LENGTH && digits.length % 2 === 0 && /^[0-9a-f]+$/i.test(digits))
    return Buffer.from(digits, 'hex')
  throw new GridError(
    'usage',
    `expected a key of the rack with at least ${LEAST_KEY_LENGTH} hexadecimal digits, ` +
      `got ${digits.length} characters; copy the one that \`starling lend\` printed`,
  )
}
