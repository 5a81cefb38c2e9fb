// What a coordinator refused a job with, as its sender reads it.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { Check } from 'typebox/schema'
import { ERROR_CODES, type ErrorCode, GridError } from './errors.ts'
import { type Mistake, MistakesError, shown } from './mistakes.ts'

/** How a coordinator answers to a job with mistakes. */
const RefusalSchema = Type.Object({
  code: Type.String(),
  message: Type.String(),
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

/** What a coordinator refused a job with, as the error that it threw there. */
export function refusedJob(answer: unknown): GridError {
  if (!Check(RefusalSchema, answer)) return new GridError('job-invalid', `the coordinator refused it: ${shown(answer)}`)
  const { code, message, errors } = answer as Static<typeof RefusalSchema>
  const known = Object.hasOwn(ERROR_CODES, code) ? (code as ErrorCode) : 'job-invalid'
  return errors === undefined ? new GridError(known, message) : new MistakesError(known, errors as Mistake[], message)
}
