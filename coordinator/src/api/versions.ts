// Versions over HTTP: learners and async volunteers download, ring members upload checkpoints.
import {
  MAX_STATE_BYTES,
  MAX_VOLUNTEERS,
  type MemberId,
  parse,
  ROUTES,
  type VersionId,
  type VersionRef,
  VersionRefSchema,
} from '@starling-grid/protocol'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { MOST_SUM_BYTES } from '../audit/step-sums.ts'
import { type Stored, storedInMemory } from '../blobs/stored.ts'
import type { RunHost } from '../host/run-host.ts'
import type { ParametersAs, Versions } from '../host/versions.ts'
import type { Access } from './access.ts'
import { bytesOf, requireLength } from './bodies.ts'
import { sendStored } from './downloads.ts'
import { HttpRefusal, notFound } from './errors.ts'
import { Seats } from './seats.ts'

/**
 * Whole states that are being downloaded at once, one of each member: together they share the coordinator's line. The
 * others of a herd wait.
 */
const MAX_DOWNLOADS = 64

const CREATED = 201
/** Checkpoints on their way to the owner at once. */
const MAX_CHECKPOINTS = 8

interface VersionRoute {
  Params: { id: string; versionId: string }
  /** `as=f16`: parameters as halves, which rounds may start from; `hashes=1`: of their chunks, in their place (G3) */
  Querystring: { part?: string; as?: string; hashes?: string }
}
interface Upload {
  Params: { id: string; v: string; versionId: string }
}

export function registerVersions(app: FastifyInstance, access: Access): void {
  registerDownload(app, access)
  registerUpload(app, access)
  registerCheckpoints(app, access)
  registerSums(app, access)
}

/** Kept checkpoints, for the owner: what each is, and its whole state. */
function registerCheckpoints(app: FastifyInstance, access: Access): void {
  const seats = new Seats(MAX_CHECKPOINTS, MAX_CHECKPOINTS)
  app.get<{ Params: { id: string } }>(
    ROUTES.checkpoints,
    { onRequest: async (request) => void access.requireOwnRun(request, request.params.id, 'jobs:read') },
    async (request) => {
      const { versions } = access.requireOwnRun(request, request.params.id, 'jobs:read')
      return { checkpoints: await versions.kept() }
    },
  )
  app.route<{ Params: { id: string; v: string } }>({
    method: ['GET', 'HEAD'],
    url: ROUTES.checkpoint,
    onRequest: async (request) => void access.requireOwnRun(request, request.params.id, 'jobs:read'),
    handler: async (request, reply) => {
      const {
        params: { id, v },
      } = request
      const { job, versions } = access.requireOwnRun(request, id, 'jobs:read')
      const checkpoint = (await versions.kept()).findLast((kept) => String(kept.v) === v)
      if (checkpoint === undefined) throw notFound('this checkpoint is not kept; ask for the list of those that are')
      const stored = async (): Promise<Stored> => {
        seats.take('the owner', reply)
        return kept(await versions.state(checkpoint.id))
      }
      return sendStored(request, reply, {
        etag: checkpoint.sha256,
        bytes: checkpoint.bytes,
        fileName: `${job.id}-checkpoint-v${v}.safetensors`,
        stored,
      })
    },
  })
}

function registerDownload(app: FastifyInstance, access: Access): void {
  const states = new Seats(MAX_DOWNLOADS, 1)
  const parts = new Seats(MAX_VOLUNTEERS, 1)
  app.route<VersionRoute>({
    method: ['GET', 'HEAD'],
    url: ROUTES.version,
    onRequest: async (request) => void access.requireMember(request, request.params.id),
    handler: async (request, reply) => {
      const { params, query } = request
      const {
        member,
        run: { versions },
      } = access.requireMember(request, params.id)
      const id = params.versionId as VersionId // only compared with ids of versions that we have
      const whole = query.part !== 'parameters'
      const wanted = { as: query.as === 'f16' ? 'f16' : 'f32', hashes: query.hashes === '1' } as const
      const found = async (): Promise<Stored> => {
        ;(whole ? states : parts).take(member, reply)
        return kept(whole ? await versions.state(id) : await parametersOf(versions, id, wanted))
      }
      const etag = `${id}-parameters${wanted.as === 'f16' ? '-f16' : ''}${wanted.hashes ? '-hashes' : ''}`
      return sendStored(request, reply, { etag: whole ? id : etag, bytes: undefined, stored: found })
    },
  })
}

