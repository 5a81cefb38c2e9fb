// STUN and TURN servers that volunteers are told, with TURN credentials of their own that are worthless after a few
// minutes. Source: "A REST API For Access To TURN Services" (draft-uberti-behave-turn-rest-00), use-auth-secret in
// coturn.
import { createHmac } from 'node:crypto'
import { GridError, MAX_ICE_SERVERS, type MemberId, type MessageTo } from '@starling-grid/protocol'

export type IceServers = MessageTo<'welcome'>['iceServers']

export interface IceOptions {
  /** stun:, stuns:, turn: and turns: addresses */
  readonly urls: readonly string[]
  /** the static-auth-secret of the TURN servers */
  readonly turnSecret?: string | undefined
  /** ms that credentials are good for */
  readonly credentialsMs?: number
}

/** ms: limits how long a TURN server can serve as an open proxy */
export const CREDENTIALS_MS = 10 * 60_000
/**
 * Share of their life after which new ones are handed out: no link is ever dialled with credentials about to expire.
 */
const RENEW_AT = 0.7

/** ms until members need new ones; undefined: never, nothing expires. */
export function renewalMs({ urls, credentialsMs = CREDENTIALS_MS }: IceOptions): number | undefined {
  return urls.some(isTurn) ? RENEW_AT * credentialsMs : undefined
}

/** @throws GridError 'usage' when an address is none, or a TURN server has no secret */
export function requireIceOptions({ urls, turnSecret }: IceOptions): void {
  if (urls.length > MAX_ICE_SERVERS)
    throw new GridError('usage', `expected at most ${MAX_ICE_SERVERS} ICE servers, got ${urls.length}; name fewer`)
  const wrong = urls.find((url) => !/^(stun|stuns|turn|turns):[\w.:[\]-]+(\?transport=(udp|tcp))?$/.test(url))
  if (wrong !== undefined)
    throw new GridError(
      'usage',
      'expected an ICE server such as stun:stun.example.org:3478 or turns:turn.example.org:5349?transport=tcp, ' +
        `got "${wrong}"`,
    )
  const turn = urls.find(isTurn)
  if (turn !== undefined && (turnSecret ?? '') === '')
    throw new GridError(
      'usage',
      `expected the secret of ${turn}, got none; give its static-auth-secret with --turn-secret or ` +
        'STARLING_TURN_SECRET',
    )
}

/**
 * For one member. The user name of TURN says until when (seconds since 1970) and who; the password proves that we said
 * so.
 */
export function iceServersFor(
  member: MemberId,
  { urls, turnSecret = '', credentialsMs = CREDENTIALS_MS }: IceOptions,
  now: number,
): IceServers {
  const username = `${Math.floor((now + credentialsMs) / 1000)}:${member}`
  const credential = createHmac('sha1', turnSecret).update(username).digest('base64')
  return urls.map((url) => (isTurn(url) ? { urls: url, username, credential } : { urls: url }))
}

/**
 * The servers that every volunteer may see: TURN credentials in them would give each sender of a hello an open proxy.
 */
export function withoutCredentials({ urls }: IceOptions): IceServers {
  return urls.filter((url) => !isTurn(url)).map((url) => ({ urls: url }))
}

function isTurn(url: string): boolean {
  return url.startsWith('turn')
}
