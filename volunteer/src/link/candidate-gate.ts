// Limits the addresses that a volunteer's links connect to, whatever the coordinator passes on. Few addresses per
// connection, no names, and none in the volunteer's own network unless the coordinator is there too. And which STUN and
// TURN servers it asks.
import { isLocalV4, isLoopbackUrl } from '@starling-grid/protocol'
import type { SignallingAccess } from './peer-link.ts'

/** Addresses of one other member: all interfaces of an ordinary machine, not a list of targets. */
export const MAX_CANDIDATES = 20
/** Below are the ports of services that a volunteer should not be made to knock at. */
const LOWEST_PORT = 1024
/**
 * The name that a browser sends instead of a local address (draft-ietf-mmusic-mdns-ice-candidates). Only the same
 * network resolves it.
 */
const MDNS_NAME = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.local$/i

/** Of one connection. `local`: addresses of the volunteer's own network are taken. */
export class CandidateGate {
  readonly #local: boolean
  #taken = 0

  constructor(local: boolean) {
    this.#local = local
  }

  /** `candidate:…`, one that is empty ends the list. */
  takes(candidate: string): boolean {
    if (candidate === '') return true
    return isPlausible(candidate, this.#local) && ++this.#taken <= MAX_CANDIDATES
  }

  /** The session description without the candidates that are not taken. */
  withoutOthers(sdp: string): string {
    const lines = sdp.split('\n')
    return lines.filter((line) => !line.startsWith('a=candidate:') || this.takes(line.trim())).join('\n')
  }
}

/** RFC 8839: candidate:foundation component transport priority address port typ … */
function isPlausible(candidate: string, local: boolean): boolean {
  const [, , , , address = '', port = ''] = candidate.replace(/^a=/, '').split(' ')
  return Number(port) >= LOWEST_PORT && (isGlobal(address) || (local && isAddress(address)) || MDNS_NAME.test(address))
}

/** Whether the coordinator is in the volunteer's own network: then other volunteers may be, too. */
export function isInOwnNetwork(coordinatorUrl: string): boolean {
  const host = hostOf(coordinatorUrl)
  const isName = !isAddress(host)
  return isName ? host === 'localhost' || !host.includes('.') || host.endsWith('.local') : !isGlobal(host)
}

/**
 * Addresses of another member's door that a volunteer connects to. Those of its own network only when the coordinator
 * is there, too; those of this machine only when the coordinator is on it. Never link-local ones: cloud machines have
 * services of their own there.
 */
export function dialable(addresses: readonly string[], coordinatorUrl: string): string[] {
  const own = isInOwnNetwork(coordinatorUrl)
  const here = isLoopbackUrl(coordinatorUrl)
  return addresses.filter((address) => isGlobal(address) || (own && isOfSite(address)) || (here && isLoopback(address)))
}

function isLoopback(address: string): boolean {
  return address === '::1' || octetsOf(address)?.[0] === LOOPBACK_NET
}
const LOOPBACK_NET = 127

/** RFC 1918, RFC 6598, and RFC 4193 */
function isOfSite(address: string): boolean {
  return /^(10|192\.168|172\.(1[6-9]|2\d|3[01])|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7]))\./.test(address)
    ? octetsOf(address) !== undefined
    : /^f[cd][0-9a-f]{2}:/i.test(address)
}

/** STUN and TURN servers on the coordinator's own host, and on those that the volunteer's owner allows. */
export function ownIceServers(
  servers: SignallingAccess['iceServers'],
  coordinatorUrl: string,
  allowed: readonly string[],
): SignallingAccess['iceServers'] {
  const hosts = new Set([hostOf(coordinatorUrl), ...allowed.map((host) => host.toLowerCase())])
  return servers.filter(({ urls }) => hosts.has(iceHostOf(urls)))
}

/** "turn:turn.example.org:3478?transport=udp" → "turn.example.org" */
export function iceHostOf(url: string): string {
  const authority = url.replace(/^(stun|turn)s?:/i, '').replace(/\?.*$/, '')
  return authority
    .replace(/:\d+$/, '')
    .replace(/^\[(.*)\]$/, '$1')
    .toLowerCase()
}

function hostOf(url: string): string {
  return new URL(url).hostname.replace(/^\[(.*)\]$/, '$1').toLowerCase()
}

function isAddress(text: string): boolean {
  return octetsOf(text) !== undefined || (text.includes(':') && /^[0-9a-f:.]+$/i.test(text))
}

/** Reached from anywhere: IPv6 of 2000::/3, IPv4 that is no local one. */
function isGlobal(address: string): boolean {
  const octets = octetsOf(address)
  if (octets !== undefined) return !isLocalV4(octets)
  return isAddress(address) && /^[23][0-9a-f]{3}:/i.test(address)
}

function octetsOf(text: string): number[] | undefined {
  const octets = /^\d{1,3}(\.\d{1,3}){3}$/.test(text) ? text.split('.').map(Number) : undefined
  return octets?.every((octet) => octet <= 255) ? octets : undefined
}
