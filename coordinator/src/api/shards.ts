// Shards of datasets: named by their content, so they never change and may be cached for ever.
import { ROUTES, sha256Name } from '@starling-grid/protocol'
import type { FastifyInstance } from 'fastify'
import type { BlobStore } from '../blobs/blob-store.ts'
import { WantedBlobs } from '../blobs/wanted.ts'
import type { Access } from './access.ts'
import { sendStored } from './downloads.ts'
import { notFound } from './errors.ts'

const YEAR_SECONDS = 31_536_000

export interface ShardRoutes {
  readonly access: Access
  readonly blobs: BlobStore
}

export function registerShards(app: FastifyInstance, { access, blobs }: ShardRoutes): void {
  const wanted = new WantedBlobs(blobs)
  app.route<{ Params: { sha256: string } }>({
    method: ['GET', 'HEAD'],
    url: ROUTES.shard,
    handler: async (request, reply) => {
      const name = sha256Name(request.params.sha256)
      const caches = access.shardFor(request, name)
      const found = caches === undefined ? undefined : await blobs.stat(name)
      if (found === undefined) throw notFound('there is no such shard, or it belongs to a job that is not yours')
      return sendStored(request, reply, {
        etag: name,
        bytes: found.bytes,
        cacheControl: `${caches}, max-age=${YEAR_SECONDS}, immutable`,
        stored: async () => {
          const stored = await wanted.read(name, found.bytes)
          if (stored === undefined) throw notFound('this shard is gone')
          return stored
        },
      })
    },
  })
}
