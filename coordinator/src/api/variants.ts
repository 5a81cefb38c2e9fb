// Kernel variants that volunteers found fastest on their adapters, for others with such an adapter: told and asked for
// by sessions.
import {
  GridError,
  MAX_VARIANT_BYTES,
  parse,
  parseJson,
  ROUTES,
  type Sha256,
  Sha256Schema,
  VariantReportSchema,
} from '@starling-grid/protocol'
import { variantNames } from '@starling-grid/shaders'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { VariantReports } from '../variant-reports.ts'
import type { Access } from './access.ts'
import { bytesOf, requireLength } from './bodies.ts'

/** Of one address: some rooms of volunteers that begin a job in the same minute. */
const REQUESTS_PER_MINUTE = 600
const NO_CONTENT = 204

export interface VariantRoutes {
  readonly access: Access
  /** which voice an address is among others */
  readonly voiceOf: (address: string) => string
}

interface VariantRoute {
  Params: { adapterClass: string }
}

export function registerVariants(app: FastifyInstance, { access, voiceOf }: VariantRoutes): void {
  const reports = new VariantReports()
  const known = variantNames()
  const config = { rateLimit: { max: REQUESTS_PER_MINUTE, timeWindow: 60_000 } }
  app.get<VariantRoute>(ROUTES.variants, { config }, async (request) => {
    access.requireSession(request)
    return reports.votes(classIn(request))
  })
  app.put<VariantRoute>(
    ROUTES.variants,
    {
      config,
      bodyLimit: MAX_VARIANT_BYTES,
      onRequest: async (request) => {
        access.requireSession(request)
        classIn(request)
        requireLength(request, MAX_VARIANT_BYTES)
      },
    },
    async (request, reply) => {
      const text = new TextDecoder().decode(bytesOf(request))
      const report = parse(VariantReportSchema, parseJson(text, MAX_VARIANT_BYTES, 'the report'), 'the report')
      const unknown = report.shapes.flatMap(({ variants }) => variants).find((variant) => !known.has(variant))
      if (unknown !== undefined)
        throw new GridError(
          'message-malformed',
          `expected variants of this coordinator's kernels, got ${JSON.stringify(unknown)}; ` +
            'update volunteer or coordinator, the older one',
        )
      const reporter = { member: access.requireSession(request), voice: voiceOf(request.ip) }
      reports.take(classIn(request), reporter, report)
      return reply.code(NO_CONTENT).send()
    },
  )
}

/** @throws GridError 'message-malformed' */
function classIn({ params: { adapterClass } }: FastifyRequest<VariantRoute>): Sha256 {
  return parse(Sha256Schema, adapterClass, 'the class of adapters in the address')
}
