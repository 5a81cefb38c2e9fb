// Where several coordinators share their jobs: which has which, and the way to it. A caller that asks for a job of
// another one is sent there (307); a page is opened there. One that asks while a job changes hands waits a moment.
import { type CoordinatorList, GridError, type JobId, ROUTES } from '@starling-grid/protocol'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { CoordinatorClock } from '../clock.ts'
import type { Whereabouts } from '../owners/owners.ts'
import type { Access } from './access.ts'

/** ms in which a job that changes hands is opened, and between looks */
const PASSING_MS = 4000
const LOOK_MS = 100
const FOUND = 302
/** RFC 9110: the same request there, body and all */
export const SAME_METHOD = 307

export interface CoordinatorRoutes {
  readonly clock: CoordinatorClock
  readonly access: Access
  readonly whereIs: (job: JobId) => Whereabouts
  readonly isPublic: (job: JobId) => boolean
  /** `isTrusted`: with the names of private jobs */
  readonly list: (isTrusted: boolean) => CoordinatorList['coordinators']
}

export function registerCoordinators(app: FastifyInstance, parts: CoordinatorRoutes): void {
  const { access, list } = parts
  app.get(ROUTES.coordinators, async (request) => ({ coordinators: list(access.isAdmin(request)) }))
  app.addHook('onRequest', async (request, reply) => {
    const { url = '' } = request.routeOptions
    if (url !== ROUTES.job && !url.startsWith(`${ROUTES.job}/`)) return
    const { id } = request.params as { readonly id: string }
    await sendToOwner(request, reply, { ...parts, job: id as JobId })
  })
}

interface AskedJob extends CoordinatorRoutes {
  readonly job: JobId
}

/** Answers where the job is; else returns, and the route answers. @throws GridError 'coordinator-leaving' */
async function sendToOwner(request: FastifyRequest, reply: FastifyReply, asked: AskedJob): Promise<void> {
  const { access, job, isPublic } = asked
  const whereabouts = await settled(asked)
  if (whereabouts === 'here' || whereabouts === 'unknown') return
  // A caller that proves nothing is answered as if there were no such job.
  if (!isPublic(job) && !access.isKnown(request)) return
  if (whereabouts === 'soon')
    throw new GridError('coordinator-leaving', `expected a coordinator that has ${job}, got none yet; ask again`)
  await reply.redirect(whereabouts.url + request.url, SAME_METHOD)
}

async function settled({ clock, whereIs, job }: AskedJob): Promise<Whereabouts> {
  for (let waited = 0; waited < PASSING_MS && whereIs(job) === 'soon'; waited += LOOK_MS) await clock.sleep(LOOK_MS)
  return whereIs(job)
}

/** A page that names a job of another coordinator, or comes to one that has none while another has. */
export function redirectPage(
  request: FastifyRequest,
  reply: FastifyReply,
  urlFor: (job: JobId | undefined) => string | undefined,
): FastifyReply | undefined {
  const { job } = request.query as { readonly job?: unknown }
  const url = urlFor(typeof job === 'string' && job !== '' ? (job as JobId) : undefined)
  return url === undefined ? undefined : reply.redirect(url + request.url, FOUND)
}
