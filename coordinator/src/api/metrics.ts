// GET /metrics in Prometheus' text format, and what it counts of requests and connections. Who reads without a token is
// shown private jobs under names that tell nothing: a job's id holds its name.
import { createHmac } from 'node:crypto'
import type { Socket } from 'node:net'
import { GridError, type JobId, ROUTES } from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { prometheusContentType } from 'prom-client'
import type { Presence } from '../host/run-view.ts'
import type { Runs } from '../jobs/runs.ts'
import { type CoordinatorJobs, gaugesOf } from '../metrics/gauges.ts'
import type { Meter } from '../metrics/meter.ts'
import { processMetrics } from '../metrics/process.ts'
import { type Access, bearer, equal } from './access.ts'

/** Who reads /metrics without a token: processes of this machine, none, or anyone. */
export type MetricsReaders = 'local' | 'token' | 'public'

export interface MetricsOptions {
  /** absent: 'local' */
  readonly readers?: MetricsReaders
  /** good for /metrics alone, beside the owner's */
  readonly token?: string | undefined
}

export interface MetricsParts extends MetricsOptions {
  readonly meter: Meter
  readonly runs: Runs
  readonly access: Access
  readonly present: () => Iterable<Presence>
  readonly relayedLinks: () => number
  /** the address is of this machine, and no proxy's that stands in front */
  readonly isLocal: (address: string) => boolean
  /** of the names of private jobs */
  readonly secret: string
  /** those that share their jobs; `isTrusted`: with the names of private ones */
  readonly coordinators: (isTrusted: boolean) => readonly CoordinatorJobs[]
}

/** Scrapes in a minute from one address: each reads the state of all open jobs. */
const SCRAPES_PER_MINUTE = 120
/** Hex digits of a private job's name: no two of a coordinator's open jobs share them. */
const PSEUDONYM_LENGTH = 8

export function registerMetrics(app: FastifyInstance, parts: MetricsParts): void {
  const traffic = measureRequests(app, parts.meter)
  app.get(
    ROUTES.metrics,
    { config: { rateLimit: { max: SCRAPES_PER_MINUTE, timeWindow: 60_000 } } },
    async (request, reply) => {
      const isTrusted = mayRead(request, parts)
      const { runs, present, relayedLinks } = parts
      const gauges = gaugesOf({
        runs: runs.list(),
        damaged: runs.damaged().length,
        present: present(),
        relayedLinks: relayedLinks(),
        ...traffic(),
        labelOf: ({ job: { id, spec } }) => (isTrusted ? id : shownJobId(id, spec.public === true, parts.secret)),
        coordinators: parts.coordinators(isTrusted),
      })
      const texts = await Promise.all([parts.meter.registry, gauges, processMetrics()].map((one) => one.metrics()))
      return reply.type(prometheusContentType).header('cache-control', 'no-store').send(texts.join(''))
    },
  )
}

/**
 * Whether the reader proved that it may see names of private jobs. @throws GridError 'token-required', 'rate-exceeded'
 */
function mayRead(request: FastifyRequest, { readers = 'local', token, access, isLocal }: MetricsParts): boolean {
  const given = bearer(request)
  if (token !== undefined && equal(given, token)) return true
  if (given !== '' && access.isAdmin(request)) return true
  if (readers === 'public' || (readers === 'local' && isLocal(request.ip) && !isForwarded(request))) return false
  throw new GridError(
    'token-required',
    'expected the owner token or the token of --metrics-token-file, got none or a wrong one; ' +
      'send it as Authorization: Bearer TOKEN, or scrape from the machine of the coordinator',
  )
}

function isForwarded({ headers }: FastifyRequest): boolean {
  return headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined
}

/** Who proves nothing is shown a private job under a name that tells nothing. `secret`: of those names. */
export function shownJobId(id: JobId, isPublic: boolean, secret: string): string {
  if (isPublic) return id
  return `private-${createHmac('sha256', secret).update(id).digest('hex').slice(0, PSEUDONYM_LENGTH)}`
}

interface Traffic {
  /** bytes since the start, of WebSockets, too */
  readonly received: number
  readonly sent: number
}

function measureRequests(app: FastifyInstance, meter: Meter): () => Traffic {
  app.addHook('onResponse', async (request, reply) => {
    const { method, routeOptions } = request
    // An upgrade that was taken lasts as long as its session.
    if (reply.statusCode === 101) return
    meter.answered({
      method,
      route: routeOptions.url,
      status: reply.statusCode,
      seconds: reply.elapsedTime / 1000,
    })
  })
  const open = new Set<Socket>()
  const closed = { received: 0, sent: 0 }
  app.server.on('connection', (socket: Socket) => {
    open.add(socket)
    socket.once('close', () => {
      open.delete(socket)
      closed.received += socket.bytesRead
      closed.sent += socket.bytesWritten
    })
  })
  return () => {
    const sum = { ...closed }
    for (const { bytesRead, bytesWritten } of open) {
      sum.received += bytesRead
      sum.sent += bytesWritten
    }
    return sum
  }
}
