// Checks of every request before its route: our own name in Host (DNS rebinding), and our own page or none in Origin
// (other sites' scripts).
import { isIP } from 'node:net'
import { GridError } from '@starling-grid/protocol'
import type { FastifyInstance } from 'fastify'
import { HttpRefusal } from './errors.ts'

const WILDCARDS = new Set(['0.0.0.0', '::'])

export interface Names {
  /** the addresses that the server is bound to, and names that its operator allows */
  readonly hosts: readonly string[]
  /** how people reach it from elsewhere, for example through a proxy */
  readonly publicUrl: URL | undefined
}

/** 421 for a Host that is not ours, 403 for a page of another site. */
export function registerGuards(app: FastifyInstance, names: Names): void {
  app.addHook('onRequest', async (request) => {
    const { host = '', origin } = request.headers
    if (request.raw.rawHeaders.filter((text, i) => i % 2 === 0 && text.toLowerCase() === 'host').length > 1)
      throw new HttpRefusal(400, 'message-malformed', 'expected one Host header, got none or several')
    if (!isOurs(hostname(host), names))
      throw new HttpRefusal(
        421,
        'origin-refused',
        `expected the address of this coordinator, got "${host.slice(0, 80)}"; ` +
          'use the address that it prints at start, or start it with --public-url or --allowed-host',
      )
    const changes = request.method !== 'GET' && request.method !== 'HEAD'
    const upgrades = request.headers.upgrade !== undefined
    if (origin !== undefined && (changes || upgrades) && !sameOrigin(origin, host, names))
      throw new GridError(
        'origin-refused',
        `expected a page of this coordinator, got one of ${origin.slice(0, 80)}; ` +
          'open the address that the coordinator prints',
      )
  })
}

function isOurs(name: string, { hosts, publicUrl }: Names): boolean {
  if (name === 'localhost' || name === '127.0.0.1' || name === '::1' || name === publicUrl?.hostname) return true
  // A name can be made to point here by its owner, an address cannot.
  return hosts.includes(name) || (isIP(name) !== 0 && hosts.some((host) => WILDCARDS.has(host)))
}

function sameOrigin(origin: string, host: string, { publicUrl }: Names): boolean {
  return origin === `http://${host}` || origin === `https://${host}` || origin === publicUrl?.origin
}

/** "[::1]:80" → "::1" */
function hostname(host: string): string {
  return host
    .replace(/:\d+$/, '')
    .replace(/^\[(.*)\]$/, '$1')
    .toLowerCase()
}
