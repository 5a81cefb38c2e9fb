// Serves the built pages as the coordinator does, same headers, with a watch stream that a test plays.
import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { extname, join, normalize } from 'node:path'
import { type JobList, ROUTES, type RunView, type WatchMessage } from '@starling-grid/protocol'
import { type WebSocket, WebSocketServer } from 'ws'

export const CSP = [
  "default-src 'none'",
  "style-src 'self'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "worker-src 'self'",
  "connect-src 'self' ws: wss:",
  "img-src 'self' data:",
  "font-src 'self'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types starling',
].join('; ')

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
  '.wgsl': 'text/wgsl',
}

/** Where a fake volunteer connects. */
export const VOLUNTEER_PATH = '/fake-volunteer'
/** A volunteer that says something at all says it within this. */
const HEAR_MS = 15_000

export interface FixtureServer {
  readonly url: string
  /** what a new watcher gets first */
  first: WatchMessage
  /** to all watchers */
  send(message: WatchMessage): void
  /** false: the stream breaks, and new ones are refused */
  answer(watchers: boolean): void
  /** what watchers said, the newest last */
  readonly said: readonly string[]
  /** paths that watchers dialled, the newest last */
  readonly watched: readonly string[]
  /** that the server lists */
  jobs: readonly RunView[]
  /** resolves with the first message of the next volunteer that says something */
  heard(): Promise<string>
  stop(): Promise<void>
}

export async function startFixtureServer(folder: string, first: WatchMessage, port = 0): Promise<FixtureServer> {
  const server = createServer((request, response) => void serve(folder, { request, response, jobs: fixture.jobs }))
  const volunteers = new WebSocketServer({ noServer: true })
  const watchers = new WebSocketServer({ noServer: true })
  const said: string[] = []
  const watched: string[] = []
  let answering = true
  server.on('upgrade', (request, socket, head) => {
    if (request.url === VOLUNTEER_PATH)
      return volunteers.handleUpgrade(request, socket, head, (volunteer) => volunteers.emit('connection', volunteer))
    if (!answering || new URL(request.url ?? '/', 'http://fixture').pathname !== ROUTES.watch)
      return void socket.destroy()
    watched.push(request.url ?? '')
    watchers.handleUpgrade(request, socket, head, (watcher) => {
      watcher.on('message', (data: Buffer) => said.push(data.toString()))
      watcher.send(JSON.stringify(fixture.first))
    })
  })
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  const everyone = (act: (watcher: WebSocket) => void): void => watchers.clients.forEach(act)
  const fixture: FixtureServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    first,
    said,
    watched,
    jobs: [],
    send: (message) => everyone((watcher) => watcher.send(JSON.stringify(message))),
    answer(watching) {
      answering = watching
      if (!watching) everyone((watcher) => watcher.terminate())
    },
    async heard() {
      const signal = AbortSignal.timeout(HEAR_MS)
      const [volunteer] = (await once(volunteers, 'connection', { signal })) as [WebSocket]
      const [message] = (await once(volunteer, 'message', { signal })) as [Buffer]
      return message.toString()
    },
    async stop() {
      everyone((watcher) => watcher.terminate())
      volunteers.clients.forEach((volunteer) => volunteer.terminate())
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return fixture
}

const PAGES: Readonly<Record<string, string>> = { '/': 'index.html', '/dashboard': 'dashboard.html' }

interface Asked {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly jobs: JobList['jobs']
}

async function serve(folder: string, { request, response, jobs }: Asked): Promise<void> {
  const { pathname } = new URL(request.url ?? '/', 'http://fixture')
  if (pathname === ROUTES.jobs)
    return void response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify({ jobs, next: null } satisfies JobList))
  const file = join(folder, PAGES[pathname] ?? normalize(pathname))
  const found = await stat(file).catch(() => undefined)
  if (found === undefined || !found.isFile()) return void response.writeHead(404).end('not found')
  response.writeHead(200, {
    'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
    'content-security-policy': CSP,
  })
  createReadStream(file).pipe(response)
}
