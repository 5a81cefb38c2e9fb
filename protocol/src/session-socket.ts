// How a WebSocket of a session says whose it is: with the subprotocols that it offers, a header. Addresses are in the
// logs of proxies, and browsers set no other header of a WebSocket.

/** The subprotocol that the coordinator chooses. */
export const SESSION_PROTOCOL = 'starling.session'
const TOKEN_PREFIX = 'starling.token.'
/** Characters of a session's token. */
const MAX_TOKEN_LENGTH = 256

/** What a socket offers. `token`: characters of an HTTP token (RFC 9110 §5.6.2) */
export function sessionProtocols(token: string): string[] {
  return [SESSION_PROTOCOL, TOKEN_PREFIX + token]
}

/** The token that the header Sec-WebSocket-Protocol carries; undefined: none. */
export function tokenIn(header: string | undefined): string | undefined {
  const offered = (header ?? '').split(',').map((protocol) => protocol.trim())
  const token = offered.find((protocol) => protocol.startsWith(TOKEN_PREFIX))?.slice(TOKEN_PREFIX.length)
  return token === undefined || token.length === 0 || token.length > MAX_TOKEN_LENGTH ? undefined : token
}

/**
 * PeerJS puts its token into the address. The class of socket that PeerJS is given opens this address instead, and
 * offers these subprotocols.
 */
export function withoutToken(address: string | URL): { readonly address: string; readonly protocols: string[] } {
  const url = new URL(address)
  const token = url.searchParams.get('token')
  url.searchParams.delete('token')
  return { address: url.href, protocols: token === null ? [] : sessionProtocols(token) }
}
