// A volunteer's life: join → catch up → train → leave.
import { HEARTBEAT_MS, type JobTerms, type MessageTo, newMemberId, SILENCE_MS, type ToVolunteer } from '@starling-grid/protocol'
import type { PeerNetwork, SignallingAccess } from './collective/peer-link.ts'
import { CoordinatorHttp } from './coordinator-http.ts'
import { CoordinatorLink } from './coordinator-link.ts'
import type { VolunteerHost, VolunteerStatus } from './host.ts'
import { JobSession } from './job-session.ts'
import { StatusBoard } from './status.ts'

export interface VolunteerOptions {
  readonly name: string
  /** called after every change, at most some ten times a second */
  readonly onStatus: (status: VolunteerStatus) => void
}

export interface Volunteer {
  /** Resolves when the run is finished or stop() was called. @throws GridError when taking part is impossible */
  run(): Promise<void>
  /** Returns leases, tells the others, closes everything. */
  stop(): Promise<void>
}

/** @example const volunteer = createVolunteer(host, { name: 'lab-3', onStatus: show }); await volunteer.run() */
export function createVolunteer(host: VolunteerHost, options: VolunteerOptions): Volunteer {
  return new VolunteerLife(host, options)
}

/** ms for the step under way to end before a member leaves anyway */
const LEAVE_MS = 4000

class VolunteerLife implements Volunteer {
  readonly #host: VolunteerHost
  readonly #self = newMemberId()
  readonly #link: CoordinatorLink
  readonly #http: CoordinatorHttp
  readonly #board: StatusBoard
  readonly #end = new AbortController()
  #failure: unknown
  #ended: Promise<unknown> = Promise.resolve()
  #network: PeerNetwork | undefined
  #access: SignallingAccess | undefined
  #session: JobSession | undefined
  #preparing: string | undefined
  #heartbeat: ReturnType<typeof setInterval> | undefined
  /** by the clock on the wall: the other one stands still while a machine sleeps */
  #beatAt = Date.now()

