// Versions over HTTP: learners and async volunteers download, ring members upload checkpoints.
import { type MemberId, parse, type VersionId, type VersionRef, VersionRefSchema } from '@starling-grid/protocol'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { RunHost } from '../run-host.ts'
import { bytesOf, requireLength } from './bodies.ts'
import { HttpRefusal, notFound } from './errors.ts'
import { requireSession } from './guards.ts'
import { type MemberRoutes, runOf } from './jobs.ts'

/** Bytes of the largest version that any model within our limits has: three vectors of 256 MiB and a header. */
const MAX_VERSION_BYTES = 1024 * 1024 * 1024
/** Whole states that are being downloaded at once: each is in memory until it left. The others of a herd wait. */
const MAX_DOWNLOADS = 8

const CREATED = 201

interface Download {
  Params: { id: string; versionId: string }
  Querystring: { part?: string }
}
interface Upload {
  Params: { id: string; v: string; versionId: string }
}

export function registerVersions(app: FastifyInstance, routes: MemberRoutes): void {
  registerDownload(app, routes)
  registerUpload(app, routes)
}

function registerDownload(app: FastifyInstance, { runs, sessions }: MemberRoutes): void {
  let downloads = 0
  app.get<Download>('/api/jobs/:id/versions/:versionId', { onRequest: async (request) => void requireSession(request, sessions) }, async (request, reply) => {
    const { params, query } = request
    const { versions } = runOf(runs, params.id)
    const id = params.versionId as VersionId // only compared with ids of versions that we have
    if (query.part === 'parameters') return reply.type('application/octet-stream').header('etag', `"${id}-parameters"`).send(kept(await versions.parameters(id)))
    if (downloads >= MAX_DOWNLOADS) throw new HttpRefusal(429, 'rate-exceeded', `${MAX_DOWNLOADS} members are downloading a state; ask again in a moment`)
    downloads++
    reply.raw.once('close', () => downloads--)
    return sendFrom(request, reply.type('application/octet-stream').header('etag', `"${id}"`), kept(await versions.state(id)))
  })
}

function registerUpload(app: FastifyInstance, { runs, sessions }: MemberRoutes): void {
  const uploading = new Set<MemberId>()
  app.put<Upload>('/api/jobs/:id/versions/:v/:versionId', {
    bodyLimit: MAX_VERSION_BYTES,
    // All of this before the first byte of the body.
    onRequest: async (request, reply) => {
      const { params } = request
      const member = requireSession(request, sessions)
      const { versions } = runOf(runs, params.id)
      if (!versions.expects(member, readVersion(params))) throw new HttpRefusal(409, 'message-unexpected', 'this version was not asked of this member, or not any more')
      requireLength(request, versions.maxBytes)
      if (uploading.has(member)) throw new HttpRefusal(429, 'rate-exceeded', 'one upload at a time')
      begin(runOf(runs, params.id), { member, version: readVersion(params), reply })
    },
  }, async (request, reply) => {
    const member = requireSession(request, sessions)
    const run = runOf(runs, request.params.id)
    const stored = await run.versions.accept(readVersion(request.params), bytesOf(request))
    run.requireOwned()
    run.feed({ type: 'uploaded', member, ...stored })
    return reply.code(CREATED).send({ sha256: stored.blob })
  })

  /** From the first byte to the last of the answer, also when the connection breaks between them. */
  function begin(run: RunHost, { member, version, reply }: { readonly member: MemberId; readonly version: VersionRef; readonly reply: FastifyReply }): void {
    uploading.add(member)
    run.feed({ type: 'upload-begun', member, version })
    reply.raw.once('close', () => {
      uploading.delete(member)
      if (reply.raw.statusCode !== CREATED || !reply.raw.writableEnded) run.feed({ type: 'upload-failed', member, version })
    })
  }
}

function kept(bytes: Uint8Array | undefined): Uint8Array {
  if (bytes === undefined) throw new HttpRefusal(404, 'base-stale', 'this version is not kept here; ask for work again')
  return bytes
}

function readVersion({ v, versionId }: Upload['Params']) {
  if (!/^[0-9]{1,15}$/.test(v)) throw notFound('there is no such version')
  return parse(VersionRefSchema, { v: Number(v), id: versionId }, 'the version')
}

/** `Range: bytes=N-`: a member that has the first N bytes already. Other ranges are answered with everything (RFC 9110 §14.2). */
function sendFrom(request: FastifyRequest, reply: FastifyReply, bytes: Uint8Array): FastifyReply {
  const from = Number(/^bytes=([0-9]{1,15})-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
  if (from === 0) return reply.header('accept-ranges', 'bytes').send(bytes)
  if (from >= bytes.byteLength) throw new HttpRefusal(416, 'message-malformed', `there are ${bytes.byteLength} bytes, asked for those from ${from} on`)
  return reply.code(206).header('content-range', `bytes ${from}-${bytes.byteLength - 1}/${bytes.byteLength}`).send(bytes.subarray(from))
}
