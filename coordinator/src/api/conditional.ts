// Conditional requests (RFC 9110 §13): a caller that names what it has gets 304 in place of the same again.
import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** Bytes of a digest that tell one answer from the other. */
const TAG_BYTES = 18

/** Says which representation this is, and who may keep it; whether the caller has it already. */
export function isKnown(request: FastifyRequest, reply: FastifyReply, etag: string): boolean {
  const { authorization, 'if-none-match': known = '' } = request.headers
  void reply.header('etag', etag).header('vary', 'accept, authorization')
  // Whatever is kept is asked for again before it is used: a token may be over, a job no longer public.
  if (!reply.hasHeader('cache-control'))
    void reply.header('cache-control', authorization === undefined ? 'no-cache' : 'private, no-cache')
  return known.trim() === '*' || known.split(',').some((one) => one.trim().replace(/^W\//, '') === etag)
}

/** A JSON answer that is known by its bytes: what a run shows changes with more than its version. */
export function sendTagged(request: FastifyRequest, reply: FastifyReply, answer: unknown): FastifyReply {
  const text = JSON.stringify(answer)
  if (isKnown(request, reply, tagOf(text))) return reply.code(304).send()
  return reply.type('application/json').send(text)
}

export function tagOf(text: string): string {
  return `"${createHash('sha256').update(text).digest().subarray(0, TAG_BYTES).toString('base64url')}"`
}
