// The interface, described by the coordinator that serves it.
import { ROUTES } from '@starling-grid/protocol'
import { openApiDocument } from '@starling-grid/protocol/openapi'
import type { FastifyInstance } from 'fastify'
import { isKnown, tagOf } from './conditional.ts'

export function registerDescription(app: FastifyInstance): void {
  const document = JSON.stringify(openApiDocument())
  const etag = tagOf(document)
  app.get(ROUTES.openapi, async (request, reply) =>
    isKnown(request, reply, etag) ? reply.code(304).send() : reply.type('application/json').send(document),
  )
}
