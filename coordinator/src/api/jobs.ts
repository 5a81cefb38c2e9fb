// Jobs as resources: submit, list, look at, take the model home.
import { parseJob, parseModelSpec } from '@starling-grid/model'
import { GridError, MAX_RECORDS, pathTo, type RecordsPage, ROUTES } from '@starling-grid/protocol'
import type { FastifyInstance } from 'fastify'
import { modelSize } from '../host/model-size.ts'
import type { RunHost } from '../host/run-host.ts'
import { viewFor } from '../host/run-view.ts'
import type { Runs } from '../jobs/runs.ts'
import type { Access } from './access.ts'
import { addressOf } from './addresses.ts'
import { sendStored } from './downloads.ts'
import { notFound } from './errors.ts'
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
  readonly runs: Runs
  readonly access: Access
}

export function registerJobs(app: FastifyInstance, { runs, access }: JobRoutes): void {
  app.post<{ Querystring: { dry?: string } }>(
    ROUTES.jobs,
    {
      config: { rateLimit: { max: SUBMISSIONS_PER_MINUTE, timeWindow: 60_000 } },
      onRequest: async (request) => access.requireOwner(request),
    },
    async (request, reply) => {
      const spec = parseJob(request.body)
      if (isDry(request.query)) return { model: modelSize(parseModelSpec(spec.model)) }
      const run = await runs.submit(spec)
      return reply
        .code(201)
        .header('location', pathTo(ROUTES.job, { id: run.job.id }))
        .send({ id: run.job.id, run: run.view() })
    },
  )

  app.post<{ Params: { id: string } }>(
    ROUTES.stop,
    { onRequest: async (request) => access.requireOwner(request) },
    async ({ params }, reply) => {
      const run = access.requireRun(params.id)
      run.feed({ type: 'end-with-epoch' })
      return reply.code(202).send({ epochs: run.state.config.epochs })
    },
  )

  for (const wish of ['pause', 'resume'] as const)
    app.post<{ Params: { id: string } }>(
      ROUTES[wish],
      { onRequest: async (request) => access.requireOwner(request) },
      async ({ params }, reply) => {
        const run = access.requireRun(params.id)
        runs[wish](run)
        return reply.code(202).send({ paused: run.paused })
      },
    )

  app.get(ROUTES.jobs, async (request) => {
    const readable = runs
      .list()
      .map((run) => ({ run, reader: access.readerOf(request, run) }))
      .filter(({ reader }) => reader !== 'stranger')
    const jobs = readable.map(({ run, reader }) => viewFor(reader, run.view()))
    return access.isOwner(request) ? { jobs, damaged: runs.damaged() } : { jobs }
  })

  app.get<OneJob>(ROUTES.job, async (request) => {
    const { run, reader } = access.requireReader(request, request.params.id)
    return viewFor(reader, run.view())
  })

  app.get<OneJob & { Querystring: { since?: string } }>(ROUTES.events, async (request) => {
    const { run } = access.requireReader(request, request.params.id)
    const since = countIn(request.query.since, { what: 'since', least: 0, otherwise: 0, most: Number.MAX_SAFE_INTEGER })
    const { events } = await run.past()
    return { events: events.filter(({ at }) => at >= since) }
  })

  app.get<OneJob & { Querystring: { from?: string; limit?: string } }>(ROUTES.records, async (request) => {
    const { run } = access.requireReader(request, request.params.id)
    return recordsPage(run, {
      from: countIn(request.query.from, { what: 'from', least: 1, otherwise: 1, most: Number.MAX_SAFE_INTEGER }),
      limit: countIn(request.query.limit, { what: 'limit', least: 1, otherwise: MAX_RECORDS, most: MAX_RECORDS }),
    })
  })

  registerExport(app, access)
}

/** `rewinds` is read first: a page that a rewind cut has the number before it, and its reader begins anew. */
async function recordsPage(
  run: RunHost,
  { from, limit }: { readonly from: number; readonly limit: number },
): Promise<RecordsPage> {
  const rewinds = run.history.rewindCount
  const records = await run.records(from, limit)
  const last = records.at(-1)?.v
  return { records, next: last === undefined || records.length < limit ? null : last + 1, rewinds }
}

interface CountBounds {
  readonly what: string
  readonly least: number
  readonly otherwise: number
  readonly most: number
}

/** @throws GridError 'message-malformed' */
function countIn(text: string | undefined, { what, least, otherwise, most }: CountBounds): number {
  if (text === undefined) return otherwise
  const count = /^(0|[1-9]\d{0,15})$/.test(text) ? Number(text) : Number.NaN
  if (!(count >= least && count <= most))
    throw new GridError(
      'message-malformed',
      `expected \`${what}\` of ${least} to ${most}, got ${text.slice(0, 20)}; ask for another page`,
    )
  return count
}

function registerExport(app: FastifyInstance, access: Access): void {
  const seats = new Seats(MAX_EXPORTS, MAX_EXPORTS_PER_ADDRESS)
  app.route<OneJob>({
    method: ['GET', 'HEAD'],
    url: ROUTES.export,
    handler: async (request, reply) => {
      const { run } = access.requireReader(request, request.params.id)
      const model = run.versions.export()
      if (model === undefined) throw notFound('this run has no checkpoint yet; ask again after its first')
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

/** Whether a job is only to be checked; a misspelt wish must not start a run. */
function isDry({ dry }: { readonly dry?: string }): boolean {
  if (dry === undefined || dry === 'true') return dry === 'true'
  throw new GridError('job-invalid', 'expected `dry` to be true, got another value; leave it out to submit the job')
}
