// Gradients that members push: checked here for their announced form and honest counts. Their numbers are read in
// host/push-body.ts, and decided about in run/async/leases.ts.
import { type GradientForm, gradientForm, type ParameterLayout } from '@starling-grid/model'
import {
  encodingAtFirst,
  type ErrorCode,
  type GradientEncoding,
  GridError,
  isGridError,
  MAX_MESSAGE_BYTES,
  MAX_STATE_BYTES,
  MAX_VOLUNTEERS,
  parse,
  parseJson,
  type Push,
  PUSH_HEADER,
  type PushHeader,
  PushSchema,
  ROUTES,
  statusOf,
} from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { requireHonestCounts } from '../host/honest-counts.ts'
import type { RunHost } from '../host/run-host.ts'
import type { Access } from './access.ts'
import { bytesOf, requireLength } from './bodies.ts'
import { notFound } from './errors.ts'
import { Seats } from './seats.ts'

interface PushRoute {
  Params: { id: string }
}

interface Announced {
  readonly run: RunHost
  readonly push: Push
  readonly form: GradientForm
}

export function registerPushes(app: FastifyInstance, access: Access): void {
  /** what each push said before its body was read */
  const announced = new WeakMap<FastifyRequest, Announced>()
  const seats = new Seats(MAX_VOLUNTEERS, 1)
  const forms = new GradientForms()
  registerGivenSums(app, access)

  app.post<PushRoute>(
    ROUTES.pushes,
    {
      bodyLimit: MAX_STATE_BYTES,
      // All of this before the first byte of the body; the job's layout bounds its length.
      onRequest: async (request, reply) => {
        const { member, run } = access.requireMember(request, request.params.id)
        const {
          form: { layout },
          spec,
        } = run.job
        requireLength(request, layout.total * Float32Array.BYTES_PER_ELEMENT)
        const header = readPush(request)
        if (header.incarnation !== member)
          throw new GridError(
            'session-unknown',
            'expected the incarnation of the session that pushes, got another; join again',
          )
        const { encoding = 'f32' } = header
        const expected = run.grantedEncoding(member) ?? encodingAtFirst(spec)
        if (encoding !== 'f32' && encoding !== expected)
          throw new GridError('gradient-shape', `expected a push in its grant's encoding, ${expected}, got ${encoding}`)
        const push = run.announcedPush(header)
        if ('verdict' in push)
          return reply
            .code(statusOf(push.verdict))
            .header('connection', 'close')
            .send({ ...push, code: push.verdict })
        seats.take(member, reply)
        announced.set(request, { run, push, form: forms.of(layout, push.sparse, encoding) })
      },
    },
    async (request, reply) => {
      const { verdict, message } = await decided(announced.get(request), request)
      const status = verdict === 'received' ? 200 : statusOf(verdict)
      return reply
        .code(status)
        .send(verdict === 'received' ? { verdict, message } : { verdict, code: verdict, message })
    },
  )
}

/** Dense forms are the same for every push of a job. */
class GradientForms {
  readonly #dense = new WeakMap<ParameterLayout, Map<GradientEncoding, GradientForm>>()

  /** @throws GridError 'gradient-shape' as gradientForm */
  of(layout: ParameterLayout, sparse: PushHeader['sparse'], encoding: GradientEncoding): GradientForm {
    if (sparse !== undefined && sparse.length > 0) return gradientForm(layout, sparse, encoding)
    const known = this.#dense.get(layout) ?? new Map<GradientEncoding, GradientForm>()
    const form = known.get(encoding) ?? gradientForm(layout, [], encoding)
    this.#dense.set(layout, known.set(encoding, form))
    return form
  }
}

/** For the member of the ring that is to contribute the sum (A1). */
function registerGivenSums(app: FastifyInstance, access: Access): void {
  app.get<{ Params: { id: string; sum: string } }>(
    ROUTES.givenSum,
    { onRequest: async (request) => void access.requireMember(request, request.params.id) },
    async (request, reply) => {
      const { member, run } = access.requireMember(request, request.params.id)
      const bytes = run.givenSum(member, request.params.sum)
      if (bytes === undefined) throw notFound('this sum is not kept for this member, or not any more')
      return reply.type('application/octet-stream').send(bytes)
    },
  )
}

async function decided(
  announced: Announced | undefined,
  request: FastifyRequest,
): Promise<{ readonly verdict: 'received' | ErrorCode; readonly message: string }> {
  if (announced === undefined) throw new Error('internal: a push whose header was not read')
  const { run, push, form } = announced
  try {
    requireHonestCounts(run.job, { blocks: push.leases.map(({ block }) => block), ...push })
    return await run.push(push, bytesOf(request), form)
  } catch (error) {
    if (!isGridError(error)) throw error
    run.feed({ type: 'push-refused', push, code: error.code })
    return { verdict: error.code, message: error.message }
  }
}

function readPush(request: FastifyRequest): PushHeader {
  const header = request.headers[PUSH_HEADER]
  if (typeof header !== 'string')
    throw new GridError('message-malformed', `expected the header ${PUSH_HEADER}, got none; send it with the push`)
  return parse(PushSchema, parseJson(header, MAX_MESSAGE_BYTES, 'the push'), 'the push')
}
