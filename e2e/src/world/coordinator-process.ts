// A coordinator of a simulated grid: production's sessions, runs and member routes on a virtual clock, over a disk that
// outlives the process (disk.ts). A process that is killed writes nothing more, and no request of it is answered.
import type { Timing } from '@starling-grid/coordinator/run'
import {
  Access,
  memoryState,
  TokenBook,
  type FollowTask,
  KeptFiles,
  registerBodies,
  registerErrors,
  registerMemberRoutes,
  Runs,
  Sessions,
  ShardProcesses,
} from '@starling-grid/coordinator/shell'
import { digest, type ErrorCode, GridError, type MemberId, ROUTES, type Sha256 } from '@starling-grid/protocol'
import { followSums, versionFrom } from '@starling-grid/volunteer'
import type { Asked } from '@starling-grid/volunteer/testing'
import Fastify, { type FastifyInstance } from 'fastify'
import type { Dice } from './dice.ts'
import type { Disk, DiskUser } from './disk.ts'
import { RelayDesk, type RelayWire } from './relays.ts'
import type { VirtualProcess, VirtualTime } from './virtual-time.ts'
import type { CoordinatorEnd } from './wires.ts'

/** host and port under which members know it */
export const NAME = 'grid.test'

/** What the coordinator's thread does, in this one: virtual time waits for no thread. */
async function derived({ terms, from, state, records, sums }: FollowTask): Promise<Sha256> {
  return digest(followSums(versionFrom(terms, from, state), records, sums).encode())
}

export interface CoordinatorParts {
  readonly time: VirtualTime
  readonly disk: Disk
  readonly dice: Dice
  readonly timing: Timing
  /** a refusal, a defect: no honest grid has one */
  onRefused(code: ErrorCode, what: string): void
  onTrouble(text: string): void
  /** another coordinator has the journal, and this one has ended */
  onDeposed(): void
  /** it is about to write rows, or has: it may die here */
  onWrite(): void
}

export class CoordinatorProcess implements DiskUser {
  readonly clock: VirtualProcess
  readonly runs: Runs
  readonly #parts: CoordinatorParts
  readonly #sessions: Sessions
  readonly #app: FastifyInstance
  readonly #relays: RelayDesk
  readonly #waiting = new Set<(error: Error) => void>()
  isOpen = false
  isDeposed = false

  constructor(parts: CoordinatorParts) {
    this.#parts = parts
    const { timing, onRefused, onTrouble } = parts
    const clock = parts.time.process()
    this.clock = clock
    this.#sessions = new Sessions({
      clock,
      signallingPath: ROUTES.signalling,
      ice: { urls: [] },
      linkOpenMs: timing.linkOpenMs,
      placeFor: (volunteer) => this.runs.placeFor(volunteer),
      lastRun: () => this.runs.shown(),
      find: (job) => this.runs.find(job),
      onRefused,
      onGone: (member) => this.#relays.relays.drop(member),
      relayedLinks: () => this.#relays.relays.links,
    })
    const { blobs } = parts.disk
    this.runs = new Runs({
      clock,
      store: parts.disk.seenBy(this, parts.dice),
      blobs,
      catalog: parts.disk.shelf,
      dataRoot: '.',
      files: KeptFiles.inMemory(),
      audience: this.#sessions,
      shardProcesses: new ShardProcesses({ clock }),
      timing,
      follow: derived,
      onTrouble,
      onDeposed: () => this.displaced(),
      onEnded: (run) => this.#sessions.runEnded(run),
    })
    this.#relays = new RelayDesk(this, timing.linkOpenMs)
    this.#app = Fastify({ pluginTimeout: 0 })
    registerErrors(this.#app, { onRefused: () => undefined, onDefect: onTrouble })
    registerBodies(this.#app)
    const tokens = new TokenBook({ clock, store: memoryState(), first: 'of the owner' })
    const access = new Access({ clock, runs: this.runs, sessions: this.#sessions, tokens })
    registerMemberRoutes(this.#app, { access, blobs })
  }

  async start(): Promise<void> {
    await this.runs.start()
    if (this.clock.isDead) return
    this.#sessions.start()
    this.isOpen = true
  }

  /** SIGKILL: sockets are the world's to break. */
  kill(): void {
    if (this.clock.isDead) return
    this.isOpen = false
    this.clock.kill()
    this.#relays.break()
    for (const fail of [...this.#waiting]) fail(new GridError('coordinator-lost', 'the connection broke'))
  }

  onWrite(): void {
    this.#parts.onWrite()
  }

  /** The member whose token this is. */
  authenticate(token: string): MemberId | undefined {
    return this.#sessions.authenticate(token)
  }

  refused(code: ErrorCode, what: string): void {
    this.#parts.onRefused(code, what)
  }

  /** @throws GridError 'coordinator-lost' */
  relay(path: string, token: string, wire: RelayWire): void {
    this.#relays.admit(path, token, wire)
  }

  admit(socket: CoordinatorEnd): void {
    this.#sessions.admit(socket as unknown as Parameters<Sessions['admit']>[0], { names: [NAME], address: '192.0.2.1' })
  }

  mayTalk(a: MemberId, b: MemberId): boolean {
    return this.isOpen && this.runs.mayTalk(a, b)
  }

  /** A request, when it has arrived here. @throws GridError 'coordinator-lost' */
  async request(path: string, { method = 'GET', headers, body }: Asked): Promise<Response> {
    const { time } = this.#parts
    if (this.clock.isDead) throw new GridError('coordinator-lost', 'the connection broke')
    time.inFlight++
    try {
      const answered = this.#app.inject({
        method: method as 'GET',
        url: path,
        headers: { ...headers, ...(body ? { 'content-length': String(body.byteLength) } : {}) },
        ...(body ? { payload: Buffer.from(body) } : {}),
      })
      const { statusCode, rawPayload, headers: given } = await this.#unlessKilled(answered)
      const fields = Object.entries(given).flatMap(([name, value]) =>
        value === undefined ? [] : [[name, String(value)] as [string, string]],
      )
      return new Response(statusCode === 204 ? null : new Uint8Array(rawPayload), {
        status: statusCode,
        headers: fields,
      })
    } finally {
      time.inFlight--
    }
  }

  #unlessKilled<T>(answered: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject)
      answered.then(resolve, reject).finally(() => this.#waiting.delete(reject))
    })
  }

  /** It learns that another one has the journal: by its disk, or by the card in its folder. */
  displaced(): void {
    if (this.isDeposed) return
    this.isDeposed = true
    this.isOpen = false
    this.#sessions.stop('another coordinator took over')
    void this.runs.stop().then(() => this.#parts.onDeposed())
  }
}
