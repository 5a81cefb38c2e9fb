// A refusal as an HTTP answer: a problem document with the code of the one table.
import {
  describeError,
  type ErrorCode,
  GridError,
  isGridError,
  type Mistake,
  MistakesError,
  PROBLEM_TYPE,
  problemOf,
  statusOf,
} from '@starling-grid/protocol'
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

/** Seconds after which a caller that was too fast, or a coordinator that leaves, may do better. */
export const RETRY_SECONDS = 2
const BUSY: ReadonlySet<number> = new Set([429, 503])

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
  readonly onDefect: (text: string, request: string) => void
}

export function registerErrors(app: FastifyInstance, { onRefused, onDefect }: ErrorParts): void {
  app.setErrorHandler(async (error: FastifyError, request, reply) => {
    const refusal = refusalOf(error)
    if (refusal === undefined) {
      const text = error.stack ?? describeError(error)
      onDefect(`defect in ${request.method} ${request.routeOptions.url ?? ''}: ${text}`, request.id)
      return sendProblem(reply, new HttpRefusal(500, 'unsupported', 'the coordinator met a defect; its log says which'))
    }
    const { code, message } = refusal
    if (code !== 'message-unexpected') onRefused(code, message)
    // The rest of a body that was refused is not read.
    if (announcesBody(request)) void reply.header('connection', 'close')
    const { status, retryAfter = BUSY.has(status) ? RETRY_SECONDS : undefined } = refusal
    // The limit of requests has said it by itself.
    if (retryAfter !== undefined && !reply.hasHeader('retry-after')) void reply.header('retry-after', retryAfter)
    return sendProblem(reply, refusal, mistakesOf(error))
  })
  // A refused upgrade leaves its connection outside the server's list: it would stay open as long as the client likes.
  app.addHook('onResponse', async ({ headers, raw }) => {
    if (headers.upgrade !== undefined) raw.socket.destroySoon()
  })
}

function sendProblem(
  reply: FastifyReply,
  { status, code, message }: HttpRefusal,
  mistakes?: readonly Mistake[],
): FastifyReply {
  const text = JSON.stringify(problemOf(status, code, message, mistakes))
  return reply.code(status).type(PROBLEM_TYPE).send(text)
}

/** Each mistake of a job: its owner mends the file. */
function mistakesOf(error: unknown): readonly Mistake[] | undefined {
  return error instanceof MistakesError ? error.mistakes : undefined
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