interface WantedParameters {
  readonly as: ParametersAs
  readonly hashes: boolean
}

async function parametersOf(
  versions: Versions,
  id: VersionId,
  { as, hashes }: WantedParameters,
): Promise<Stored | undefined> {
  const bytes = hashes ? await versions.hashes(id, as) : await versions.parameters(id, as)
  return bytes && storedInMemory(bytes)
}

function kept(stored: Stored | undefined): Stored {
  if (stored === undefined)
    throw new HttpRefusal(
      404,
      'base-stale',
      'expected a version that this coordinator keeps, got another; ask for work again',
    )
  return stored
}

function registerUpload(app: FastifyInstance, access: Access): void {
  const seats = new Seats(MAX_VOLUNTEERS, 1)
  app.put<Upload>(
    ROUTES.upload,
    {
      bodyLimit: MAX_STATE_BYTES,
      // All of this before the first byte of the body; the job's model bounds its length.
      onRequest: async (request, reply) => {
        const { params } = request
        const { member, run } = access.requireMember(request, params.id)
        const { versions } = run
        if (!versions.expects(member, readVersion(params)))
          throw new HttpRefusal(
            409,
            'message-unexpected',
            'expected a version that this member was asked for, got another or a late one; keep it',
          )
        requireLength(request, versions.maxBytes)
        seats.take(member, reply)
        begin(run, { member, version: readVersion(params), reply })
      },
    },
    async (request, reply) => {
      const { member, run } = access.requireMember(request, request.params.id)
      const stored = await run.versions.accept(readVersion(request.params), bytesOf(request))
      run.requireOwned()
      run.feed({ type: 'uploaded', member, ...stored })
      return reply.code(CREATED).send({ sha256: stored.blob })
    },
  )
}

/** Σ gradients of committed steps, which this member was asked for. */
function registerSums(app: FastifyInstance, access: Access): void {
  const seats = new Seats(MAX_VOLUNTEERS, 1)
  app.put<VersionRoute>(
    ROUTES.sums,
    {
      bodyLimit: MOST_SUM_BYTES,
      onRequest: async (request, reply) => {
        const { id, versionId } = request.params
        const { member, run } = access.requireMember(request, id)
        const expected = run.sums.expects(member, versionId as VersionId) // only compared with what was asked
        if (expected === undefined)
          throw new HttpRefusal(
            409,
            'message-unexpected',
            'expected sums that this member was asked for, got others or late ones; drop them',
          )
        requireLength(request, expected)
        seats.take(member, reply)
      },
    },
    async (request, reply) => {
      const { id, versionId } = request.params
      const { member, run } = access.requireMember(request, id)
      if (!(await run.sums.accept(member, versionId as VersionId, bytesOf(request))))
        run.refused('digest-mismatch', 'sums of committed steps that are not those of their records')
      return reply.code(CREATED).send({})
    },
  )
}

/** From the first byte to the last of the answer, also when the connection breaks between them. */
function begin(
  run: RunHost,
  { member, version, reply }: { readonly member: MemberId; readonly version: VersionRef; readonly reply: FastifyReply },
): void {
  run.feed({ type: 'upload-begun', member, version })
  reply.raw.once('close', () => {
    if (reply.raw.statusCode !== CREATED || !reply.raw.writableEnded)
      run.feed({ type: 'upload-failed', member, version })
  })
}

function readVersion({ v, versionId }: Upload['Params']) {
  if (!/^[0-9]{1,15}$/.test(v)) throw notFound('there is no such version')
  return parse(VersionRefSchema, { v: Number(v), id: versionId }, 'the version')
}
