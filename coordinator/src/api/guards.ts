// What every request passes before a route sees it: our own name in Host (DNS rebinding), our own page or none in Origin
// (other sites' scripts), and tokens that are compared in constant time.
import { createHash, timingSafeEqual } from 'node:crypto'
import { isIP } from 'node:net'
import { GridError, type MemberId } from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Sessions } from '../sessions.ts'
import { HttpRefusal } from './errors.ts'

const WILDCARDS = new Set(['0.0.0.0', '::'])

export interface Names {
  /** the address that the server is bound to */
  readonly host: string
  /** how people reach it from elsewhere, for example through a proxy */
  readonly publicUrl: URL | undefined
}

/** 421 for a Host that is not ours, 403 for a page of somebody else. */
export function registerGuards(app: FastifyInstance, names: Names): void {
  app.addHook('onRequest', async (request) => {
    const { host = '', origin } = request.headers
    if (!isOurs(hostname(host), names)) throw new HttpRefusal(421, 'origin-refused', `this coordinator does not answer to "${host.slice(0, 80)}". Use its address as printed at start, or start it with --public-url.`)
    const changes = request.method !== 'GET' && request.method !== 'HEAD'
    const upgrades = request.headers.upgrade !== undefined
    if (origin !== undefined && (changes || upgrades) && !sameOrigin(origin, host, names)) throw new GridError('origin-refused', `a page of ${origin.slice(0, 80)} may not use this coordinator`)
  })
}

function isOurs(name: string, { host, publicUrl }: Names): boolean {
  if (name === 'localhost' || name === '127.0.0.1' || name === '::1' || name === host || name === publicUrl?.hostname) return true
  // A name can be made to point here by its owner, an address cannot.
  return WILDCARDS.has(host) && isIP(name) !== 0
}

function sameOrigin(origin: string, host: string, { publicUrl }: Names): boolean {
  return origin === `http://${host}` || origin === `https://${host}` || origin === publicUrl?.origin
}

/** "[::1]:80" → "::1" */
function hostname(host: string): string {
  return host.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1').toLowerCase()
}

export function bearer(request: FastifyRequest): string {
  const { authorization = '' } = request.headers
  return authorization.startsWith('Bearer ') ? authorization.slice('Bearer '.length) : ''
}

/** @throws GridError 'token-required' */
export function requireOwner(request: FastifyRequest, token: string): void {
  if (!equal(bearer(request), token)) throw new GridError('token-required', 'this needs the owner token that was printed at the first start: Authorization: Bearer TOKEN')
}

/** Whose session it is. @throws GridError 'session-unknown' */
export function requireSession(request: FastifyRequest, sessions: Sessions): MemberId {
  const member = sessions.authenticate(bearer(request))
  if (member === undefined) throw new GridError('session-unknown', 'this needs the session token of a volunteer: Authorization: Bearer TOKEN')
  return member
}

function equal(a: string, b: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(a), digest(b))
}
