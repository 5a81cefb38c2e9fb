// What the operator needs of an API server of Kubernetes, in memory: resource versions, conflicts, finalizers, the
// status and scale subresources, watches with events that are forgotten after a while. And the faults of a real one.
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'

export interface KubeObject {
  readonly apiVersion?: string
  readonly kind?: string
  readonly metadata: Readonly<Record<string, unknown>> & { readonly name: string }
  readonly spec?: Readonly<Record<string, unknown>>
  readonly status?: Readonly<Record<string, unknown>>
}

interface KubeEvent {
  readonly version: number
  readonly path: string
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED'
  readonly object: KubeObject
}

const ITEM = /^(\/apis?\/(?:[\w.-]+\/)?v\w+\/namespaces\/\w[\w-]*\/\w+)\/([\w.-]+)(?:\/(status|scale))?$/

export class KubeServer {
  readonly #objects = new Map<string, KubeObject>()
  readonly #watches = new Set<{ readonly path: string; readonly response: ServerResponse }>()
  #events: KubeEvent[] = []
  #version = 1
  #faults = { status: 500, left: 0 }
  #server: Server | undefined
  /** requests by method and status, such as "PATCH 409" */
  readonly seen = new Map<string, number>()

  async start(port = 0): Promise<string> {
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => refuse(response, 500, String(error)))
    })
    this.#server.listen(port, '127.0.0.1')
    await once(this.#server, 'listening')
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Objects stay. */
  async stop(): Promise<void> {
    this.#server?.closeAllConnections()
    this.#server?.close()
    this.#watches.clear()
  }

  /** The next changes fail that are none of an author. */
  failNext(left: number, status: number): void {
    this.#faults = { status, left }
  }

  /** As after a compaction: a watch from an older version is told 410. */
  forgetEvents(): void {
    this.#events = []
    this.#version++
    for (const { response } of this.#watches) response.end()
    this.#watches.clear()
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', url = '' } = request
    const { pathname, searchParams } = new URL(url, 'http://kube')
    response.once('finish', () => {
      const name = `${method} ${response.statusCode}`
      this.seen.set(name, (this.seen.get(name) ?? 0) + 1)
    })
    if (searchParams.get('watch') === 'true')
      return this.#watch(pathname, Number(searchParams.get('resourceVersion')), response)
    const [, list, name, part] = ITEM.exec(pathname) ?? []
    if (list === undefined || name === undefined) return this.#ofList(method, pathname, request, response)
    const object = this.#objects.get(`${list}/${name}`)
    if (object === undefined) return refuse(response, 404, `${name} not found`)
    switch (method) {
      case 'GET':
        return send(response, 200, part === 'scale' ? scaleOf(object) : object)
      case 'DELETE':
        return send(response, 200, this.#delete(list, object))
      case 'PATCH':
        return this.#patch({ list, object, part, patch: JSON.parse(await text(request)) as Patch }, response)
      default:
        return refuse(response, 405, method)
    }
  }

  async #ofList(method: string, path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (method === 'GET') {
      const items = [...this.#objects].filter(([key]) => key.startsWith(`${path}/`)).map(([, object]) => object)
      return send(response, 200, { items, metadata: { resourceVersion: String(this.#version) } })
    }
    const given = JSON.parse(await text(request)) as KubeObject
    if (this.#objects.has(`${path}/${given.metadata.name}`)) return refuse(response, 409, 'it is there already')
    const metadata = { ...given.metadata, uid: crypto.randomUUID(), generation: 1 }
    send(response, 201, this.#store('ADDED', path, { ...given, metadata }))
  }

  #patch(
    { list, object, part, patch }: { list: string; object: KubeObject; part: string | undefined; patch: Patch },
    response: ServerResponse,
  ): void {
    if (patch.spec === undefined && this.#faults.left-- > 0)
      return refuse(response, this.#faults.status, 'a fault of the test')
    const { resourceVersion } = (patch.metadata ?? {}) as { resourceVersion?: string }
    if (resourceVersion !== undefined && resourceVersion !== object.metadata['resourceVersion'])
      return refuse(response, 409, 'the object has been modified; please apply your changes to the latest version')
    if (part === 'status')
      return send(
        response,
        200,
        this.#store('MODIFIED', list, { ...object, status: merged(object.status, patch.status) }),
      )
    const spec = merged(object.spec, patch.spec)
    if (part === 'scale') return send(response, 200, scaleOf(this.#store('MODIFIED', list, { ...object, spec })))
    const isOther = JSON.stringify(spec) !== JSON.stringify(object.spec)
    const generation = Number(object.metadata['generation']) + (isOther ? 1 : 0)
    const metadata = { ...object.metadata, ...patch.metadata, generation } as KubeObject['metadata']
    const { finalizers = [], deletionTimestamp } = metadata as { finalizers?: string[]; deletionTimestamp?: string }
    const isGone = deletionTimestamp !== undefined && finalizers.length === 0
    send(response, 200, this.#store(isGone ? 'DELETED' : 'MODIFIED', list, { ...object, metadata, spec }))
  }

  #delete(list: string, object: KubeObject): KubeObject {
    const { finalizers = [] } = object.metadata as { finalizers?: string[] }
    if (finalizers.length === 0) return this.#store('DELETED', list, object)
    const metadata = { ...object.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' }
    return this.#store('MODIFIED', list, { ...object, metadata })
  }

  #store(type: KubeEvent['type'], path: string, given: KubeObject): KubeObject {
    const version = ++this.#version
    const object = { ...given, metadata: { ...given.metadata, resourceVersion: String(version) } }
    const key = `${path}/${object.metadata.name}`
    if (type === 'DELETED') this.#objects.delete(key)
    else this.#objects.set(key, object)
    const event = { version, path, type, object }
    this.#events.push(event)
    for (const watch of this.#watches) if (watch.path === path) write(watch.response, event)
    return object
  }

  #watch(path: string, from: number, response: ServerResponse): void {
    response.writeHead(200, { 'content-type': 'application/json' })
    const oldest = this.#events[0]?.version ?? this.#version + 1
    if (from + 1 < oldest && from < this.#version) {
      const object = { kind: 'Status', code: 410, message: `too old resource version: ${from}` }
      response.end(`${JSON.stringify({ type: 'ERROR', object })}\n`)
      return
    }
    response.flushHeaders()
    for (const event of this.#events) if (event.path === path && event.version > from) write(response, event)
    const watch = { path, response }
    this.#watches.add(watch)
    response.once('close', () => this.#watches.delete(watch))
  }
}

interface Patch {
  readonly metadata?: Readonly<Record<string, unknown>>
  readonly spec?: object
  readonly status?: object
}

/** JSON Merge Patch of one level. */
function merged(value: object = {}, patch: object = {}): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries({ ...value, ...patch }).filter(([, field]) => field !== null))
}

function scaleOf({ metadata, spec = {} }: KubeObject): object {
  return { kind: 'Scale', metadata, spec: { replicas: spec['replicas'] ?? 0 } }
}

function write(response: ServerResponse, { type, object }: KubeEvent): void {
  response.write(`${JSON.stringify({ type, object })}\n`)
}

function send(response: ServerResponse, status: number, value: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}

function refuse(response: ServerResponse, code: number, message: string): void {
  send(response, code, { kind: 'Status', status: 'Failure', code, message })
}
