// Bodies of requests: JSON for resources, bytes for gradients and versions, nothing else, each bounded before it is
// read.
import type { Readable } from 'node:stream'
import { GridError, parseJson } from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { HttpRefusal } from './errors.ts'

/** Bytes of a job as JSON; a model of a thousand layers is about 100 kB. */
export const MAX_JSON_BYTES = 512 * 1024

export function registerBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'string', bodyLimit: MAX_JSON_BYTES },
    async (_: FastifyRequest, text: string) => parseJson(text, MAX_JSON_BYTES, 'the body'),
  )
  app.addContentTypeParser('application/octet-stream', async (request: FastifyRequest, body: Readable) => {
    const bytes = new Uint8Array(requireLength(request, request.routeOptions.bodyLimit))
    await fill(bytes, body)
    return bytes
  })
}

/**
 * Each part is copied when it arrives: to join 256 MiB at the end would hold the event loop. By events: an iterator
 * makes fifteen objects for a small push.
 */
function fill(bytes: Uint8Array, body: Readable): Promise<void> {
  return new Promise((resolve, reject) => {
    let at = 0
    body.on('data', (part: Uint8Array) => {
      if (at + part.byteLength > bytes.byteLength) return void body.destroy(new Error('more than was announced'))
      bytes.set(part, at)
      at += part.byteLength
    })
    body.once('end', resolve)
    body.once('error', reject)
    body.once('close', () => reject(new Error('the caller left before the end of its body')))
  })
}

/**
 * The announced length, checked before the body is read.
 * @throws GridError 'message-malformed' without a length or with an encoding, 'message-too-large'
 */
export function requireLength(request: FastifyRequest, maxBytes: number): number {
  const { 'content-length': length, 'content-encoding': encoding } = request.headers
  if (encoding !== undefined)
    throw new HttpRefusal(
      415,
      'message-malformed',
      `expected a body without encoding, got ${encoding.slice(0, 20)}; send it as it is`,
    )
  if (length === undefined)
    throw new HttpRefusal(
      411,
      'message-malformed',
      'expected a body with a Content-Length, got none; announce its length',
    )
  if (Number(length) > maxBytes)
    throw new GridError('message-too-large', `expected a body of at most ${maxBytes} bytes, got ${length}`)
  return Number(length)
}

export function bytesOf(request: FastifyRequest): Uint8Array {
  if (request.body instanceof Uint8Array) return request.body
  throw new HttpRefusal(
    415,
    'message-malformed',
    'expected a body of application/octet-stream, got another type; name that type',
  )
}
