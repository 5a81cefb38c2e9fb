// One line for each answered request, with the pattern of its route. Its address, headers and caller are left out,
// because they may contain tokens and names.
import type { FastifyInstance } from 'fastify'
import type { Log } from '../log-entry.ts'

/** How a request is found again: its id is in the log and in its answer. */
const REQUEST_ID_HEADER = 'x-request-id'

export function registerAccessLog(app: FastifyInstance, log: Log): void {
  app.addHook('onRequest', async (request, reply) => void reply.header(REQUEST_ID_HEADER, request.id))
  app.addHook('onResponse', async ({ id, method, routeOptions: { url = 'none' } }, { statusCode, elapsedTime }) => {
    const ms = Math.round(elapsedTime)
    log({
      level: 'info',
      message: `${url === 'none' ? 'a request' : `${method} ${url}`} answered ${statusCode}`,
      request: id,
      about: { route: url, status: statusCode, ms },
    })
  })
}
