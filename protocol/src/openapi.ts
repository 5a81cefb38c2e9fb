// The table of the HTTP interface as an OpenAPI 3.1 document. Schemas of this package are JSON Schema already.
import type { TSchema } from 'typebox'
import { ChainRecordSchema } from './chain.ts'
import { ERROR_CODES, type ErrorCode } from './errors.ts'
import { type ApiRoute, CALLERS, type Caller, COMMON_REFUSALS, HTTP_API, OCTETS } from './http-api.ts'
import { JobSpecSchema } from './job.ts'
import { PROBLEM_TYPE, ProblemSchema } from './problem.ts'
import { RunEventSchema, RunViewSchema } from './run-view.ts'
import { Count, JobIdSchema, Sha256Schema } from './schema.ts'

/** Schemas that several routes share, by their names in the document. */
const COMPONENTS: Readonly<Record<string, TSchema>> = {
  Job: JobSpecSchema,
  Run: RunViewSchema,
  RunEvent: RunEventSchema,
  StepRecord: ChainRecordSchema,
  Problem: ProblemSchema,
}

/** Parts of paths. */
const PARTS: Readonly<Record<string, TSchema>> = { id: JobIdSchema, v: Count, sha256: Sha256Schema }

const JSON_TYPE = 'application/json'
const SECURITY: Readonly<Record<Caller, readonly object[]>> = {
  anyone: [],
  reader: [{ ownerToken: [] }, { session: [] }, {}],
  'jobs:read': [{ ownerToken: [] }],
  'jobs:write': [{ ownerToken: [] }],
  admin: [{ ownerToken: [] }],
  session: [{ session: [] }],
  group: [{ groupSecret: [] }],
  scraper: [{ ownerToken: [] }, {}],
}
const bearer = (description: string): object => ({ type: 'http', scheme: 'bearer', description })

export function openApiDocument(): object {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Starling coordinator',
      version: '1',
      description:
        'Jobs of a Starling coordinator. Times are ms since the epoch. Refusals are problem documents (RFC 9457) ' +
        'with a code of one table.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    paths: pathsOf(Object.entries(HTTP_API)),
    components: {
      schemas: Object.fromEntries(Object.entries(COMPONENTS).map(([name, schema]) => [name, plain(schema, true)])),
      responses: { Refused: problem('a refusal that any route may give', COMMON_REFUSALS) },
      securitySchemes: {
        ownerToken: bearer('The token of an owner.'),
        session: bearer('The session token of a volunteer.'),
        groupSecret: bearer('The secret of a group of ranks.'),
      },
    },
  }
}

function pathsOf(routes: readonly (readonly [string, ApiRoute])[]): object {
  const paths: Record<string, Record<string, object>> = {}
  for (const [name, route] of routes) {
    const path = route.path.replaceAll(/:(\w+)/g, '{$1}')
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(name, route) }
  }
  return paths
}

function operation(operationId: string, route: ApiRoute): object {
  const { about, caller, status, answer, also = {}, refusals, body, tagged = false } = route
  const others = Object.entries(also).map(([code, schema]) => [code, { description: 'as said above', ...json(schema) }])
  return {
    operationId,
    summary: about,
    description: `Caller: ${CALLERS[caller]}.`,
    security: SECURITY[caller],
    parameters: [...pathParameters(route), ...queryParameters(route), ...(tagged ? [KNOWN] : [])],
    ...(body === undefined ? {} : { requestBody: { required: true, ...json(body) } }),
    responses: {
      [status]: {
        description: 'done',
        ...(tagged ? { headers: { etag: TAG } } : {}),
        ...(answer === OCTETS ? octets() : json(answer)),
      },
      ...(tagged ? { 304: { description: 'what the caller has is what there is' } } : {}),
      ...Object.fromEntries(others),
      ...Object.fromEntries(
        Object.entries(refusals).map(([code, codes]) => [code, problem('refused', { [code]: codes })]),
      ),
      default: { $ref: '#/components/responses/Refused' },
    },
  }
}

/** Conditional requests (RFC 9110 §13). */
const TAG = { description: 'names these bytes', schema: { type: 'string' } }
const KNOWN = { name: 'if-none-match', in: 'header', required: false, schema: { type: 'string' } }

function pathParameters({ path, parts = {} }: ApiRoute): object[] {
  return [...path.matchAll(/:(\w+)/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    schema: plain(parts[name] ?? PARTS[name] ?? {}),
  }))
}

function queryParameters({ query }: ApiRoute): object[] {
  return Object.entries(query?.properties ?? {}).map(([name, schema]) => ({
    name,
    in: 'query',
    required: query?.required?.includes(name) ?? false,
    schema: plain(schema),
  }))
}

const json = (schema: TSchema): object => ({ content: { [JSON_TYPE]: { schema: plain(schema) } } })
const octets = (): object => ({ content: { [OCTETS]: { schema: { type: 'string', format: 'binary' } } } })

function problem(description: string, refusals: ApiRoute['refusals']): object {
  const codes: ErrorCode[] = [...new Set(Object.values(refusals).flat())]
  const meanings = codes.map((code) => `\`${code}\`: ${ERROR_CODES[code]}`)
  return {
    description: `${description}; ${meanings.join('; ')}`,
    content: { [PROBLEM_TYPE]: { schema: { $ref: '#/components/schemas/Problem' } } },
  }
}

/** Without what only our own checker reads; schemas that are components are referred to. */
function plain(schema: unknown, isComponent = false): unknown {
  if (Array.isArray(schema)) return schema.map((one) => plain(one))
  if (typeof schema !== 'object' || schema === null) return schema
  const name = Object.keys(COMPONENTS).find((key) => COMPONENTS[key] === schema)
  if (name !== undefined && !isComponent) return { $ref: `#/components/schemas/${name}` }
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [keyword(key, value), plain(value)]))
}

/** Tuples are written in the words of JSON Schema 2020-12, as OpenAPI 3.1 has it. */
function keyword(key: string, value: unknown): string {
  if (key === 'items' && Array.isArray(value)) return 'prefixItems'
  return key === 'each' || key === 'additionalItems' ? 'items' : key
}
