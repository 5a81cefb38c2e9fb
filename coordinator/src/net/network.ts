// What an IP address tells of who may be behind it: which network it is of, and whether only a local one reaches it.
// Pure.
import { isIPv4, isIPv6 } from 'node:net'
import { isLocalV4 } from '@starling-grid/protocol'

/**
 * The network of an address, /24 or /48: what one line or one customer of a provider gets. Callers only compare it.
 */
export function networkOf(address: string): string {
  const plain = withoutMapping(address)
  if (isIPv4(plain)) return `${plain.split('.').slice(0, 3).join('.')}.0/24`
  return isIPv6(plain)
    ? `${groupsOf(plain)
        .slice(0, 3)
        .map((group) => group.toString(16))
        .join(':')}::/48`
    : plain
}

/** Only a machine of the same network reaches it, or none: also what is no address at all, such as an mDNS name. */
export function isLocal(address: string): boolean {
  const plain = withoutMapping(address)
  if (isIPv4(plain)) return isLocalV4(plain.split('.').map(Number))
  return !isIPv6(plain) || isLocalV6(groupsOf(plain))
}

/**
 * Which voice an address is, where several are to agree: a public network belongs to one line or customer; in a local
 * one each machine counts, and all volunteers of one machine are one.
 */
export function voiceOf(address: string): string {
  return isLocal(address) ? withoutMapping(address) : networkOf(address)
}

export function isLoopback(address: string): boolean {
  const plain = withoutMapping(address)
  return plain === '::1' || plain.startsWith('127.')
}

/**
 * Whether two volunteers may learn each other's local addresses: both come from a local one, or through one router.
 */
export function shareNetwork(a: string, b: string): boolean {
  return (isLocal(a) && isLocal(b)) || withoutMapping(a) === withoutMapping(b)
}

/** All but global unicast (2000::/3) is of the machine, the link, the site, or unassigned. */
function isLocalV6([first = 0]: readonly number[]): boolean {
  return first < 0x2000 || first > 0x3fff
}

/** ::ffff:192.0.2.1 is 192.0.2.1; a zone (%eth0) is of the machine that says it. */
export function withoutMapping(address: string): string {
  const plain = address.replace(/%.*$/, '')
  const mapped = /^::ffff:([0-9.]+)$/i.exec(plain)?.[1]
  return mapped !== undefined && isIPv4(mapped) ? mapped : plain
}

/** The eight groups of an IPv6 address. */
function groupsOf(address: string): number[] {
  const [head = '', tail] = address
    .replace(/([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)$/, (_, ...bytes: string[]) => {
      const [a = 0, b = 0, c = 0, d = 0] = bytes.map(Number)
      return `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`
    })
    .split('::')
  const numbers = (part: string): number[] =>
    part
      .split(':')
      .filter((group) => group !== '')
      .map((group) => Number.parseInt(group, 16))
  const [before, after] = [numbers(head), numbers(tail ?? '')]
  return [
    ...before,
    ...new Array<number>(tail === undefined ? 0 : Math.max(0, 8 - before.length - after.length)).fill(0),
    ...after,
  ]
}
