// A refusal as an HTTP answer: { code, message } of the one table, with the status that fits.
import {
  describeError,
  type ErrorCode,
  GridError,
  isGridError,
  type Mistake,
  MistakesError,
} from '@starling-grid/protocol'
import type { FastifyError, FastifyInstance, FastifyRequest } from 'fastify'

const STATUS: Partial<Record<ErrorCode, number>> = {
  'message-malformed': 400,
  'message-too-large': 413,
  'message-unexpected': 409,
  'rate-exceeded': 429,
  'session-unknown': 401,
  'token-required': 401,
  'origin-refused': 403,
  'grid-full': 503,
  'coordinator-leaving': 503,
  'generation-stale': 409,
  'lease-stale': 409,
  'mode-stale': 409,
  'base-stale': 409,
  duplicate: 409,
  'gradient-not-finite': 422,
  'gradient-unproven': 409,
  'gradient-shape': 422,
  'version-corrupt': 422,
  'shard-corrupt': 422,
  'digest-mismatch': 422,
  'model-invalid': 422,
  'job-invalid': 422,
  'dataset-unreadable': 422,
  unsupported: 422,
  'disk-failed': 507,
}

export function statusOf(code: ErrorCode): number {
  return STATUS[code] ?? 500
}

/** A GridError that has another status than its code usually has. */
export class HttpRefusal extends GridError {
  readonly status: number
  /** seconds after which the same request may be taken */
  readonly retryAfter: number | undefined
  constructor(status: number, code: ErrorCode, message: string, retryAfter?: number) {
    super(code, message)
    this.status = status
    this.retryAfter = retryAfter
  }
}

export function notFound(what: string): HttpRefusal {
  return new HttpRefusal(404, 'message-unexpected', what)
}

export interface ErrorParts {
  readonly onRefused: (code: ErrorCode, what: string) => void
  readonly onDefect: (text: string) => void
}

export function registerErrors(app: FastifyInstance, { onRefused, onDefect }: ErrorParts): void {
  app.setErrorHandler(async (error: FastifyError, request, reply) => {
    const refusal = refusalOf(error)
    if (refusal === undefined) {
      onDefect(`defect in ${request.method} ${request.routeOptions.url ?? ''}: ${error.stack ?? describeError(error)}`)
      return reply.code(500).send({ code: 'unsupported', message: 'The coordinator met a defect; its log says which.' })
    }
    const { code, message } = refusal
    if (code !== 'message-unexpected') onRefused(code, message)
    // The rest of a body that was refused is not read.
    if (announcesBody(request)) void reply.header('connection', 'close')
    if (refusal.retryAfter !== undefined) void reply.header('retry-after', refusal.retryAfter)
    return reply.code(refusal.status).send({ code, message, ...mistakesOf(error) })
  })
  // A refused upgrade leaves its connection outside the server's list: it would stay open as long as the client likes.
  app.addHook('onResponse', async ({ headers, raw }) => {
    if (headers.upgrade !== undefined) raw.socket.destroySoon()
  })
}

/** Each mistake of a job: its owner mends the file. */
function mistakesOf(error: unknown): { readonly errors?: readonly Mistake[] } {
  return error instanceof MistakesError ? { errors: error.mistakes } : {}
}

/** Whether bytes follow the headers. */
export function announcesBody({ headers }: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

function refusalOf(error: FastifyError): HttpRefusal | undefined {
  if (error instanceof HttpRefusal) return error
  if (isGridError(error)) return new HttpRefusal(statusOf(error.code), error.code, error.message)
  const { statusCode } = error
  if (statusCode === undefined || statusCode < 400 || statusCode >= 500) return undefined
  return new HttpRefusal(statusCode, frameworkCode(statusCode), error.message)
}

/** What the framework refuses by itself. */
function frameworkCode(status: number): ErrorCode {
  if (status === 413) return 'message-too-large'
  if (status === 429) return 'rate-exceeded'
  return 'message-malformed'
}
