// What members fetch and send beside their socket.
import { ROUTES } from '@starling-grid/protocol'
import type { FastifyInstance } from 'fastify'
import { registerPushes } from './pushes.ts'
import { registerRows } from './rows.ts'
import { registerShards, type ShardRoutes } from './shards.ts'
import { registerVersions } from './versions.ts'

const NO_CONTENT = 204

export function registerMemberRoutes(app: FastifyInstance, { access, blobs }: ShardRoutes): void {
  registerShards(app, { access, blobs })
  registerVersions(app, access)
  registerPushes(app, access)
  registerRows(app, access)
  app.post(ROUTES.leave, async (request, reply) => {
    access.leave(request)
    return reply.code(NO_CONTENT).send()
  })
}
