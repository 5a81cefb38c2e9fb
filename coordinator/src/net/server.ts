// The coordinator as one thing that starts and stops: storage, runs, sessions, and the HTTP server around them.
import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import fastifyRateLimit from '@fastify/rate-limit'
import fastifyWebsocket from '@fastify/websocket'
import {
  type CancelTimer,
  DEFAULT_HOST,
  DEFAULT_PORT,
  describeError,
  type ErrorCode,
  GridError,
  type JobId,
  MAX_MESSAGE_BYTES,
  type MemberId,
  plainText,
  ROUTES,
  SESSION_PROTOCOL,
} from '@starling-grid/protocol'
import { compileChecks } from '@starling-grid/protocol/compiled-checks'
import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import { InviteBook, type Participation } from '../access/invites.ts'
import { TokenBook } from '../access/tokens.ts'
import { registerAccessLog } from '../api/access-log.ts'
import { Access } from '../api/access.ts'
import { addressOf } from '../api/addresses.ts'
import { registerBodies } from '../api/bodies.ts'
import { type ConnectionLimits, DEFAULT_CONNECTION_LIMITS, guardConnections } from '../api/connections.ts'
import { registerCoordinators } from '../api/coordinators.ts'
import { registerDescription } from '../api/description.ts'
import { registerErrors } from '../api/errors.ts'
import { registerGuards } from '../api/guards.ts'
import { registerInvites } from '../api/invites.ts'
import { registerJobs } from '../api/jobs.ts'
import { registerMemberRoutes } from '../api/member-routes.ts'
import { type MetricsOptions, registerMetrics } from '../api/metrics.ts'
import { registerPages, registerProbes } from '../api/pages.ts'
import { registerRoutesOnly, type Route } from '../api/routes.ts'
import { registerSecurityHeaders } from '../api/security-headers.ts'
import { registerShardProcesses } from '../api/shard-processes.ts'
import { registerTokens } from '../api/tokens.ts'
import { registerVariants } from '../api/variants.ts'
import { registerWatch, type WatchService } from '../api/watch.ts'
import type { BlobStore } from '../blobs/blob-store.ts'
import { type CoordinatorClock, processClock } from '../clock.ts'
import { Catalog } from '../datasets/catalog.ts'
import { FolderOwner } from '../folder-owner.ts'
import { KeptFiles } from '../host/kept-files.ts'
import { Refusals } from '../host/refusals.ts'
import { Runs } from '../jobs/runs.ts'
import { coordinatorId, type CoordinatorId } from '../journal/owner-book.ts'
import type { StateStore } from '../journal/state-store.ts'
import type { Log, LogEntry } from '../log-entry.ts'
import { Meter } from '../metrics/meter.ts'
import { ownCoordinatorId } from '../owners/coordinator-id.ts'
import type { Owners } from '../owners/owners.ts'
import { requireSharedBlobs } from '../owners/shared-blobs.ts'
import { ShardProcesses } from '../parameter-server/shard-processes.ts'
import type { Timing } from '../run/timing.ts'
import { DEFAULT_TIMING } from '../run/timing.ts'
import { openStorage, type StoragePlaces } from '../storage.ts'
import { registerGroups } from './groups.ts'
import { type IceOptions, requireIceOptions } from './ice-servers.ts'
import { isLoopback, shareNetwork, voiceOf } from './network.ts'
import { relayQuota } from './relay-quota.ts'
import { type Relay, registerRelay } from './relay.ts'
import { Sessions } from './sessions.ts'
import { SharedJobs } from './shared-jobs.ts'
import { registerSignalling, type Signalling } from './signalling.ts'
import { TlsDoor, type TlsDoorOptions } from './tls-door.ts'

const NO_ICE: IceOptions = { urls: [] }
/** ms for a whole request to arrive; 0: as long as its bytes move (api/connections.ts) */
const REQUEST_MS = 0
/** ms for its headers */
const HEADERS_MS = 10_000
/** ms between looks for connections whose time is over; Node looks every 30 s by itself */
const CHECK_CONNECTIONS_MS = 2000
/** ms for connections to close; a connection that stays open longer does not keep the process */
const CLOSE_MS = 3000
/** ms between looks at tokens and invites, where other coordinators may make and revoke some */
const RELOAD_MS = 2000
/** ms for answers that are decided to leave before connections close */
const ANSWER_MS = 300
/** joins in a minute from one address: a lab behind one router, and no storm */
const JOINS_PER_MINUTE = 600

