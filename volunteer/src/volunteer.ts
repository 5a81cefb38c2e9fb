// A volunteer's life: join → catch up → train → leave.
import {
  describeError,
  HEARTBEAT_MS,
  type JobId,
  type JobTerms,
  MAX_RING_MEMBERS,
  type MemberId,
  type MessageFrom,
  type MessageTo,
  named,
  type OnWire,
  SILENCE_MS,
  type CancelTimer,
} from '@starling-grid/protocol'
import { CoordinatorHttp } from './coordinator-http.ts'
import { CoordinatorLink, type ForVolunteer } from './coordinator-link.ts'
import { Coordinators } from './coordinators.ts'
import { type Declined, DeclinedJobs } from './declined-jobs.ts'
import { endsJob, explained, isFatal } from './fatal.ts'
import type { VolunteerHost, VolunteerStatus } from './host.ts'
import type { JobSession, JobSessionParts } from './job-session.ts'
import { relayLinks } from './late-parts.ts'
import { ownIceServers } from './link/candidate-gate.ts'
import { metered, meteredNetwork, noDirectLinks } from './link/metered-network.ts'
import type { PeerNetwork, SignallingAccess } from './link/peer-link.ts'
import { DEFAULT_LIMITS } from './own-limits.ts'
import { Preparation } from './preparation.ts'
import type { BaseNews } from './recovery/base-fetch.ts'
import { persistently } from './retry.ts'
import { StatusReporter } from './status.ts'
import { UploadBudget } from './upload-budget.ts'

export interface VolunteerOptions {
  readonly name: string
  /** code of an invite, for a coordinator that takes invited volunteers only */
  readonly invite?: string | undefined
  /** ends with the run that it took part in; otherwise it waits for the next job */
  readonly once?: boolean
  /** lends this machine to this job alone, until the job ends; absent: to any */
  readonly job?: JobId
  /** the job that another coordinator sent it for */
  readonly sentFor?: JobId | undefined
  /** other coordinators of the same grid that its owner trusts, beside those at names of one authority */
  readonly coordinators?: readonly string[]
  /** called after every change, at most some ten times a second */
  readonly onStatus: (status: VolunteerStatus) => void
}

export interface Volunteer {
  /**
   * Resolves when stop() was called, or with `once` when the run is finished. @throws GridError of the list in fatal.ts
   */
  run(): Promise<void>
  /** Returns leases, tells the others, closes everything. */
  stop(): Promise<void>
}

/** @example const volunteer = createVolunteer(host, { name: 'lab-3', onStatus: show }); await volunteer.run() */
export function createVolunteer(host: VolunteerHost, options: VolunteerOptions): Volunteer {
  return new VolunteerLife(host, options)
}

/** ms for the step under way to end, or a round's part to be sent, before a member leaves anyway */
const LEAVE_MS = 4000
/** ms before a session that failed is begun anew, at most; drawn below it */
const START_OVER_MS = 3000
/** Times that a coordinator does not answer before a tab goes to another one: some four seconds */
const AWAYS_BEFORE_LEAVING = 6
/** ms: signalling is back as soon as the coordinator is */
const NETWORK_BACKOFF = { firstMs: 500, mostMs: 5000 }

class VolunteerLife implements Volunteer {
  readonly #host: VolunteerHost
  readonly #coordinators: Coordinators
  readonly #link: CoordinatorLink
  readonly #http: CoordinatorHttp
  readonly #board: StatusReporter
  readonly #end = new AbortController()
  #failure: unknown
  #ended: Promise<unknown> = Promise.resolve()
  #network: PeerNetwork | undefined
  #access: SignallingAccess | undefined
  #openingNetwork = false
  readonly #once: boolean
  readonly #chosen: JobId | undefined
  /** times that the coordinator did not answer, one after the other */
  #aways = 0
  /** the job that another coordinator sent it for */
  #sentFor: JobId | undefined
  /** the job that the coordinator gives out now */
  #offered: JobTerms | undefined
  /** jobs that this volunteer took part in, or prepared for */
  readonly #jobs = new Set<JobId>()
  readonly #preparation = new Preparation()
  readonly #budget: UploadBudget
  readonly #declined: DeclinedJobs
  /** declined jobs that a timer takes up again: one for each, however often the volunteer reconnects meanwhile */
  readonly #awaited = new Set<JobId>()
  #session: JobSession | undefined
  /** the base of a job that is being prepared: it comes from members, and goes to newcomers meanwhile */
  #base: { readonly job: JobId; readonly hear: (news: OnWire<BaseNews>) => void } | undefined
  #stopBeating: CancelTimer = () => undefined
  /** by the clock on the wall: the other one stands still while a machine sleeps */
  #beatAt: number

