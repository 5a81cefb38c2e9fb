// Jobs as resources: submit, list, look at, take the model home.
import { parseJob } from '@starling-grid/model'
import {
  isGridError,
  type JobId,
  JOBS_PAGE,
  MAX_RECORDS,
  pathTo,
  type RecordsPage,
  ROUTES,
} from '@starling-grid/protocol'
import { HTTP_API } from '@starling-grid/protocol/http-api'
import type { FastifyInstance } from 'fastify'
import { owns } from '../access/tokens.ts'
import type { CoordinatorClock } from '../clock.ts'
import { modelSize } from '../host/model-size.ts'
import type { RunHost } from '../host/run-host.ts'
import { viewFor } from '../host/run-view.ts'
import type { Runs } from '../jobs/runs.ts'
import type { Whereabouts } from '../owners/owners.ts'
import type { Access } from './access.ts'
import { addressOf } from './addresses.ts'
import { isKnown, sendTagged } from './conditional.ts'
import { SAME_METHOD } from './coordinators.ts'
import { sendStored } from './downloads.ts'
import { HttpRefusal, notFound } from './errors.ts'
import { EventStreams, numbered, wantsStream } from './event-stream.ts'
import { pageOf } from './paging.ts'
import { queryOf } from './queries.ts'
import { References } from './references.ts'
import { Seats } from './seats.ts'

/** Submissions in a minute from one address. */
const SUBMISSIONS_PER_MINUTE = 30

/** Exports on their way at once, and of one address: each holds a file open for as long as its reader likes. */
const MAX_EXPORTS = 32
const MAX_EXPORTS_PER_ADDRESS = 4

interface OneJob {
  Params: { id: string }
}

export interface JobRoutes {
  readonly clock: CoordinatorClock
  readonly runs: Runs
  readonly access: Access
  readonly whereIs: (job: JobId) => Whereabouts
  /** addresses of other coordinators that share their jobs */
  readonly others: () => readonly string[]
}

export function registerJobs(app: FastifyInstance, parts: JobRoutes): void {
  registerChanges(app, parts)
  registerReads(app, parts)
  registerExport(app, parts.access)
}

function registerChanges(app: FastifyInstance, { runs, access, whereIs }: JobRoutes): void {
  const references = new References(runs)
  app.post(
    ROUTES.jobs,
    {
      config: { rateLimit: { max: SUBMISSIONS_PER_MINUTE, timeWindow: 60_000 } },
      onRequest: async (request) => void access.requireOwner(request, 'jobs:write'),
    },
    async (request, reply) => {
      const holder = access.requireOwner(request, 'jobs:write')
      const { dry = false } = queryOf(HTTP_API.submit, request)
      const spec = parseJob(request.body)
      if (dry) return { model: modelSize(await runs.modelOf(spec)) }
      const source = spec.from?.job === undefined ? undefined : whereIs(spec.from.job as JobId)
      // The coordinator that has the other job has its versions at hand.
      if (typeof source === 'object') return reply.redirect(source.url + request.url, SAME_METHOD)
      const run = await references.jobOf(spec, holder.id, () =>
        runs.submit(spec, holder.id, ({ job }) => owns(holder, job.ownedBy)),
      )
      return reply
        .code(201)
        .header('location', pathTo(ROUTES.job, { id: run.job.id }))
        .send({ id: run.job.id, run: run.view() })
    },
  )

  app.post<{ Params: { id: string } }>(
    ROUTES.stop,
    { onRequest: async (request) => void access.requireOwnRun(request, request.params.id, 'jobs:write') },
    async (request, reply) => {
      const run = access.requireOwnRun(request, request.params.id, 'jobs:write')
      run.feed({ type: 'end-with-epoch' })
      return reply.code(202).send({ epochs: run.state.config.epochs })
    },
  )

  for (const wish of ['pause', 'resume'] as const)
    app.post<{ Params: { id: string } }>(
      ROUTES[wish],
      { onRequest: async (request) => void access.requireOwnRun(request, request.params.id, 'jobs:write') },
      async (request, reply) => {
        const run = access.requireOwnRun(request, request.params.id, 'jobs:write')
        runs[wish](run)
        return reply.code(202).send({ paused: run.paused })
      },
    )

  app.delete<OneJob>(
    ROUTES.job,
    { onRequest: async (request) => void access.requireOwnJob(request, request.params.id, 'jobs:write') },
    async (request, reply) => {
      const id = access.requireOwnJob(request, request.params.id, 'jobs:write')
      await runs.delete(id).catch((error: unknown) => {
        throw isGridError(error) && error.code === 'message-unexpected'
          ? new HttpRefusal(409, error.code, error.message)
          : error
      })
      return reply.code(200).send({ deleted: id })
    },
  )
}