/** Our own WebSockets: 'self' does not cover them in every browser. Guards have refused a Host that is not ours. */
const socketsOf = ({ headers: { host = '' } }: IncomingMessage): string =>
  /^[\w.:[\]-]+$/.test(host) ? `ws://${host} wss://${host}` : "'self'"

// No inline scripts or styles, nothing from elsewhere.
const CONTENT_SECURITY_POLICY = {
  'default-src': ["'none'"],
  'style-src': ["'self'"],
  // Optimizer steps are WebAssembly, which is compiled from our own bytes and from nothing that was fetched.
  'script-src': ["'self'", "'wasm-unsafe-eval'"],
  'worker-src': ["'self'"],
  'connect-src': ["'self'", socketsOf],
  'img-src': ["'self'", 'data:'],
  'font-src': ["'self'"],
  'base-uri': ["'none'"],
  'object-src': ["'none'"],
  'frame-ancestors': ["'none'"],
  // No text becomes a script or markup; addresses of Workers come from client-web/src/own-worker.ts.
  'require-trusted-types-for': ["'script'"],
  'trusted-types': ['starling'],
}

/** Where it listens, and how members reach it and each other. */
export interface NetworkOptions {
  readonly host?: string
  /** 0: any free one */
  readonly port?: number
  /** a second door for other machines, beside that of `host` and `port` */
  readonly https?: TlsDoorOptions
  /** how people reach it through a proxy */
  readonly publicUrl?: URL
  /** other names that requests may call it by */
  readonly allowedHosts?: readonly string[]
  /** addresses or networks of proxies in front of it, whose X-Forwarded-For says who asks */
  readonly trustedProxies?: readonly string[]
  readonly connections?: Partial<ConnectionLimits>
  readonly ice?: IceOptions
  /** volunteers get each other's private addresses, also those that come from elsewhere */
  readonly lan?: boolean
  /** GB that the relay carries in an hour for one member, and four times as many for one address; absent: 40 */
  readonly relayQuota?: number
}

/** `dataDir` holds the journal and the blobs, unless other places are named. */
interface LogPlaces {
  /** absent: nothing is logged */
  readonly log?: Log
  /** each answered request is a line of the log */
  readonly accessLog?: boolean
}

export interface CoordinatorOptions extends NetworkOptions, StoragePlaces, LogPlaces {
  /** data folder whose imported datasets jobs may name; absent: dataDir */
  readonly datasetsDir?: string
  /** folder that jobs may read datasets from; the working directory by default */
  readonly dataRoot?: string
  /** of job control */
  readonly token: string
  /** which volunteers it takes; absent: all */
  readonly participation?: Participation
  /** folder of the built pages */
  readonly webRoot?: string
  readonly timing?: Partial<Timing>
  /** absent: of this process */
  readonly clock?: CoordinatorClock
  /** displace the coordinator that uses dataDir now */
  readonly takeOver?: boolean
  /** who reads /metrics */
  readonly metrics?: MetricsOptions
  /** instead of dataDir, for tests */
  readonly storage?: { readonly store: StateStore; readonly blobs: BlobStore }
  /** another coordinator took over, and this one has ended */
  readonly onDeposed?: (why: string) => void
}

export interface Coordinator {
  /** @throws GridError 'folder-unwritable', 'folder-in-use', 'port-taken', 'disk-failed' */
  start(): Promise<void>
  /**
   * Takes no new work, lets each run end its step and write a checkpoint, for `limitMs` at most, and says whether all
   * did. Volunteers stay until stop().
   */
  drain(limitMs: number): Promise<boolean>
  /** Everything decided is durable and every socket closed when it resolves. */
  stop(): Promise<void>
  /** where it listens, once started */
  readonly url: string
  readonly port: number
  /** of its https door; undefined: it has none */
  readonly httpsPort: number | undefined
  readonly runs: Runs
  /** every address that it answers, with its methods */
  readonly routes: readonly Route[]
}

/** @example const coordinator = createCoordinator({ dataDir: 'data', token }); await coordinator.start() */
export function createCoordinator(options: CoordinatorOptions): Coordinator {
  return new CoordinatorLife(options)
}

interface RouteParts {
  readonly runs: Runs
  readonly sessions: Sessions
  readonly blobs: BlobStore
  readonly relay: Relay
  readonly tokens: TokenBook
  readonly invites: InviteBook
  readonly shared: SharedJobs
}

