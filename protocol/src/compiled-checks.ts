// Checks of schemas as compiled functions, for processes: a heartbeat takes 0.5 µs instead of 15. Pages walk through
// their schemas, because their Content-Security-Policy forbids code that is made of text. Both accept the same values.
import type { TSchema } from 'typebox'
import { Check, Compile } from 'typebox/schema'
import { checkWith } from './schema.ts'

/** Checks of a schema after which it is compiled: that takes 1 ms, and many schemas are met once. */
const CHECKS_BEFORE = 50

interface CheckOfSchema {
  checks: number
  compiled: ((value: unknown) => boolean) | undefined
}

let isDone = false

/** From now on in this process, for every message and body. */
export function compileChecks(): void {
  if (isDone) return
  isDone = true
  const compiled = new WeakMap<TSchema, CheckOfSchema>()
  checkWith((schema, value) => {
    const one = compiled.get(schema) ?? { checks: 0, compiled: undefined }
    if (one.checks === 0) compiled.set(schema, one)
    if (one.compiled !== undefined) return one.compiled(value)
    if (++one.checks < CHECKS_BEFORE) return Check(schema, value)
    const validator = Compile(schema)
    one.compiled = (candidate) => validator.Check(candidate)
    return one.compiled(value)
  })
}
