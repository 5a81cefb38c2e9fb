// Which IPv4 addresses reach a machine of the same network alone. Coordinator and volunteers judge by the same table.

const LOOPBACK_HOSTS = new Set(['localhost', '127.0.0.1', '[::1]'])

/** Whether an address is of this machine alone. */
export function isLoopbackUrl(url: string): boolean {
  return URL.canParse(url) && LOOPBACK_HOSTS.has(new URL(url).hostname)
}

/** First address and length of each prefix, as in the registry of special-purpose addresses (RFC 6890). */
const LOCAL_V4: readonly (readonly [address: string, bits: number])[] = [
  ['0.0.0.0', 8], // this host, RFC 1122
  ['10.0.0.0', 8], // RFC 1918
  ['100.64.0.0', 10], // carriers' NAT, RFC 6598
  ['127.0.0.0', 8], // loopback
  ['169.254.0.0', 16], // link-local, RFC 3927
  ['172.16.0.0', 12], // RFC 1918
  ['192.168.0.0', 16], // RFC 1918
  ['224.0.0.0', 3], // multicast, RFC 5771, and reserved
]

/** @param octets four numbers of 0 to 255 */
export function isLocalV4(octets: readonly number[]): boolean {
  const address = numberOf(octets)
  return LOCAL_V4.some(([first, bits]) => {
    const beyond = 2 ** (32 - bits)
    return Math.floor(address / beyond) === Math.floor(numberOf(first.split('.').map(Number)) / beyond)
  })
}

function numberOf(octets: readonly number[]): number {
  return octets.reduce((number, octet) => number * 256 + octet, 0)
}