interface ServerParts {
  readonly tokens: TokenBook
  readonly app: FastifyInstance
  readonly store: StateStore
  readonly runs: Runs
  readonly sessions: Sessions
  readonly watching: WatchService
  /** where other coordinators share the store */
  readonly owners: Owners | undefined
}

class CoordinatorLife implements Coordinator {
  readonly #options: CoordinatorOptions
  readonly #clock: CoordinatorClock
  readonly #shardProcesses: ShardProcesses
  readonly #meter = new Meter()
  #parts: ServerParts | undefined
  #owner: FolderOwner | undefined
  #tlsDoor: TlsDoor | undefined
  #stopReloading: CancelTimer = () => undefined
  readonly #refusals = new Refusals()
  /** /readyz says no */
  #draining = false
  #stopping = false
  /** why another coordinator has the jobs */
  #deposedBy: string | undefined
  #routes: readonly Route[] = []

  /** @throws GridError 'usage' */
  constructor(options: CoordinatorOptions) {
    requireIceOptions(options.ice ?? NO_ICE)
    this.#options = options
    this.#clock = options.clock ?? processClock
    this.#shardProcesses = new ShardProcesses({ clock: this.#clock })
  }

  get runs(): Runs {
    return this.#started.runs
  }

  get routes(): readonly Route[] {
    return this.#routes
  }

