// The pages, from the folder that the web build made, and the two probes of the server's operator.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import fastifyStatic from '@fastify/static'
import { ROUTES } from '@starling-grid/protocol'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { RETRY_SECONDS } from './errors.ts'

/** Names of built files hold a hash of their content; the pages' own names stay. */
const HASHED = /[\\/]assets[\\/]/
const NOT_BUILT =
  'The web page is not built. Run `npm start` in the repository, or name its folder with --web-root.\n' +
  'Node volunteers can still join.\n'

export async function registerPages(app: FastifyInstance, webRoot: string | undefined): Promise<void> {
  if (webRoot === undefined || !existsSync(join(webRoot, 'index.html'))) {
    for (const path of ['/', ROUTES.dashboard, ROUTES.api])
      app.get(path, async (_, reply) => reply.code(503).type('text/plain; charset=utf-8').send(NOT_BUILT))
    return
  }
  await app.register(fastifyStatic, {
    root: webRoot,
    index: false,
    cacheControl: false,
    setHeaders: (response, path) =>
      void response.setHeader('cache-control', HASHED.test(path) ? 'public, max-age=31536000, immutable' : 'no-cache'),
  })
  const page = (file: string) => async (_: unknown, reply: FastifyReply) => reply.sendFile(file)
  app.get('/', page('index.html'))
  app.get(ROUTES.dashboard, page('dashboard.html'))
  app.get(ROUTES.api, page('api.html'))
}

/**
 * healthz: the process answers. readyz: it takes work; 503 with the reason while it ends, so that a proxy sends
 * requests elsewhere.
 */
export function registerProbes(app: FastifyInstance, notReady: () => string | undefined): void {
  app.get(ROUTES.healthz, async () => ({ ok: true }))
  app.get(ROUTES.readyz, async (_, reply) => {
    const reason = notReady()
    if (reason === undefined) return { ready: true }
    return reply.code(503).header('retry-after', RETRY_SECONDS).send({ ready: false, reason })
  })
}
