import { once } from 'node:events'
// A coordinator that means harm: it welcomes every volunteer, hands out the test's job, and answers requests as the
// test chooses. Written with node:http and ws alone, so that nothing of the real one protects the volunteer.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after } from 'node:test'
import { encode, type JobId, type JobTerms, type MessageTo } from '@starling-grid/protocol'
import { createVolunteer, type VolunteerHost, type VolunteerStatus } from '@starling-grid/volunteer'
import type { Volunteer } from '@starling-grid/volunteer/testing'
import { type WebSocket, WebSocketServer } from 'ws'
import { createNodeHost, type NodeHostOptions } from '../../client-node/src/host.ts'
import { smallJob, startCoordinator, submit, volunteer } from './fixture.ts'

export interface HostileOptions {
  readonly job?: (honest: JobTerms) => JobTerms
  readonly iceServers?: MessageTo<'welcome'>['iceServers']
  /** answers GET /api/shards/…; absent: 404 */
  readonly shard?: (request: IncomingMessage, response: ServerResponse) => void
}

export interface HostileCoordinator {
  readonly url: string
  /** of the job that it gives out */
  readonly job: JobId
  /** paths of requests, in their order */
  readonly asked: string[]
  readonly sockets: Set<WebSocket>
  /** paths of sockets, in their order */
  readonly upgrades: string[]
}

/** Terms as a real coordinator gives them. */
export async function honestTerms(): Promise<JobTerms> {
  const { url } = await startCoordinator()
  await submit(url, smallJob())
  const fake = volunteer(url, { obedient: false })
  fake.hello()
  const { job } = await fake.heard('welcome')
  fake.close()
  if (job === null) throw new Error('no job was given')
  return job
}

export async function listening(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  after(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

export async function startHostile({ job, iceServers = [], shard }: HostileOptions): Promise<HostileCoordinator> {
  const terms = await honestTerms()
  const asked: string[] = []
  const sockets = new Set<WebSocket>()
  const opened: string[] = []
  const server = createServer((request, response) => {
    asked.push(request.url ?? '')
    if (request.url?.startsWith('/api/shards/') && shard !== undefined) return shard(request, response)
    response.writeHead(404).end()
  })
  const upgrades = new WebSocketServer({ server })
  upgrades.on('connection', (socket, { url = '' }) => {
    sockets.add(socket)
    opened.push(url)
    socket.on('error', () => undefined)
    if (url.startsWith('/signalling')) return socket.send(JSON.stringify({ type: 'OPEN' }))
    const welcome: MessageTo<'welcome'> = {
      type: 'welcome',
      session: 'f'.repeat(64),
      fence: 1,
      signallingPath: '/signalling',
      iceServers,
      job: job?.(terms) ?? terms,
    }
    socket.send(encode({ type: 'challenge', nonce: '0'.repeat(64) }))
    socket.once('message', () => socket.send(encode(welcome)))
  })
  after(() => upgrades.close())
  return { url: await listening(server), job: terms.id, asked, sockets, upgrades: opened }
}

export interface Victim {
  readonly volunteer: Volunteer
  readonly ended: Promise<unknown>
  /** The first status that this holds of, past or future. */
  status(what: string, holds: (status: VolunteerStatus) => boolean): Promise<VolunteerStatus>
}

/** The production volunteer, in this process. */
export function startVictim(
  url: string,
  options: Partial<NodeHostOptions> = {},
  change: Partial<VolunteerHost> = {},
): Victim {
  const seen: VolunteerStatus[] = []
  let changed = (): void => undefined
  const host = createNodeHost({ coordinatorUrl: url, executor: 'reference', ...options })
  // Nothing of an earlier run helps.
  const shards = { get: async () => undefined, put: async () => undefined }
  const taking = createVolunteer(
    { ...host, shards, ...change },
    {
      name: 'victim',
      onStatus: (status) => {
        seen.push(status)
        changed()
      },
    },
  )
  const ended = taking.run().catch((error: unknown) => error)
  after(() => taking.stop())
  return {
    volunteer: taking,
    ended,
    async status(what, holds) {
      for (let from = 0; ;) {
        const found = seen.slice(from).find(holds)
        if (found !== undefined) return found
        from = seen.length
        await within(
          new Promise<void>((resolve) => {
            changed = resolve
          }),
          () => `${what}; last: ${JSON.stringify(seen.at(-1))?.slice(0, 400)}`,
        )
      }
    },
  }
}

const GIVE_UP_MS = 60_000

function within(work: Promise<void>, what: () => string): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`gave up waiting for ${what()}`)), GIVE_UP_MS)
    void work.then(() => {
      clearTimeout(timer)
      resolve()
    })
  })
}
