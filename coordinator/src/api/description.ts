// The interface, described by the coordinator that serves it.
import { ROUTES } from '@starling-grid/protocol'
import { openApiDocument } from '@starling-grid/protocol/openapi'
import type { FastifyInstance } from 'fastify'

export function registerDescription(app: FastifyInstance): void {
  const document = JSON.stringify(openApiDocument())
  app.get(ROUTES.openapi, async (_, reply) => reply.type('application/json').send(document))
}
