// The pages, from the folder that the web build made, and the two probes of the server's operator.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import fastifyStatic from '@fastify/static'
import { ROUTES } from '@starling-grid/protocol'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { pageAddress, type PageParts } from './coordinators.ts'
import { RETRY_SECONDS } from './errors.ts'

/** Names of built files hold a hash of their content; the pages' own names stay. */
const HASHED = /[\\/]assets[\\/]/
const NOT_BUILT =
  'The web page is not built. Run `npm start` in the repository, or name its folder with --web-root.\n' +
  'Node volunteers can still join.\n'

export async function registerPages(
  app: FastifyInstance,
  { webRoot, ...parts }: PageParts & { readonly webRoot: string | undefined },
): Promise<void> {
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
  const page = (file: string) => async (request: FastifyRequest, reply: FastifyReply) => {
    const other = withoutLending(request) ?? (await pageAddress(request, parts))
    return other === undefined ? reply.sendFile(file) : reply.redirect(other)
  }
  app.get('/', page('index.html'))
  app.get(ROUTES.dashboard, page('dashboard.html'))
  app.get(ROUTES.api, async (_, reply) => reply.sendFile('api.html'))
}

/**
 * `lend=on` begins to lend without a click. Only a page of the same site leads there: that of another coordinator, on
 * which the visitor clicked. A browser says so, and pages cannot (Fetch Metadata, W3C).
 */
function withoutLending({ url, query, headers }: FastifyRequest): string | undefined {
  const asked = query as Readonly<Record<string, unknown>>
  const site = headers['sec-fetch-site']
  if (asked['lend'] === undefined || site === 'same-site' || site === 'same-origin') return undefined
  const [path = '/', text = ''] = url.split('?', 2)
  const rest = new URLSearchParams(text)
  rest.delete('lend')
  return rest.size === 0 ? path : `${path}?${rest}`
}

/** Which coordinator has which job; empty for one that has its store for itself. */
export interface JobOwners {
  readonly owners?: Readonly<Record<string, string>>
}

/**
 * healthz: the process answers. readyz: it takes work; 503 with the reason while it ends, so that a proxy sends
 * requests elsewhere.
 */
export function registerProbes(
  app: FastifyInstance,
  { notReady, owners }: { readonly notReady: () => string | undefined; readonly owners: () => JobOwners },
): void {
  app.get(ROUTES.healthz, async () => ({ ok: true }))
  app.get(ROUTES.readyz, async (_, reply) => {
    const reason = notReady()
    if (reason === undefined) return { ready: true, ...owners() }
    return reply.code(503).header('retry-after', RETRY_SECONDS).send({ ready: false, reason })
  })
}
