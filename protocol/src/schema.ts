// Building blocks of the message schemas, and the one function that turns unknown JSON into a typed value.
import * as Type from 'typebox'
import type { Static, TSchema } from 'typebox'
import { Check, Errors } from 'typebox/schema' // what typebox/value has of it, without the modules for the rest
import { type ErrorCode, GridError } from './errors.ts'
import type { BlockId, JobId, MemberId, Sha256, VersionId } from './ids.ts'

/** What a schema describes, for those that only read it. */
export type ReadonlyOf<T extends TSchema> = Unwritable<Static<T>>

type Unwritable<T> = T extends string | number | boolean | null | undefined
  ? T
  : T extends readonly (infer E)[]
    ? readonly Unwritable<E>[]
    : { readonly [K in keyof T]: Unwritable<T[K]> }

/** A non-negative integer that a double holds exactly. */
export const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
export const FiniteNumber = Type.Number({ minimum: -1e300, maximum: 1e300 })
export const MemberIdSchema = Type.Unsafe<MemberId>(Type.String({ pattern: '^[0-9a-f]{32}$' }))
export const JobIdSchema = Type.Unsafe<JobId>(Type.String({ pattern: '^[0-9a-z-]{1,40}$' }))
export const VersionIdSchema = Type.Unsafe<VersionId>(Type.String({ pattern: '^[0-9a-f]{64}$' }))
export const Sha256Schema = Type.Unsafe<Sha256>(Type.String({ pattern: '^[0-9a-f]{64}$' }))
/** One name for one block: no leading zeros, or `0:07` would be counted beside `0:7`. */
const BLOCK_ID = /^(0|[1-9][0-9]{0,8}|v):(0|[1-9][0-9]{0,8})$/
export const BlockIdSchema = Type.Unsafe<BlockId>(Type.String({ pattern: BLOCK_ID.source }))

/**
 * Names of blocks. A claim has 30,000 of them, and the schema's own walk through so many strings takes 0.1 s: one test
 * of each takes a hundredth.
 */
export const BlockIdsSchema = (size: { readonly minItems?: number; readonly maxItems: number }) =>
  Type.Refine(
    Type.Unsafe<BlockId[]>({ type: 'array', each: BlockIdSchema, ...size }),
    areBlockIds,
    () => 'must be names of blocks',
  )

const areBlockIds = (value: unknown): boolean =>
  Array.isArray(value) && value.every((name) => typeof name === 'string' && BLOCK_ID.test(name))

/** An object that refuses properties it does not name. */
export const strict = <T extends Parameters<typeof Type.Object>[0]>(properties: T) =>
  Type.Object(properties, { additionalProperties: false })

type Checker = (schema: TSchema, value: unknown) => boolean

let check: Checker = Check

/** How values are checked from now on in this process (compiled-checks.ts). */
export function checkWith(checker: Checker): void {
  check = checker
}

/** Whether the value is of the schema's type; what is wrong with it is not looked for. */
export function conforms<T extends TSchema>(schema: T, value: unknown): value is Static<T> {
  return check(schema, value)
}

/**
 * `value` as the schema's type.
 * @throws GridError(code) naming the path, what was expected and what came
 */
export function parse<T extends TSchema>(
  schema: T,
  value: unknown,
  what: string,
  code: ErrorCode = 'message-malformed',
): Static<T> {
  if (check(schema, value)) return value as Static<T>
  const [, [first]] = Errors(schema, value)
  throw new GridError(code, `${what}: ${first === undefined ? 'does not match its schema' : describe(first, value)}`)
}

function describe(error: { instancePath: string; message: string }, value: unknown): string {
  const path = error.instancePath === '' ? 'the whole value' : error.instancePath.slice(1).replaceAll('/', '.')
  return `${path} ${error.message}, got ${preview(at(value, error.instancePath))}`
}

function at(value: unknown, path: string): unknown {
  let current = value
  for (const key of path.split('/').slice(1)) {
    if (typeof current !== 'object' || current === null || !Object.hasOwn(current, key)) return undefined
    current = (current as Record<string, unknown>)[key]
  }
  return current
}

function preview(value: unknown): string {
  const text = JSON.stringify(value) ?? 'nothing'
  return text.length > 60 ? `${text.slice(0, 57)}...` : text
}

/** Arrays and objects inside each other; a model in a job needs six. */
export const MAX_JSON_DEPTH = 32
/** Values in one text: a START of 64 steps with 256 blocks each has 20,000. */
export const MAX_JSON_VALUES = 65_536

/**
 * JSON text from the network as a value.
 * @throws GridError 'message-too-large' above maxBytes, 'message-malformed' when it is not JSON, too deep, or of too
 * many values
 */
export function parseJson(text: string, maxBytes: number, what: string): unknown {
  if (text.length > maxBytes)
    throw new GridError('message-too-large', `${what}: expected at most ${maxBytes} bytes, got ${text.length}`)
  const { depth, values } = measureJson(text)
  if (depth > MAX_JSON_DEPTH)
    throw new GridError('message-malformed', `${what}: expected at most ${MAX_JSON_DEPTH} levels deep, got ${depth}`)
  if (values > MAX_JSON_VALUES)
    throw new GridError('message-malformed', `${what}: expected at most ${MAX_JSON_VALUES} values, got ${values}`)
  try {
    return MAY_NAME_PROTOTYPE.test(text) ? JSON.parse(text, refusePrototype) : JSON.parse(text)
  } catch (cause) {
    throw new GridError('message-malformed', `${what}: expected JSON, got text that does not parse`, { cause })
  }
}

/** A look at each key costs four times what parsing does, so it is taken only where such a key may be. */
const MAY_NAME_PROTOTYPE = /__proto__|constructor|prototype|\\u/

const QUOTE = 0x22
const COMMA = 0x2c
const OPEN_BRACKET = 0x5b
const BACKSLASH = 0x5c
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

/**
 * Deepest nesting and number of values of a JSON text, in one pass over its characters. A pattern that looks for the
 * end of a string would look again from each quote. What is not JSON gets some number, and JSON.parse refuses it.
 */
export function measureJson(text: string): { readonly depth: number; readonly values: number } {
  let open = 0
  let depth = 0
  let values = 1
  let inString = false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (inString) {
      if (code === BACKSLASH) i++
      else if (code === QUOTE) inString = false
      continue
    }
    if (code === QUOTE) inString = true
    else if (code === COMMA) values++
    else if (code === OPEN_BRACKET || code === OPEN_BRACE) {
      values++
      open++
      if (open > depth) depth = open
    } else if (code === CLOSE_BRACKET || code === CLOSE_BRACE) open--
  }
  return { depth, values }
}

/** Keys that could reach Object.prototype have no place in any message. */
function refusePrototype(key: string, value: unknown): unknown {
  if (key === '__proto__' || key === 'constructor' || key === 'prototype') throw new SyntaxError(`key ${key}`)
  return value
}
