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
/** ms in which a coordinator that is gone loses its jobs */
const LEFT_MS = 8000
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

export interface PageParts {
  readonly clock: Pick<CoordinatorClock, 'sleep'>
  /** the coordinator whose page shows this job, or any job; undefined: this one's does */
  readonly elsewhere: (job: JobId | undefined) => string | undefined
}

/**
 * Where a page opens that names a job of another coordinator, or comes to one that has none while another has;
 * undefined: here. `left`: the one that did not answer the page, which is not sent back there.
 */
export async function pageAddress(
  { query, url }: FastifyRequest,
  { clock, elsewhere }: PageParts,
): Promise<string | undefined> {
  const { job, left } = query as { readonly job?: unknown; readonly left?: unknown }
  const find = (): string | undefined => elsewhere(typeof job === 'string' && job !== '' ? (job as JobId) : undefined)
  for (let waited = 0; waited < LEFT_MS && left !== undefined && find() === left; waited += LOOK_MS)
    await clock.sleep(LOOK_MS)
  const other = find()
  return other === undefined || other === left ? undefined : other + url
}
