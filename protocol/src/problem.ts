// A refusal as an HTTP answer: a problem document (RFC 9457) whose code, title and status come from the one table.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { ERROR_CODES, type ErrorCode, isErrorCode } from './errors.ts'
import type { Mistake } from './mistakes.ts'
import { ROUTES } from './routes.ts'

/** Media type of a problem document. */
export const PROBLEM_TYPE = 'application/problem+json'

/** Code → the status that it usually has; the others are defects of the coordinator: 500. */
const STATUS: Partial<Record<ErrorCode, number>> = {
  'message-malformed': 400,
  'message-too-large': 413,
  'message-unexpected': 409,
  'rate-exceeded': 429,
  'session-unknown': 401,
  'token-required': 401,
  'scope-missing': 403,
  'invite-required': 403,
  'origin-refused': 403,
  'grid-full': 503,
  'coordinator-leaving': 503,
  'generation-stale': 409,
  'lease-stale': 409,
  'mode-stale': 409,
  'base-stale': 409,
  duplicate: 409,
  'gradient-not-finite': 422,
  'gradient-outlier': 422,
  'gradient-unproven': 409,
  'gradient-shape': 422,
  'version-corrupt': 422,
  'shard-corrupt': 422,
  'digest-mismatch': 422,
  'model-invalid': 422,
  'job-invalid': 422,
  'dataset-unreadable': 422,
  unsupported: 422,
  usage: 422,
  'disk-failed': 507,
}

export function statusOf(code: ErrorCode): number {
  return STATUS[code] ?? 500
}

/** `detail`: what was expected, what came, what to do. `errors`: each mistake of a job. */
export const ProblemSchema = Type.Object({
  /** where the code is explained: the page of this interface */
  type: Type.String(),
  title: Type.String(),
  status: Type.Integer({ minimum: 400, maximum: 599 }),
  detail: Type.String(),
  code: Type.Unsafe<ErrorCode>({ type: 'string', enum: Object.keys(ERROR_CODES) }),
  errors: Type.Optional(
    Type.Array(
      Type.Object({
        path: Type.Array(Type.Union([Type.String(), Type.Number()])),
        expected: Type.String(),
        found: Type.String(),
        hint: Type.Optional(Type.String()),
      }),
    ),
  ),
})
export type Problem = Static<typeof ProblemSchema>

export function problemOf(status: number, code: ErrorCode, detail: string, errors?: readonly Mistake[]): Problem {
  const problem = { type: `${ROUTES.api}#${code}`, title: ERROR_CODES[code], status, detail, code }
  return errors === undefined
    ? problem
    : { ...problem, errors: errors.map((mistake) => ({ ...mistake, path: [...mistake.path] })) }
}

/** What an answer says of a refusal; undefined where it is no problem document of a coordinator. */
export function refusalIn(value: unknown): { readonly code: ErrorCode; readonly detail: string } | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const { code, detail } = value as Readonly<Record<string, unknown>>
  return typeof code === 'string' && isErrorCode(code) && typeof detail === 'string' ? { code, detail } : undefined
}