  constructor(host: VolunteerHost, options: VolunteerOptions) {
    this.#host = host
    this.#beatAt = host.clock.wallTime()
    this.#once = options.once ?? false
    this.#chosen = options.job
    this.#sentFor = options.sentFor
    this.#board = new StatusReporter(options.onStatus, host.clock)
    this.#coordinators = new Coordinators(host, options.coordinators)
    const { name, invite } = options
    this.#link = new CoordinatorLink(
      host,
      { name, invite, coordinators: this.#coordinators },
      {
        jobs: () => this.#lends(),
        onWelcome: (welcome) => this.#welcomed(welcome),
        onMessage: (message) => this.#heard(message),
        onMoved: (moved) => this.#moved(moved),
        onRefused: (refusal) => this.#refused(refusal),
        onAway: (why, retryMs) => this.#away(why, retryMs),
      },
    )
    const { uploadBytesPerHour } = host.limits ?? DEFAULT_LIMITS
    this.#budget = new UploadBudget(uploadBytesPerHour, host.clock.wallTime, host.uploaded)
    this.#budget.onSpent = (error) => this.#failed(error)
    this.#declined = new DeclinedJobs(host.declined, host.clock.wallTime)
    this.#http = new CoordinatorHttp(
      () => this.#coordinators.url,
      () => this.#link.session,
      this.#end.signal,
      {
        clock: host.clock,
        beforeSending: (bytes) => this.#budget.take(bytes),
        send: host.sendRequest,
      },
    )
  }

  get #self(): MemberId {
    return this.#link.member
  }

  run(): Promise<void> {
    const running = this.#live()
    this.#ended = running.catch(() => undefined)
    return running
  }

  async #live(): Promise<void> {
    this.#stopBeating = this.#host.clock.every(HEARTBEAT_MS, () => this.#beat())
    try {
      await this.#declined.load()
      await this.#budget.load()
      await this.#link.run(this.#end.signal)
      if (this.#failure !== undefined) throw this.#failure
    } catch (error) {
      const explainedError = explained(error)
      this.#board.failed(explainedError)
      throw explainedError
    } finally {
      await this.#session?.keep()
      this.#close()
    }
  }

  async stop(): Promise<void> {
    if (this.#end.signal.aborted) return
    const cancelTimer = this.#host.clock.timer(this.#link.connected ? LEAVE_MS : 0, () => this.#finish())
    await this.#session?.leave()
    this.#link.leave()
    await this.#ended
    cancelTimer()
    this.#finish()
    this.#board.stopped()
  }

  #finish(): void {
    this.#end.abort()
    this.#link.stop()
  }

  /**
   * Ends the volunteer when the error is on the list (fatal.ts); another one costs the session, and the job is prepared
   * anew.
   */
  #failed = (error: unknown, terms = this.#session?.terms): void => {
    if (isFatal(error)) return this.#giveUp(error)
    if (terms !== undefined && this.#declines(terms, error)) return
    this.#endSession()
    this.#board.preparingAgain(describeError(error), START_OVER_MS)
    if (terms !== undefined) void this.#startOver(terms)
  }

  async #startOver(terms: JobTerms): Promise<void> {
    await this.#host.clock.sleep(Math.random() * START_OVER_MS, this.#end.signal)
    this.#take(terms)
  }

  /** True: this volunteer leaves the job, and takes another one. */
  #declines({ id }: JobTerms, error: unknown): boolean {
    if (!endsJob(error)) return false
    if (error.code === 'device-lost' && !this.#declined.lost(id)) return false
    if (error.code === 'no-f16' || error.code === 'requirement-unmet')
      this.#declined.add(id, error.message, Number.POSITIVE_INFINITY)
    if (error.code === 'own-limit')
      this.#declined.add(id, error.message, this.#budget.isSpent ? this.#budget.refillMs : Number.POSITIVE_INFINITY)
    this.#leaveJob()
    return true
  }

  /** The executor goes on with a new device, unless the job lost too many. */
  #lostDevice({ id }: JobTerms): void {
    if (this.#declined.lost(id) && this.#session?.terms.id === id) this.#leaveJob()
  }

  /** A new connection that does not name this job: its members do not wait for this volunteer. */
  #leaveJob(): void {
    this.#dropSession()
    this.#link.renew('the volunteer leaves this job')
  }

  /** Put out, but not for good: what it holds may be why, so it comes back with nothing. */
  #refused({ code, message, fatal }: MessageTo<'refused'>): void {
    this.#board.refused(code, message)
    if (!fatal) return
    void this.#session?.forget().catch(() => undefined) // a cache that does not write keeps what is compared at CONFIRM
    this.#dropSession()
  }

  #giveUp(error: unknown): void {
    this.#failure ??= error
    this.#finish()
  }

  #close(): void {
    this.#stopBeating()
    this.#preparation.cancel()
    this.#session?.stop()
    this.#network?.stop()
  }

  #away(why: string, retryMs: number): void {
    this.#leaveIfGone()
    this.#board.away(why, retryMs)
  }

  /** A tab cannot ask another coordinator: when its own stays away, its page goes to one. */
  #leaveIfGone(): void {
    const { others } = this.#coordinators
    const other = others[this.#aways++ % Math.max(1, others.length)]
    if (this.#host.at === undefined && other !== undefined && this.#aways >= AWAYS_BEFORE_LEAVING)
      this.#host.leaveFor?.(other, this.#lends().job ?? null)
  }

  /** What it holds stays: it goes on with the same job, or says there which one it comes for. */
  #moved({ url, to }: MessageTo<'moved'>): void {
    this.#sentFor = to ?? undefined
    if (this.#host.at === undefined && this.#coordinators.mayFollow(url)) this.#host.leaveFor?.(url, to)
  }

  #welcomed(welcome: MessageTo<'welcome'>): void {
    this.#aways = 0
    this.#sentFor = undefined
    this.#access = {
      url: this.#coordinators.url,
      path: welcome.signallingPath,
      self: this.#self,
      identity: this.#link.identity,
      token: welcome.session,
      iceServers: this.#ownIceServers(welcome),
      linkOpenMs: welcome.linkOpenMs,
    }
    this.#board.joined()
    this.#offered = welcome.job ?? undefined
    this.#network?.reconnect(this.#access)
    void this.#takeOffered()
  }

  /** Signalling is opened once; later welcomes renew it. */
  async #takeOffered(): Promise<void> {
    if (this.#network === undefined) await this.#openNetwork()
    if (this.#end.signal.aborted || this.#network === undefined) return
    if (this.#offered === undefined) this.#rest()
    else this.#take(this.#offered)
  }

  /** Tried again until it works: a coordinator that starts again has no signalling for a moment. */
  async #openNetwork(): Promise<void> {
    if (this.#openingNetwork) return
    this.#openingNetwork = true
    const { signal } = this.#end
    try {
      const network = await persistently(() => this.#openLinks(), {
        backoff: NETWORK_BACKOFF,
        signal,
        clock: this.#host.clock,
        worthIt: (error) => !isFatal(error),
        onRetry: (error, waitMs) => this.#board.away(describeError(error), waitMs),
      })
      if (signal.aborted) network.stop()
      else this.#network = network
    } catch (error) {
      if (!signal.aborted) this.#failed(error)
    } finally {
      this.#openingNetwork = false
    }
  }

  async #openLinks(): Promise<PeerNetwork> {
    const { relaysOnly = false } = this.#host
    const access = this.#requireAccess()
    const network = relaysOnly ? noDirectLinks() : await this.#host.openPeerNetwork(access)
    return meteredNetwork(network, (bytes) => this.#budget.take(bytes))
  }

  /** A coordinator that starts again gives it the job that it works for, unless this volunteer left that. */
  #lends(): Pick<MessageFrom<'hello'>, 'job' | 'only' | 'declines'> {
    const declines = this.#declined.present
    const present = this.#sentFor ?? this.#session?.terms.id ?? this.#offered?.id
    const job = this.#chosen ?? (present === undefined || declines.includes(present) ? undefined : present)
    return {
      ...(job === undefined ? {} : { job }),
      ...(this.#chosen === undefined ? {} : { only: true }),
      ...(declines.length > 0 ? { declines } : {}),
    }
  }

  #requireAccess(): SignallingAccess {
    if (this.#access === undefined) throw new Error('internal: signalling before the welcome')
    return this.#access
  }

  /** There is no job: a later one comes with a message of its own. */
  #rest(): void {
    this.#preparation.cancel()
    this.#endSession()
    this.#board.waiting('no job is running; waiting for the next')
  }

  /** Plans the model once per job; after a reconnect it only says so again. */
  #take(terms: JobTerms): void {
    if (this.#offered?.id !== terms.id || this.#end.signal.aborted || this.#preparation.job === terms.id) return
    if (this.#session?.terms.id === terms.id) return this.#askForAdmission(this.#session)
    const declined = this.#declined.find(terms.id)
    if (declined !== undefined) return this.#decline(terms, declined)
    void this.#prepare(terms).catch((error: unknown) => this.#failed(error, terms))
  }

  /** Waits for another job, or for this one later. */
  #decline(terms: JobTerms, { reason, until }: Declined): void {
    const ms = until - this.#host.clock.wallTime()
    const later = Number.isFinite(ms) ? `; it takes this one again in ${Math.ceil(ms / 60_000)} min` : ''
    this.#board.waiting(`waits for another job: ${reason}${later}`)
    if (!Number.isFinite(ms) || this.#awaited.has(terms.id)) return
    this.#awaited.add(terms.id)
    void this.#host.clock.sleep(ms, this.#end.signal).then(() => {
      this.#awaited.delete(terms.id)
      this.#take(terms)
    })
  }

  #askForAdmission(session: JobSession): void {
    this.#link.send(named(session.terms.id, session.ready))
    this.#board.waiting('admitted at the next ballot')
  }

  async #prepare(terms: JobTerms): Promise<void> {
    if (this.#network === undefined) return
    this.#jobs.add(terms.id)
    this.#endSession()
    this.#board.preparing(terms)
    const session = await this.#preparation.begin(terms, this.#partsOf(terms, this.#network), (error, waitMs) =>
      this.#board.preparingAgain(describeError(error), waitMs),
    )
    if (session === undefined) return
    this.#session = session
    this.#base = undefined
    this.#beatAt = this.#host.clock.wallTime() // planning may have kept everything else waiting
    this.#board.prepared(session)
    this.#askForAdmission(session)
  }

  #partsOf(terms: JobTerms, network: PeerNetwork): JobSessionParts {
    const { id } = terms
    const linkOpenMs = this.#access?.linkOpenMs
    const mine = (): JobSession | undefined => (this.#session?.terms.id === id ? this.#session : undefined)
    return {
      host: this.#host,
      self: this.#self,
      http: this.#http,
      network,
      linkOpenMs,
      onDeviceLost: () => this.#lostDevice(terms),
      onFatal: (error) => this.#failed(error),
      openRelay: async (member, signal) => {
        const { openRelayLink } = await relayLinks()
        const link = await openRelayLink(
          {
            self: this.#self,
            token: this.#link.session,
            linkOpenMs,
            clock: this.#host.clock,
            dial: (path, token) => this.#coordinators.door.dialRelay(path, token),
          },
          member,
          signal,
        )
        return metered(link, (bytes) => this.#budget.take(bytes))
      },
      send: (message) => this.#link.send(named(id, message)),
      onChange: () => this.#show(mine()),
      onPushed: (samples, loss) => this.#board.pushed(samples, loss),
      seekBase: (hear) => {
        this.#base = { job: id, hear }
        this.#link.send(named(id, { type: 'seek-base' }))
      },
      onBase: (text) => this.#board.preparingBase(text),
    }
  }

  #show(session: JobSession | undefined): void {
    if (session !== undefined) this.#board.working(session)
  }

  /** The state is kept: a run that goes on later finds it here. */
  #endSession(): void {
    void this.#session?.keep().catch(() => undefined) // a full cache costs a later download
    this.#dropSession()
  }

  #dropSession(): void {
    this.#session?.stop()
    this.#session = undefined
    this.#base = undefined
  }

  #heard(message: ForVolunteer): void {
    switch (message.type) {
      case 'job':
        this.#offered = message.job
        return void this.#takeOffered()
      case 'ice-servers':
        return this.#renewIce(message)
      case 'finished':
        return this.#jobEnded(message)
      case 'base-sources':
        return this.#tellBase(message)
      default:
        if (message.job !== this.#session?.terms.id)
          return message.type === 'share-base' ? this.#tellBase(message) : undefined // of a job that was left
        if (message.type === 'wait') return this.#board.waiting(message.reason)
        return this.#obey(this.#session, message)
    }
  }

  #tellBase(message: OnWire<BaseNews>): void {
    if (this.#base?.job === message.job) this.#base.hear(message)
  }

  /** Another job comes with a message of its own, before or after this one. */
  #jobEnded({ job, reason }: OnWire<MessageTo<'finished'>>): void {
    if (this.#once && this.#jobs.has(job)) {
      this.#board.finished(reason)
      return this.#finish()
    }
    if (this.#offered?.id !== job && this.#session?.terms.id !== job) return
    if (this.#offered?.id === job) this.#offered = undefined
    if (this.#preparation.job === job) this.#preparation.cancel()
    if (this.#session?.terms.id === job) this.#dropSession()
    this.#board.finished(`${reason}; waiting for the next job`)
  }

  #ownIceServers({ iceServers }: Pick<MessageTo<'ice-servers'>, 'iceServers'>): SignallingAccess['iceServers'] {
    return ownIceServers(iceServers, this.#coordinators.url, this.#host.allowedIce ?? [])
  }

  /** Links that are open stay; later ones are dialled with the new credentials. */
  #renewIce({ iceServers }: MessageTo<'ice-servers'>): void {
    if (this.#access === undefined) return
    this.#access = { ...this.#access, iceServers: this.#ownIceServers({ iceServers }) }
    this.#network?.reconnect(this.#access)
  }

  #obey(session: JobSession, message: Parameters<JobSession['heard']>[0]): void {
    try {
      session.heard(message)
    } catch (error) {
      this.#failed(error)
    }
  }

  #beat(): void {
    const session = this.#session
    const sleptMs = this.#host.clock.wallTime() - this.#beatAt - HEARTBEAT_MS
    this.#beatAt = this.#host.clock.wallTime()
    if (session === undefined) return
    if (sleptMs > SILENCE_MS) return this.#wakeUp(session, sleptMs)
    const { links, linkMs } = session.runner
    const { bytesSent, bytesReceived } = links
    const tcpLinks = links.over('tcp').slice(0, MAX_RING_MEMBERS)
    this.#link.send({
      type: 'heartbeat',
      job: session.terms.id,
      samplesPerSecond: session.compute.samplesPerSecond,
      activity: this.#board.phase,
      bytesSent,
      bytesReceived,
      refusals: links.takeRefusals(),
      ...(tcpLinks.length > 0 ? { tcpLinks } : {}),
      ...(linkMs === undefined ? {} : { linkMs: Math.min(linkMs, 60_000) }),
      ...(this.#host.isHidden?.() ? { hidden: true } : {}),
    })
    this.#board.working(session)
  }

  /**
   * The others took the silence for the end; the closing of their sockets and links may not have reached this machine.
   */
  #wakeUp(session: JobSession, sleptMs: number): void {
    this.#link.renew(`slept for ${Math.round(sleptMs / 1000)} s`)
    session.runner.links.giveUp('slept for longer than others wait')
  }
}
