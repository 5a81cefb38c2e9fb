// What counts as one address: an IPv4 address, or the /64 of an IPv6 address, which one subscriber has whole.
import { isIPv4, isIPv6 } from 'node:net'
import type { FastifyRequest } from 'fastify'

/** 16-bit groups of an IPv6 address, and of the network that counts. */
const GROUPS = 8
const NETWORK_GROUPS = 4
const MAPPED = /^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/i

/** The network of who asks; behind a proxy that `--trusted-proxy` names, of who asked the proxy. */
export function addressOf(request: FastifyRequest): string {
  return subscriberOf(request.ip)
}

export function subscriberOf(ip: string): string {
  const plain = ip.replace(MAPPED, '').replace(/%.*$/, '')
  if (isIPv4(plain) || !isIPv6(plain)) return plain
  const [head = '', tail] = plain.toLowerCase().split('::')
  const before = groupsOf(head)
  const after = groupsOf(tail ?? '')
  const zeros = Array<string>(GROUPS - before.length - after.length).fill('0')
  const groups = tail === undefined ? before : [...before, ...zeros, ...after]
  return `${groups
    .slice(0, NETWORK_GROUPS)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`
}

/** An IPv4 address at the end is two groups; it is never among the first four. */
function groupsOf(text: string): string[] {
  if (text === '') return []
  return text.split(':').flatMap((group) => (group.includes('.') ? ['0', '0'] : [group]))
}