function registerReads(app: FastifyInstance, { clock, runs, access, others }: JobRoutes): void {
  app.get(ROUTES.jobs, async (request, reply) => {
    const readable = runs
      .list()
      .map((run) => ({ run, reader: access.readerOf(request, run) }))
      .filter(({ reader }) => reader !== 'stranger')
    const { limit = JOBS_PAGE, after } = queryOf(HTTP_API.jobs, request)
    const placeOf = ({ run: { job } }: { readonly run: RunHost }) => ({ at: job.submittedAt, id: job.id })
    const { items, next } = pageOf(readable, placeOf, { limit, after })
    const jobs = items.map(({ run, reader }) => viewFor(reader, run.view()))
    const damaged = after === undefined && access.isAdmin(request) ? { damaged: runs.damaged() } : {}
    const elsewhere = after === undefined && others().length > 0 ? { others: others() } : {}
    return sendTagged(request, reply, { jobs, next, ...damaged, ...elsewhere })
  })

  app.get<OneJob>(ROUTES.job, async (request, reply) => {
    const { run, reader } = access.requireReader(request, request.params.id)
    return sendTagged(request, reply, viewFor(reader, run.view()))
  })

  app.get<OneJob>(
    ROUTES.spec,
    { onRequest: async (request) => void access.requireOwnRun(request, request.params.id, 'jobs:read') },
    async (request) => access.requireOwnRun(request, request.params.id, 'jobs:read').job.submitted,
  )

  const streams = new EventStreams(clock)
  app.get<OneJob>(ROUTES.events, async (request, reply) => {
    const { run } = access.requireReader(request, request.params.id)
    const { since = 0, ...asked } = queryOf(HTTP_API.events, request)
    const mayRead = (): boolean => access.readerOf(request, run) !== 'stranger'
    if (wantsStream(request)) return streams.open(request, reply, { run, since, mayRead })
    const { events } = await run.past()
    const recent = numbered(events).filter(({ event }) => event.at >= since)
    const { items, next } = pageOf(recent, ({ place }) => place, asked)
    return sendTagged(request, reply, { events: items.map(({ event }) => event), next })
  })

  app.get<OneJob>(ROUTES.records, async (request, reply) => {
    const { run } = access.requireReader(request, request.params.id)
    const { from = 1, limit = MAX_RECORDS } = queryOf(HTTP_API.records, request)
    const { rewinds, to } = shownRecords(run, { from, limit })
    if (isKnown(request, reply, `"${rewinds}.${from}.${to}"`)) return reply.code(304).send()
    const page = await recordsPage(run, { from, limit, rewinds, to })
    // A rewind meanwhile: records of both branches, perhaps.
    const isSame = run.history.rewindCount === rewinds && page.records.length === to - from + 1
    if (!isSame) void reply.removeHeader('etag')
    return page
  })
}

interface AskedRecords {
  readonly from: number
  readonly limit: number
}

/** What a page will hold, which tells it from all others of its job: committed records do not change. */
interface ShownRecords {
  /** read first: a page that a rewind cut has the number before it, and its reader begins anew */
  readonly rewinds: number
  /** version of its last record; below `from`: it has none */
  readonly to: number
}

function shownRecords({ history }: RunHost, { from, limit }: AskedRecords): ShownRecords {
  const { version, rewindCount } = history
  return { rewinds: rewindCount, to: Math.max(from - 1, Math.min(version.v, from + limit - 1)) }
}

async function recordsPage(
  run: RunHost,
  { from, limit, rewinds, to }: AskedRecords & ShownRecords,
): Promise<RecordsPage> {
  const records = to < from ? [] : await run.records(from, to - from + 1)
  const last = records.at(-1)?.v
  return { records, next: last === undefined || records.length < limit ? null : last + 1, rewinds }
}

function noModel({ versions }: RunHost, version: number | undefined): string {
  const steps = versions.exportable().map(({ v }) => v)
  if (version === undefined || steps.length === 0) return 'this run has no checkpoint yet; ask again after its first'
  return `version ${version} is not kept; ask for one of ${steps.join(', ')}`
}

function registerExport(app: FastifyInstance, access: Access): void {
  const seats = new Seats(MAX_EXPORTS, MAX_EXPORTS_PER_ADDRESS)
  app.route<OneJob>({
    method: ['GET', 'HEAD'],
    url: ROUTES.export,
    handler: async (request, reply) => {
      const { run } = access.requireReader(request, request.params.id)
      const { version } = queryOf(HTTP_API.export, request)
      const model = run.versions.export(version)
      if (model === undefined) throw notFound(noModel(run, version))
      return sendStored(request, reply, {
        ...model,
        fileName: `${run.job.id}-v${model.version.v}.safetensors`,
        stored: () => {
          seats.take(addressOf(request), reply)
          return model.stored()
        },
      })
    },
  })
}
