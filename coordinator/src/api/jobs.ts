// Jobs as resources: submit, list, look at, take the model home.
import { parseModelSpec } from '@starling-grid/model'
import { GridError, parseJobSpec } from '@starling-grid/protocol'
import type { FastifyInstance } from 'fastify'
import { modelSize } from '../model-size.ts'
import type { RunHost } from '../run-host.ts'
import type { Runs } from '../runs.ts'
import type { Sessions } from '../sessions.ts'
import { notFound } from './errors.ts'
import { requireOwner } from './guards.ts'

/** Submissions in a minute from one address: also the rate at which tokens can be guessed. */
const SUBMISSIONS_PER_MINUTE = 30

/** What routes for members of a run need. */
export interface MemberRoutes {
  readonly runs: Runs
  readonly sessions: Sessions
}

export interface JobRoutes {
  readonly runs: Runs
  readonly token: string
}

export function registerJobs(app: FastifyInstance, { runs, token }: JobRoutes): void {
  app.post<{ Querystring: { dry?: string } }>('/api/jobs', {
    config: { rateLimit: { max: SUBMISSIONS_PER_MINUTE, timeWindow: 60_000 } },
    onRequest: async (request) => requireOwner(request, token),
  }, async (request, reply) => {
    const spec = parseJobSpec(request.body)
    if (isDry(request.query)) return { model: modelSize(parseModelSpec(spec.model)) }
    const run = await runs.submit(spec)
    return reply.code(201).header('location', `/api/jobs/${run.job.id}`).send({ id: run.job.id, run: run.view() })
  })

  app.post<{ Params: { id: string } }>('/api/jobs/:id/stop', { onRequest: async (request) => requireOwner(request, token) }, async ({ params }, reply) => {
    const run = runOf(runs, params.id)
    run.feed({ type: 'end-with-epoch' })
    return reply.code(202).send({ epochs: run.state.config.epochs })
  })

  app.get('/api/jobs', async () => ({ jobs: runs.list().map((run) => run.view()), damaged: runs.damaged() }))

  app.get<{ Params: { id: string } }>('/api/jobs/:id', async ({ params }) => runOf(runs, params.id).view())

  app.get<{ Params: { id: string } }>('/api/jobs/:id/records', async ({ params }) => ({ records: runOf(runs, params.id).records }))

  app.get<{ Params: { id: string } }>('/api/jobs/:id/export', async ({ params }, reply) => {
    const run = runOf(runs, params.id)
    const model = await run.versions.export()
    if (model === undefined) throw notFound('this run has no checkpoint yet; ask again after its first')
    return reply
      .type('application/octet-stream')
      .header('content-disposition', `attachment; filename="${run.job.id}-v${model.version.v}.safetensors"`)
      .header('etag', `"${model.version.id}"`)
      .send(model.bytes)
  })
}

/** Whether a job is only to be checked; a misspelt wish must not start a run. */
function isDry({ dry }: { readonly dry?: string }): boolean {
  if (dry === undefined || dry === 'true') return dry === 'true'
  throw new GridError('job-invalid', '`dry` expects true, or to be left out')
}

/** @throws HttpRefusal 404; GridError 'journal-damaged' */
export function runOf(runs: Runs, id: string): RunHost {
  const run = runs.find(id)
  const damaged = runs.damaged().find((job) => job.id === id)
  if (damaged !== undefined) throw new GridError(damaged.code, damaged.message)
  if (run === undefined) throw notFound('there is no such job')
  return run
}