  get port(): number {
    return (this.#started.app.server.address() as AddressInfo).port
  }

  get httpsPort(): number | undefined {
    return this.#tlsDoor?.port
  }

  get url(): string {
    const { host = DEFAULT_HOST } = this.#options
    const bracketed = host.includes(':') ? `[${host}]` : host
    const name = host === '0.0.0.0' || host === '::' ? 'localhost' : bracketed
    return `http://${name}:${this.port}`
  }

  // oxlint-disable-next-line max-lines-per-function -- the parts of a server, in the order in which they can be opened
  async start(): Promise<void> {
    compileChecks()
    const { store, blobs } = await this.#openStorage()
    const shared: SharedJobs = new SharedJobs(
      {
        clock: this.#clock,
        self: await this.#coordinatorId(store),
        book: store.owners,
        url: () => this.#options.publicUrl?.origin ?? this.url,
        takesJobs: () => !this.#draining,
        secret: this.#options.token,
        runs: () => runs,
        sessions: () => sessions,
      },
      {
        onTrouble: (message, job) => this.#trouble(message, job),
        onPassed: (job, message) => this.#passed(job, message),
      },
    )
    const files = await KeptFiles.open(join(this.#options.dataDir, 'encoded')) // the folder is ours from here on
    let opened = (): void => undefined
    const opening = new Promise<void>((resolve) => {
      opened = resolve
    })
    const timing: Timing = { ...DEFAULT_TIMING, ...this.#options.timing }
    const sessions = new Sessions({
      clock: this.#clock,
      signallingPath: ROUTES.signalling,
      ice: this.#options.ice ?? NO_ICE,
      linkOpenMs: timing.linkOpenMs,
      placeFor: (volunteer) => runs.placeFor(volunteer),
      ...shared.forSessions,
      lastRun: () => runs.shown(),
      find: (job) => runs.find(job),
      onRefused: (code, what, member) => this.#refused(code, what, member),
      onGone: (id) => {
        signalling.drop(id)
        relay.drop(id)
      },
      relayedLinks: () => relay.links,
      admit: (newcomer) => invites.admit(newcomer),
    })
    const invites = new InviteBook({
      clock: this.#clock,
      store,
      participation: this.#options.participation ?? 'open',
      onRevoked: (id) => sessions.putOut(id),
    })
    const runs: Runs = new Runs({
      clock: this.#clock,
      store,
      blobs,
      catalog: new Catalog(this.#options.datasetsDir ?? this.#options.dataDir),
      dataRoot: this.#options.dataRoot ?? '.',
      files,
      audience: sessions,
      shardProcesses: this.#shardProcesses,
      timing,
      ...shared.forRuns,
      meter: this.#meter,
      onTrouble: (message, job) => this.#trouble(message, job),
      onEvent: (job, { kind, text }, member) =>
        this.#log({
          level: 'info',
          message: text,
          job,
          ...(member === undefined ? {} : { member }),
          about: { event: kind },
        }),
      onDeposed: (error) => void this.#deposed(error),
      onEnded: (run) => sessions.runEnded(run),
    })
    const tokens = new TokenBook({ clock: this.#clock, store, first: this.#options.token })
    const app = await this.#createApp()
    app.addHook('onRequest', async () => opening) // requests wait for the moment that the journals need
    for (const moment of ['onRequest', 'preHandler'] as const)
      app.addHook(moment, async (request) => this.#requireOwnership(request))
    const { signalling, relay } = this.#introduceMembers(app, { runs, sessions, linkOpenMs: timing.linkOpenMs })
    const watching = await this.#registerRoutes(app, { runs, sessions, blobs, relay, tokens, invites, shared })
    const { owners } = shared
    this.#parts = { app, store, runs, sessions, watching, tokens, owners }
    const reload = (): Promise<unknown> => Promise.all([tokens.reload(), invites.reload()])
    await this.#listen(app)
    await this.#owner?.listensAt(this.url)
    // Not before the port is ours: a start that fails must not depose the coordinator that runs.
    await tokens
      .start()
      .then(() => invites.start())
      .then(() =>
        runs.start(owners && (() => owners.start(({ length }) => requireSharedBlobs({ store, blobs }, length > 0)))),
      )
      .catch((error: unknown) => this.#failed(error))
      .finally(opened)
    sessions.start()
    if (owners !== undefined)
      this.#stopReloading = this.#clock.every(RELOAD_MS, () => {
        if (owners.others.length > 0) void reload().catch((error: unknown) => this.#trouble(describeError(error)))
      })
  }

  async drain(limitMs: number): Promise<boolean> {
    this.#draining = true
    const { runs, owners } = this.#started
    void owners?.refresh()
    return runs.drain('this coordinator ends', limitMs)
  }

  async stop(): Promise<void> {
    if (this.#stopping || this.#parts === undefined) return
    this.#stopping = true
    this.#draining = true
    const { app, store, runs, sessions, watching, tokens, owners } = this.#parts
    this.#stopReloading()
    await runs.stop()
    if (this.#deposedBy === undefined)
      await owners?.leave().catch((error: unknown) => this.#trouble(describeError(error)))
    else owners?.stop()
    sessions.sendAllAway()
    sessions.stop()
    watching.stop()
    tokens.stop()
    this.#tlsDoor?.close()
    const closed = new AbortController() // a timer that goes on would keep the process
    const closing = app.close().finally(() => closed.abort())
    await Promise.race([closing, this.#clock.sleep(CLOSE_MS, closed.signal)])
    await store.close()
    await this.#owner?.release()
  }

  /**
   * Another coordinator has the jobs. What waits is answered, sockets close, and volunteers find the other one at the
   * same address. onDeposed says when this one has ended.
   */
  async #deposed(error: unknown): Promise<void> {
    if (this.#deposedBy !== undefined) return
    this.#deposedBy = describeError(error)
    this.#log({ level: 'warn', message: `stopped: ${this.#deposedBy}` })
    this.#parts?.sessions.stop('another coordinator took over')
    await this.#parts?.runs.stop()
    await this.#clock.sleep(ANSWER_MS)
    await this.stop()
    this.#options.onDeposed?.(this.#deposedBy)
  }

  async #coordinatorId(store: StateStore): Promise<CoordinatorId> {
    if (store.owners === undefined || this.#options.storage !== undefined) return coordinatorId(randomUUID())
    return ownCoordinatorId(this.#options.dataDir)
  }

  #passed(job: JobId, message: string): void {
    this.#log({ level: 'info', message, job })
    if (this.runs.has(job)) return
    this.#meter.tookOver()
  }

  #trouble(message: string, job?: JobId): void {
    this.#log({ level: 'warn', message, ...(job === undefined ? {} : { job }) })
  }

  #requireOwnership({ routeOptions: { url } }: FastifyRequest): void {
    if (this.#deposedBy !== undefined && url !== ROUTES.readyz && url !== ROUTES.healthz)
      throw new GridError(
        'coordinator-leaving',
        `expected the coordinator that owns the data folder, got one that ends (${this.#deposedBy}); ask again`,
      )
  }

  get #started(): ServerParts {
    if (this.#parts === undefined) throw new Error('internal: the coordinator was not started')
    return this.#parts
  }

  /** What was opened is closed again. @throws what it was given */
  async #failed(error: unknown): Promise<never> {
    await this.stop()
    throw error
  }

  async #openStorage(): Promise<{ readonly store: StateStore; readonly blobs: BlobStore }> {
    const { storage, dataDir, takeOver = false } = this.#options
    if (storage !== undefined) return storage
    this.#owner = await FolderOwner.claim(dataDir, { takeOver, onDisplaced: (error) => void this.#deposed(error) })
    try {
      return await openStorage(this.#options)
    } catch (error) {
      await this.#owner.release()
      throw error
    }
  }

  async #createApp(): Promise<FastifyInstance> {
    const { host = DEFAULT_HOST, https, publicUrl, allowedHosts = [], trustedProxies = [], connections } = this.#options
    const app = Fastify({
      requestTimeout: REQUEST_MS,
      genReqId: () => randomUUID(),
      forceCloseConnections: true,
      exposeHeadRoutes: true,
      trustProxy: trustedProxies.length > 0 ? [...trustedProxies] : false,
      http: { headersTimeout: HEADERS_MS, connectionsCheckingInterval: CHECK_CONNECTIONS_MS },
    })
    registerErrors(app, {
      onRefused: (code, what) => this.#refused(code, what),
      onDefect: (message, request) => this.#log({ level: 'error', message, request }),
    })
    if (this.#options.accessLog === true) registerAccessLog(app, (entry) => this.#log(entry))
    // Before what refuses: a refusal carries these headers, too.
    await registerSecurityHeaders(app, {
      contentSecurityPolicy: { useDefaults: false, directives: CONTENT_SECURITY_POLICY },
      strictTransportSecurity: false, // this server speaks http; a proxy in front of it knows better
      referrerPolicy: { policy: 'no-referrer' },
      // with the opener policy that helmet sets: threads of a tab may share memory (docs/decisions/0028)
      crossOriginEmbedderPolicy: { policy: 'require-corp' },
    })
    registerGuards(app, { hosts: [host, ...(https === undefined ? [] : [https.host]), ...allowedHosts], publicUrl })
    this.#routes = registerRoutesOnly(app)
    registerBodies(app)
    guardConnections(app, {
      clock: this.#clock,
      proxies: trustedProxies,
      limits: { ...DEFAULT_CONNECTION_LIMITS, ...connections },
    })
    await app.register(fastifyRateLimit, { global: false, keyGenerator: addressOf })
    await app.register(fastifyWebsocket, {
      options: { maxPayload: MAX_MESSAGE_BYTES, perMessageDeflate: false, handleProtocols: sessionProtocolOnly },
    })
    return app
  }

  /** How members reach each other: directly, or through us. */
  #introduceMembers(
    app: FastifyInstance,
    { runs, sessions, linkOpenMs }: { readonly runs: Runs; readonly sessions: Sessions; readonly linkOpenMs: number },
  ): { readonly signalling: Signalling; readonly relay: Relay } {
    const authenticate = (id: MemberId, token: string): boolean => sessions.authenticate(token) === id
    const signalling = registerSignalling(app, {
      clock: this.#clock,
      path: ROUTES.signalling,
      authenticate,
      shareNetwork: (a, b) => this.#shareNetwork(a, b),
      mayTalk: (src, dst) => runs.mayTalk(src, dst),
      onRefusal: (code) => this.#refused(code, 'signalling'),
    })
    const relay = registerRelay(app, {
      clock: this.#clock,
      authenticate,
      linkOpenMs,
      quota: relayQuota(this.#options.relayQuota),
      mayRelay: (a, b) => runs.relaying(a, b) !== undefined,
      onRefusal: (code, what) => this.#refused(code, what),
      onForwarded: (bytes, from, to) => runs.relaying(from, to)?.countRelayed(bytes),
    })
    return { signalling, relay }
  }

  async #registerRoutes(
    app: FastifyInstance,
    { runs, sessions, blobs, relay, tokens, invites, shared }: RouteParts,
  ): Promise<WatchService> {
    const access = new Access({ clock: this.#clock, runs, sessions, tokens })
    registerTokens(app, { access, tokens })
    registerInvites(app, { access, invites, publicUrl: this.#options.publicUrl })
    registerProbes(app, {
      notReady: () => this.#deposedBy ?? (this.#draining ? 'it drains' : undefined),
      owners: () => shared.jobOwners,
    })
    const { whereIs } = shared.forRoutes
    registerCoordinators(app, { clock: this.#clock, access, ...shared.forRoutes })
    registerDescription(app)
    registerMetrics(app, {
      ...this.#options.metrics,
      meter: this.#meter,
      runs,
      access,
      present: () => sessions.present(),
      relayedLinks: () => relay.links,
      isLocal: (address) => isLoopback(address) && !this.#isProxied,
      secret: this.#options.token,
      coordinators: (isTrusted) => shared.openJobs(isTrusted),
    })
    registerJobs(app, { clock: this.#clock, runs, access, whereIs, others: () => shared.others })
    registerMemberRoutes(app, { access, blobs })
    registerVariants(app, { access, voiceOf })
    registerGroups(app, {
      clock: this.#clock,
      ice: this.#options.ice ?? NO_ICE,
      requireOwner: (request) => access.requireOwner(request, 'jobs:write'),
      shareNetwork: (a, b) => this.#shareNetwork(a, b),
      onRefusal: (code) => this.#refused(code, 'signalling'),
    })
    registerShardProcesses(app, { processes: this.#shardProcesses, access })
    app.get(
      ROUTES.volunteer,
      { websocket: true, config: { rateLimit: { max: JOINS_PER_MINUTE, timeWindow: 60_000 } } },
      (socket, request) => sessions.admit(socket, { names: this.#namesFor(request), address: request.ip }),
    )
    const watching = registerWatch(app, { clock: this.#clock, runs, access, whereIs })
    await registerPages(app, {
      clock: this.#clock,
      webRoot: this.#options.webRoot,
      elsewhere: shared.pageElsewhere,
    })
    return watching
  }

  /** The guards checked the Host header; a proxy may have put its own there. */
  #namesFor({ headers: { host = '' } }: FastifyRequest): readonly string[] {
    const { publicUrl } = this.#options
    return publicUrl === undefined ? [host] : [host, publicUrl.host]
  }

  get #isProxied(): boolean {
    const { publicUrl, trustedProxies = [] } = this.#options
    return publicUrl !== undefined || trustedProxies.length > 0
  }

  /** Behind a proxy of this machine all come from it, which tells nothing. */
  #shareNetwork(a: string, b: string): boolean {
    const { lan = false, publicUrl } = this.#options
    return lan || (shareNetwork(a, b) && !(publicUrl !== undefined && isLoopback(a)))
  }

  async #listen(app: FastifyInstance): Promise<void> {
    const { host = DEFAULT_HOST, port = DEFAULT_PORT, https } = this.#options
    try {
      await app.listen({ host, port })
    } catch (cause) {
      await this.#failed(listenFailed(cause, { scheme: 'http', option: '--port', host, port }))
    }
    if (https === undefined) return
    try {
      this.#tlsDoor = await TlsDoor.open(app.server, https, (message) => this.#log({ level: 'warn', message }))
    } catch (cause) {
      await this.#failed(listenFailed(cause, { scheme: 'https', option: '--https', ...https }))
    }
  }

  /** Counted with the run on show, and now and then an event of it. */
  #refused(code: ErrorCode, what: string, member?: string): void {
    const run = this.#parts?.runs.shown()
    if (run !== undefined) return run.refused(code, what, member)
    this.#meter.refused(code)
    const message = plainText(`refused (${code}): ${what}`)
    if (this.#refusals.count(code, this.#clock.awake())) this.#log({ level: 'info', message })
  }

  #log(entry: LogEntry): void {
    this.#options.log?.(entry)
  }
}

/** The other one that a session's socket offers is its token, which no answer repeats. */
function sessionProtocolOnly(offered: Set<string>): string | false {
  return offered.has(SESSION_PROTOCOL) && SESSION_PROTOCOL
}

interface Door {
  readonly scheme: 'http' | 'https'
  /** of the command line, that names another port */
  readonly option: '--port' | '--https'
  readonly host: string
  readonly port: number
}

function listenFailed(cause: unknown, { scheme, option, host, port }: Door): unknown {
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined
  if (code === 'EADDRINUSE')
    return new GridError(
      'port-taken',
      `expected a free port, got ${port}: ${scheme}://${host}:${port} is another program, perhaps a coordinator; ` +
        `choose another, for example ${option} ${port + 1}`,
      { cause },
    )
  if (code === 'EACCES')
    return new GridError(
      'port-taken',
      `expected a port that this program may use, got ${port}, which needs more rights; ` +
        `choose one above 1023 with ${option}`,
      { cause },
    )
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
    return new GridError(
      'usage',
      `expected an address of this machine, got "${host}"; leave --host out for ${DEFAULT_HOST}, ` +
        'or use 0.0.0.0 for all addresses',
      { cause },
    )
  return cause
}
