// Bytes that leave: with their name as etag, whole or in part, as a stream. HEAD and 304 need no bytes.
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Stored } from '../blobs/stored.ts'
import { isKnown } from './conditional.ts'
import { HttpRefusal } from './errors.ts'

export interface Download {
  readonly etag: string
  /** undefined: not known before it is made, which HEAD does not do */
  readonly bytes: number | undefined
  readonly cacheControl?: string
  readonly fileName?: string
  readonly stored: () => Promise<Stored>
}

export async function sendStored(
  request: FastifyRequest,
  reply: FastifyReply,
  { etag: name, bytes, cacheControl, fileName, stored }: Download,
): Promise<FastifyReply> {
  const { headers, method } = request
  const etag = `"${name}"`
  void reply.header('accept-ranges', 'bytes').type('application/octet-stream')
  if (cacheControl !== undefined) void reply.header('cache-control', cacheControl)
  if (fileName !== undefined) void reply.header('content-disposition', `attachment; filename="${fileName}"`)
  if (isKnown(request, reply, etag)) return reply.code(304).send()
  if (method === 'HEAD') return (bytes === undefined ? reply : reply.header('content-length', bytes)).send()
  const found = await stored()
  const range = readRange(headers.range, found.bytes, headers['if-range'], etag)
  if (range === 'unsatisfiable') {
    void reply.header('content-range', `bytes */${found.bytes}`)
    throw new HttpRefusal(
      416,
      'message-malformed',
      `expected a range within ${found.bytes} bytes, got ${String(headers.range).slice(0, 40)}`,
    )
  }
  const { first, last } = range ?? { first: 0, last: found.bytes - 1 }
  if (range !== undefined) void reply.code(206).header('content-range', `bytes ${first}-${last}/${found.bytes}`)
  void reply.header('content-length', last - first + 1)
  return reply.send(found.open(first, last))
}

/** One range of bytes (RFC 9110 §14); several, or anything else, is answered with the whole. */
function readRange(
  range: string | undefined,
  length: number,
  ifRange: unknown,
  etag: string,
): { readonly first: number; readonly last: number } | 'unsatisfiable' | undefined {
  const [, from = '', to = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(range ?? '') ?? []
  if ((from === '' && to === '') || (ifRange !== undefined && ifRange !== etag)) return undefined
  const first = from === '' ? Math.max(0, length - Number(to)) : Number(from)
  const last = from === '' || to === '' ? length - 1 : Math.min(Number(to), length - 1)
  if (first <= last) return { first, last }
  return first >= length || to === '0' ? 'unsatisfiable' : undefined
}
