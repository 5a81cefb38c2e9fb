// The query of a request as the type that the table of routes gives it.
import { GridError, nearest, parse } from '@starling-grid/protocol'
import type { ApiRoute, QueryOf } from '@starling-grid/protocol/http-api'
import type { FastifyRequest } from 'fastify'

const WHOLE_NUMBER = /^(0|[1-9]\d{0,15})$/
const LONGEST_SHOWN = 20

/**
 * @throws GridError 'message-malformed' for a parameter that the route does not have, or another value than it takes
 */
export function queryOf<R extends ApiRoute>({ query: schema }: R, { query }: FastifyRequest): QueryOf<R> {
  const fields: Readonly<Record<string, { readonly type?: string }>> = schema?.properties ?? {}
  const given = Object.entries(query as Readonly<Record<string, unknown>>)
  const values = given.map(([name, text]) => {
    const field = Object.hasOwn(fields, name) ? fields[name] : undefined
    if (field === undefined || typeof text !== 'string') throw unknown(name, Object.keys(fields))
    return [name, valueOf(text, field.type)]
  })
  return (schema === undefined ? {} : parse(schema, Object.fromEntries(values), 'the query')) as QueryOf<R>
}

/** What is no value of the type stays a text, and the schema refuses it. */
function valueOf(text: string, type: string | undefined): unknown {
  if (type === 'integer' && WHOLE_NUMBER.test(text)) return Number(text)
  return type === 'boolean' && text === 'true' ? true : text
}

function unknown(name: string, names: readonly string[]): GridError {
  const meant = nearest(name, names)
  const advice = meant === undefined ? 'leave it out' : `did you mean ${meant}?`
  return new GridError(
    'message-malformed',
    `expected ${names.length === 0 ? 'no query' : `only ${names.join(', ')}, each once`}, ` +
      `got ${name.slice(0, LONGEST_SHOWN)}; ${advice}`,
  )
}