  constructor(host: VolunteerHost, options: VolunteerOptions) {
    this.#host = host
    this.#board = new StatusBoard(options.onStatus)
    this.#link = new CoordinatorLink(host, { incarnation: this.#self, name: options.name }, {
      onWelcome: (welcome) => void this.#welcomed(welcome).catch(this.#fail),
      onMessage: (message) => this.#heard(message),
      onRefused: ({ code, message }) => this.#board.refused(code, message),
      onAway: (why, retryMs) => this.#board.away(why, retryMs),
    })
    this.#http = new CoordinatorHttp(host.coordinatorUrl, () => this.#link.session)
  }

  run(): Promise<void> {
    const running = this.#live()
    this.#ended = running.catch(() => undefined)
    return running
  }

  async #live(): Promise<void> {
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS)
    try {
      await this.#link.run(this.#end.signal)
      if (this.#failure !== undefined) throw this.#failure
    } catch (error) {
      this.#board.failed(error)
      throw error
    } finally {
      await this.#session?.keep()
      this.#close()
    }
  }

  async stop(): Promise<void> {
    if (this.#end.signal.aborted) return
    const timer = setTimeout(() => this.#finish(), this.#link.connected ? LEAVE_MS : 0)
    this.#link.leave()
    await this.#ended
    clearTimeout(timer)
    this.#finish()
    this.#board.stopped()
  }

  #finish(): void {
    this.#end.abort()
    this.#link.stop()
  }

  #fail = (error: unknown): void => {
    this.#failure ??= error
    this.#finish()
  }

  #close(): void {
    clearInterval(this.#heartbeat)
    this.#session?.stop()
    this.#network?.stop()
  }

  async #welcomed(welcome: MessageTo<'welcome'>): Promise<void> {
    const access: SignallingAccess = { url: this.#host.coordinatorUrl, path: welcome.signallingPath, self: this.#self, token: welcome.session, iceServers: welcome.iceServers, linkOpenMs: welcome.linkOpenMs }
    this.#access = access
    this.#board.joined()
    if (this.#network === undefined) this.#network = await this.#host.openPeerNetwork(access)
    else this.#network.reconnect(access)
    if (welcome.job === null) return this.#board.waiting('no job is running')
    await this.#take(welcome.job, this.#network)
  }

  /** Plans the model once per job; after a reconnect it only says so again. */
  async #take(terms: JobTerms, network: PeerNetwork): Promise<void> {
    if (this.#preparing === terms.id && this.#session === undefined) return
    if (this.#session?.terms.id !== terms.id) await this.#prepare(terms, network)
    if (this.#session !== undefined) this.#link.send(this.#session.ready)
    this.#board.waiting('admitted at the next ballot')
  }

  async #prepare(terms: JobTerms, network: PeerNetwork): Promise<void> {
    this.#session?.stop()
    this.#session = undefined
    this.#preparing = terms.id
    this.#board.preparing(terms)
    const linkOpenMs = this.#access?.linkOpenMs
    const session = await JobSession.prepare(terms, {
      host: this.#host, self: this.#self, http: this.#http, network, linkOpenMs, onFatal: this.#fail,
      openRelay: async (member, signal) => {
        const { openRelayLink } = await import('./collective/relay-link.ts') // hardly any volunteer needs it
        return openRelayLink({ self: this.#self, token: this.#link.session, linkOpenMs, dial: (path) => this.#host.dialRelay(path) }, member, signal)
      },
      send: (message) => this.#link.send(message),
      onChange: () => this.#board.working(session),
      onPushed: (samples, loss) => this.#board.pushed(samples, loss),
    })
    if (this.#end.signal.aborted) return session.stop()
    this.#session = session
    this.#beatAt = Date.now() // planning may have kept everything else waiting
    this.#board.prepared(session)
  }

  #heard(message: Exclude<ToVolunteer, { type: 'welcome' | 'refused' }>): void {
    switch (message.type) {
      case 'job':
        if (this.#network !== undefined) void this.#take(message.job, this.#network).catch(this.#fail)
        return
      case 'ice-servers':
        return this.#renewIce(message)
      case 'wait':
        return this.#board.waiting(message.reason)
      case 'finished':
        this.#board.finished(message.reason)
        return this.#finish()
      default:
        return this.#obey(message)
    }
  }

  /** Links that are open stay; later ones are dialled with the new credentials. */
  #renewIce({ iceServers }: MessageTo<'ice-servers'>): void {
    if (this.#access === undefined) return
    this.#access = { ...this.#access, iceServers }
    this.#network?.reconnect(this.#access)
  }

  #obey(message: Parameters<JobSession['heard']>[0]): void {
    try {
      this.#session?.heard(message)
    } catch (error) {
      this.#fail(error)
    }
  }

  #beat(): void {
    const session = this.#session
    const sleptMs = Date.now() - this.#beatAt - HEARTBEAT_MS
    this.#beatAt = Date.now()
    if (session === undefined) return
    if (sleptMs > SILENCE_MS) return this.#wakeUp(session, sleptMs)
    const { links, linkMs } = session.ring
    const { bytesSent, bytesReceived } = links
    this.#link.send({ type: 'heartbeat', samplesPerSecond: session.compute.samplesPerSecond, activity: this.#board.phase, bytesSent, bytesReceived, refusals: links.takeRefusals(), ...(linkMs === undefined ? {} : { linkMs: Math.min(linkMs, 60_000) }), ...(this.#host.isHidden?.() ? { hidden: true } : {}) })
    this.#board.working(session)
  }

  /** Everybody took the silence for the end: what their ends of sockets and links said of it may have found nobody. */
  #wakeUp(session: JobSession, sleptMs: number): void {
    this.#link.renew(`slept for ${Math.round(sleptMs / 1000)} s`)
    session.ring.links.giveUp('slept for longer than others wait')
  }
}
