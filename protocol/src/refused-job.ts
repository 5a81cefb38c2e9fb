// What a coordinator refused a job with, as its sender reads it.
import { Check } from 'typebox/schema'
import { GridError } from './errors.ts'
import { type Mistake, MistakesError, shown } from './mistakes.ts'
import { type Problem, ProblemSchema } from './problem.ts'

/** What a coordinator refused a job with, as the error that it threw there. */
export function refusedJob(answer: unknown): GridError {
  if (!Check(ProblemSchema, answer)) return new GridError('job-invalid', `the coordinator refused it: ${shown(answer)}`)
  const { code, detail, errors } = answer as Problem
  return errors === undefined ? new GridError(code, detail) : new MistakesError(code, errors as Mistake[], detail)
}
