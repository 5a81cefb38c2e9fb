// Parameters of a recent version of the parameter server without most rows of some matrices, for batches of a model
// with a large embedding. The answer has the form of a sparse push.
import { gradientForm, readRowNumbers, writeRows } from '@starling-grid/model'
import {
  GridError,
  MAX_MESSAGE_BYTES,
  MAX_STATE_BYTES,
  parse,
  parseJson,
  ROUTES,
  ROWS_HEADER,
  type SparsePart,
  SparsePartsSchema,
  type VersionId,
} from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Access } from './access.ts'
import { bytesOf, requireLength } from './bodies.ts'
import { HttpRefusal } from './errors.ts'

const WORD_BYTES = 4

interface RowsRoute {
  Params: { id: string; versionId: string }
}

export function registerRows(app: FastifyInstance, access: Access): void {
  app.post<RowsRoute>(
    ROUTES.rows,
    {
      bodyLimit: MAX_STATE_BYTES,
      onRequest: async (request) => {
        const { run } = access.requireMember(request, request.params.id)
        const parts = readParts(request)
        gradientForm(run.job.form.layout, parts)
        requireLength(request, WORD_BYTES * parts.reduce((sum, { rows }) => sum + rows, 0))
      },
    },
    async (request, reply) => {
      const { job, versions } = access.requireMember(request, request.params.id).run
      const { layout } = job.form
      const rows = readRowNumbers(bytesOf(request), gradientForm(layout, readParts(request)))
      // only compared with ids of versions that we have
      const parameters = versions.recent(request.params.versionId as VersionId)
      if (parameters === undefined)
        throw new HttpRefusal(
          404,
          'base-stale',
          'expected a version that the parameter server holds, got another; ask for work again',
        )
      return reply.type('application/octet-stream').send(writeRows(parameters, layout, rows))
    },
  )
}

function readParts(request: FastifyRequest): SparsePart[] {
  const header = request.headers[ROWS_HEADER]
  if (typeof header !== 'string')
    throw new GridError('message-malformed', `expected the header ${ROWS_HEADER}, got none; name the rows in it`)
  return parse(SparsePartsSchema, parseJson(header, MAX_MESSAGE_BYTES, 'the rows'), 'the rows')
}
