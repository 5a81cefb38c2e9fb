// Shards of datasets: named by their content, so they never change and may be cached for ever.
import { type Sha256, sha256Name } from '@starling-grid/protocol'
import type { FastifyInstance } from 'fastify'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { Runs } from '../runs.ts'
import { notFound } from './errors.ts'

const YEAR_SECONDS = 31_536_000

export interface ShardRoutes {
  readonly runs: Runs
  readonly blobs: BlobStore
}

export function registerShards(app: FastifyInstance, { runs, blobs }: ShardRoutes): void {
  app.get<{ Params: { sha256: string } }>('/api/shards/:sha256', async ({ params, headers }, reply) => {
    const name = sha256Name(params.sha256)
    const bytes = runs.isShard(name) ? await blobs.get(name) : undefined
    if (bytes === undefined) throw notFound('there is no such shard')
    const etag = `"${name}"`
    void reply.headers({ etag, 'cache-control': `public, max-age=${YEAR_SECONDS}, immutable`, 'accept-ranges': 'bytes' }).type('application/octet-stream')
    if (headers['if-none-match'] === etag) return reply.code(304).send()
    const range = readRange(headers.range, bytes.byteLength, headers['if-range'], name)
    if (range === undefined) return reply.send(bytes)
    if (range === 'unsatisfiable') return reply.code(416).header('content-range', `bytes */${bytes.byteLength}`).send()
    return reply.code(206).header('content-range', `bytes ${range.first}-${range.last}/${bytes.byteLength}`).send(bytes.subarray(range.first, range.last + 1))
  })
}

/** One range of bytes (RFC 9110 §14); several, or anything else, is answered with the whole. */
function readRange(range: string | undefined, length: number, ifRange: unknown, name: Sha256): { readonly first: number; readonly last: number } | 'unsatisfiable' | undefined {
  const [, from = '', to = ''] = /^bytes=(\d*)-(\d*)$/.exec(range ?? '') ?? []
  if ((from === '' && to === '') || (ifRange !== undefined && ifRange !== `"${name}"`)) return undefined
  const first = from === '' ? Math.max(0, length - Number(to)) : Number(from)
  const last = from === '' || to === '' ? length - 1 : Math.min(Number(to), length - 1)
  if (first <= last) return { first, last }
  return first >= length || to === '0' ? 'unsatisfiable' : undefined
}
