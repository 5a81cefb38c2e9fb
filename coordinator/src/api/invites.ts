// Invites as resources. An admin invites to everything; the holder of another token to its own jobs.
import { GridError, InviteAskedSchema, type InviteView, parse, ROUTES } from '@starling-grid/protocol'
import { HTTP_API } from '@starling-grid/protocol/http-api'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { InviteBook } from '../access/invites.ts'
import { allows } from '../access/tokens.ts'
import type { Access } from './access.ts'
import { notFound } from './errors.ts'
import { pageOf } from './paging.ts'
import { queryOf } from './queries.ts'

export interface InviteRoutes {
  readonly access: Access
  readonly invites: InviteBook
  /** how people reach this coordinator; undefined: as the caller does */
  readonly publicUrl: URL | undefined
}

export function registerInvites(app: FastifyInstance, { access, invites, publicUrl }: InviteRoutes): void {
  const onRequest = async (request: FastifyRequest): Promise<void> => void access.requireOwner(request, 'jobs:write')
  const isOfCaller = (request: FastifyRequest, { job }: InviteView): boolean =>
    allows(access.requireOwner(request, 'jobs:write'), 'admin') || (job !== null && access.ownsJob(request, job))

  app.post(ROUTES.invites, { onRequest }, async (request, reply) => {
    const asked = parse(InviteAskedSchema, request.body, 'an invite')
    if (asked.job === undefined) requireAdmin(access, request)
    else access.requireOwnRun(request, asked.job, 'jobs:write')
    const { code, view } = await invites.create(asked)
    const origin = publicUrl?.origin ?? `${request.protocol}://${request.headers.host ?? ''}`
    return reply
      .code(201)
      .header('cache-control', 'no-store')
      .send({ code, link: `${origin}/#invite=${code}`, view })
  })
  app.get(ROUTES.invites, { onRequest }, async (request) => {
    const own = invites.list().filter((invite) => isOfCaller(request, invite))
    const placeOf = ({ createdAt, id }: InviteView) => ({ at: createdAt, id })
    const { items, next } = pageOf(own, placeOf, queryOf(HTTP_API.invites, request))
    return { invites: items, next }
  })
  app.delete<{ Params: { id: string } }>(ROUTES.invite, { onRequest }, async (request) => {
    const { id } = request.params
    const invite = invites.list().find((one) => one.id === id)
    if (invite === undefined || !isOfCaller(request, invite)) throw notFound('there is no such invite')
    await invites.revoke(id)
    return { revoked: id }
  })
}

/** @throws GridError 'scope-missing' */
function requireAdmin(access: Access, request: FastifyRequest): void {
  if (allows(access.requireOwner(request, 'jobs:write'), 'admin')) return
  throw new GridError(
    'scope-missing',
    'expected `job` with a token that is no admin, got an invite to all jobs; name one of your jobs',
  )
}
