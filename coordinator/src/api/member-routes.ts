// What members fetch and send beside their socket.
import type { FastifyInstance } from 'fastify'
import { registerPushes } from './pushes.ts'
import { registerRows } from './rows.ts'
import { registerShards, type ShardRoutes } from './shards.ts'
import { registerVersions } from './versions.ts'

export function registerMemberRoutes(app: FastifyInstance, { access, blobs }: ShardRoutes): void {
  registerShards(app, { access, blobs })
  registerVersions(app, access)
  registerPushes(app, access)
  registerRows(app, access)
}
