// The table of addresses and methods: what is not in it is refused before a byte of a body is read.
import type { FastifyInstance, FastifyReply } from 'fastify'
import { HttpRefusal, announcesBody, notFound } from './errors.ts'

export interface Route {
  readonly method: string
  /** with `:name` for a part that varies, as it was registered */
  readonly url: string
}

/** Must be registered before all routes. Lists them as they come. */
export function registerRoutesOnly(app: FastifyInstance): readonly Route[] {
  const routes: Route[] = []
  app.addHook('onRoute', ({ method, url }) => void routes.push(...[method].flat().map((one) => ({ method: one, url }))))
  app.addHook('onRequest', async (request, reply) => {
    if (request.is404) refuse(reply, methodsAt(routes, request.url))
    if ((request.method === 'GET' || request.method === 'HEAD') && announcesBody(request))
      throw new HttpRefusal(400, 'message-malformed', `expected no body with ${request.method}, got one; leave it out`)
  })
  return routes
}

/** @throws HttpRefusal 404 for an address that does not exist, 405 for a method that it does not take */
function refuse(reply: FastifyReply, methods: ReadonlySet<string>): never {
  if (methods.size === 0) throw notFound('there is nothing at this address')
  const allowed = [...methods].join(', ')
  void reply.header('allow', allowed)
  throw new HttpRefusal(405, 'message-unexpected', `expected ${allowed} for this address, got another method`)
}

function methodsAt(routes: readonly Route[], address: string): ReadonlySet<string> {
  const path = address.split('?', 1)[0] ?? ''
  return new Set(routes.filter(({ url }) => fits(path, url)).map(({ method }) => method))
}

function fits(path: string, url: string): boolean {
  const parts = path.split('/')
  const named = url.split('/')
  return parts.length === named.length && named.every((name, i) => name.startsWith(':') || name === parts[i])
}
