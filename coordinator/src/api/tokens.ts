// Tokens as resources: an admin makes, lists and revokes them.
import { parse, ROUTES, TokenAskedSchema, type TokenView } from '@starling-grid/protocol'
import { HTTP_API } from '@starling-grid/protocol/http-api'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { TokenBook } from '../access/tokens.ts'
import type { Access } from './access.ts'
import { notFound } from './errors.ts'
import { pageOf } from './paging.ts'
import { queryOf } from './queries.ts'

export interface TokenRoutes {
  readonly access: Access
  readonly tokens: TokenBook
}

export function registerTokens(app: FastifyInstance, { access, tokens }: TokenRoutes): void {
  const onRequest = async (request: FastifyRequest): Promise<void> => void access.requireOwner(request, 'admin')
  app.post(ROUTES.tokens, { onRequest }, async ({ body }, reply) => {
    const made = await tokens.create(parse(TokenAskedSchema, body, 'a token'))
    return reply.code(201).header('cache-control', 'no-store').send(made)
  })
  app.get(ROUTES.tokens, { onRequest }, async (request) => {
    const placeOf = ({ createdAt, id }: TokenView) => ({ at: createdAt, id })
    const { items, next } = pageOf(tokens.list(), placeOf, queryOf(HTTP_API.tokens, request))
    return { tokens: items, next }
  })
  app.delete<{ Params: { id: string } }>(ROUTES.token, { onRequest }, async ({ params: { id } }) => {
    if (!(await tokens.revoke(id))) throw notFound('there is no such token')
    return { revoked: id }
  })
}
