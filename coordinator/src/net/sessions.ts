// All volunteers' sessions: who is connected, whose token is whose, and the way from a run to its members.
import { createHash, randomBytes } from 'node:crypto'
import {
  type CancelTimer,
  CLOSE_AWAY,
  CLOSE_REPLACED,
  type ErrorCode,
  GridError,
  isGridError,
  type JobId,
  type JobTerms,
  LINK_OPEN_MS,
  MAX_COORDINATORS,
  MAX_VOLUNTEERS,
  type MemberId,
  named,
  type OnWire,
  type ToVolunteer,
  volunteerIdOf,
} from '@starling-grid/protocol'
import type { WebSocket } from 'ws'
import type { Admission, Arrival } from '../access/invites.ts'
import { subscriberOf } from '../api/addresses.ts'
import type { CoordinatorClock } from '../clock.ts'
import type { RunObserver, RunHost } from '../host/run-host.ts'
import type { Presence } from '../host/run-view.ts'
import type { Away, Destination, VolunteerSeat, VolunteerSeats } from '../jobs/sharing.ts'
import { type IceOptions, iceServersFor, renewalMs, withoutCredentials } from './ice-servers.ts'
import { networkOf } from './network.ts'
import { type Hello, type SessionHost, VolunteerSession } from './session.ts'

const TOKEN_BYTES = 32
/** volunteers of one address: a few rooms behind one router */
const MAX_PER_ADDRESS = 256
/** ms between looks at the clock */
const CHECK_MS = 500
/** Volunteers from which on those that were heard are not pinged. */
const CROWD = 256
/** ms that the token of a departed member is good for: what it asked for just before may still be under way */
const REMEMBERED_MS = 600_000
const MAX_REMEMBERED = 20_000
/** WebSocket close code of our own range: another socket speaks for this member */

/** Orders after which a member opens links, or lets others open one to it. */
const OPENS_LINKS: ReadonlySet<ToVolunteer['type']> = new Set([
  'form',
  'copy-at',
  'meet',
  'base-sources',
  'share-base',
  'prove',
  'prefetch',
  'follow',
  'grant',
])

export interface SessionsParts {
  readonly clock: CoordinatorClock
  readonly signallingPath: string
  readonly ice: IceOptions
  readonly linkOpenMs: number
  /** where this volunteer goes */
  readonly placeFor: (volunteer: MemberId) => Destination | undefined
  /** absent: no other coordinator shares its store with this one */
  readonly others?: OtherCoordinators
  /** the newest run when all are finished */
  readonly lastRun: () => RunHost | undefined
  readonly find: (job: JobId) => RunHost | undefined
  readonly onRefused: (code: ErrorCode, what: string, member?: string) => void
  readonly onGone: (id: MemberId) => void
  readonly relayedLinks: () => number
  /** lets a volunteer in whose key is proven, or throws why not; absent: all of them */
  readonly admit?: (newcomer: Arrival) => Admission | Promise<Admission>
}

/** Of the coordinators that share a store. */
export interface OtherCoordinators {
  /** of those that live */
  readonly urls: () => readonly string[]
  /** where a job is that is not here; `soon`: it is on its way; undefined: none has it */
  readonly whereIs: (job: JobId) => 'soon' | { readonly url: string } | undefined
  /** what is here may be another's by now */
  readonly isCutOff: () => boolean
}

/** Hashes of a member's tokens. A WELCOME may be lost: until its token was used, the one before is good, too. */
interface Remembered {
  /** of the newest WELCOME */
  offered: string
  /** that the member is known to have */
  used: string | undefined
  /** jobs that its sessions were told of */
  readonly jobs: Set<JobId>
  /** the latest of them */
  last: JobId | undefined
  /** undefined while connected */
  leftAt: number | undefined
}

export class Sessions implements RunObserver, SessionHost, VolunteerSeats {
  readonly #parts: SessionsParts
  readonly #byId = new Map<MemberId, VolunteerSession>()
  readonly #strangers = new Set<VolunteerSession>()
  /** insertion order is about the order of joining */
  readonly #remembered = new Map<MemberId, Remembered>()
  readonly #byTokenHash = new Map<string, MemberId>()
  /** ms: when a member was last given TURN credentials */
  readonly #iceAt = new Map<MemberId, number>()
  #stopChecking: CancelTimer = () => undefined

  constructor(parts: SessionsParts) {
    this.#parts = parts
  }

  start(): void {
    this.#stopChecking = this.#parts.clock.every(CHECK_MS, () => this.#check())
  }

  stop(why = 'the coordinator stops'): void {
    this.#stopChecking()
    for (const session of [...this.#byId.values(), ...this.#strangers])
      session.close(CLOSE_AWAY, why, { reason: 'the coordinator stopped', expected: true })
  }

  /** A new socket from this address; it has to say hello, to one of these names of ours. */
  admit(socket: WebSocket, { names, address }: { readonly names: readonly string[]; readonly address: string }): void {
    const session = new VolunteerSession(socket, {
      clock: this.#parts.clock,
      desk: this,
      token: randomBytes(TOKEN_BYTES).toString('hex'),
      names,
      network: networkOf(address),
      address: subscriberOf(address),
    })
    if (this.#byId.size + this.#strangers.size >= MAX_VOLUNTEERS && !this.#makeRoom(session.address)) {
      this.#parts.onRefused('grid-full', `there are ${MAX_VOLUNTEERS} volunteers`)
      return session.refuse(
        'grid-full',
        `this coordinator takes ${MAX_VOLUNTEERS} volunteers at most; try again later`,
        true,
      )
    }
    if (this.#here(session.address) >= MAX_PER_ADDRESS) {
      this.#parts.onRefused('grid-full', `there are ${MAX_PER_ADDRESS} volunteers of one address`)
      return session.refuse(
        'grid-full',
        `this coordinator takes ${MAX_PER_ADDRESS} volunteers of one address at most; try again later`,
        true,
      )
    }
    this.#strangers.add(session)
    session.challenge()
  }

  #here(address: string): number {
    return [...this.#byId.values(), ...this.#strangers].filter((session) => session.address === address).length
  }

  /**
   * Places are shared by addresses: the one that has most gives way, by the session that does least, the newest of
   * those.
   */
  #makeRoom(newcomer: string): boolean {
    const all = [...this.#strangers, ...this.#byId.values()]
    const counts = new Map<string, VolunteerSession[]>()
    for (const session of all) {
      const crowd = counts.get(session.address)
      if (crowd === undefined) counts.set(session.address, [session])
      else crowd.push(session)
    }
    const [crowd = []] = [...counts.values()].sort((a, b) => b.length - a.length)
    if (crowd.length <= (counts.get(newcomer)?.length ?? 0) + 1) return false
    const leaving = crowd.findLast(({ run }) => run === undefined) ?? crowd.at(-1)
    leaving?.refuse(
      'grid-full',
      'this coordinator is full, and its places are shared by addresses; try again later',
      true,
    )
    return true
  }

  // ---- for one session ----

  greet(session: VolunteerSession, hello: Hello): void {
    const { invite: code, publicKey } = hello
    const admission = this.#parts.admit?.({
      volunteer: volunteerIdOf(publicKey),
      code,
      address: session.address,
    })
    if (!(admission instanceof Promise)) return this.#admitted(session, hello, admission)
    const refuse = (error: unknown): void => {
      if (!isGridError(error)) throw error
      session.refuse(error.code, error.message, true)
    }
    void admission.then((admitted) => session.isOver || this.#admitted(session, hello, admitted)).catch(refuse)
  }

  #admitted(session: VolunteerSession, hello: Hello, admission: Admission = {}): void {
    const { incarnation, again = false, job, only } = hello
    this.#tellOthers(session)
    if (this.#isElsewhere(session, job)) return
    if (only === true && (job === undefined || this.#parts.find(job) === undefined))
      throw new GridError(
        'usage',
        `expected a job of this coordinator, got ${job ?? 'none'}; take its id from its page, or lend to any job`,
      )
    session.admission = admission
    this.#strangers.delete(session)
    this.#byId.get(incarnation)?.close(CLOSE_REPLACED, 'another socket speaks for this member', {
      reason: 'came back on another connection',
      expected: false,
    })
    this.#byId.set(incarnation, session)
    session.cameFrom(this.#remembered.get(incarnation)?.last)
    this.#offerToken(incarnation, hash(session.token))
    this.#welcome(session, again)
  }

  /** Its job is another coordinator's: it goes there, or comes back in a moment. */
  #isElsewhere(session: VolunteerSession, job: JobId | undefined): boolean {
    const { others, find } = this.#parts
    if (others === undefined) return false
    const whereabouts = job === undefined || find(job) !== undefined ? undefined : others.whereIs(job)
    if (whereabouts === undefined && !others.isCutOff()) return false
    const departure = { reason: 'its job is on its way to another coordinator', expected: true }
    if (typeof whereabouts !== 'object') session.close(CLOSE_AWAY, 'its job moves; ask again', departure)
    else session.sendAway(whereabouts.url, job ?? null)
    return true
  }

  /** The coordinators that a volunteer asks when this one ends. */
  #tellOthers(session: VolunteerSession, urls = this.#parts.others?.urls() ?? []): void {
    if (urls.length > 0) session.send({ type: 'coordinators', urls: urls.slice(0, MAX_COORDINATORS) })
  }

  othersChanged(urls: readonly string[]): void {
    for (const session of this.#byId.values())
      session.send({ type: 'coordinators', urls: urls.slice(0, MAX_COORDINATORS) })
  }

  /** Each volunteer goes where its job is; those without one to any other coordinator. */
  sendAllAway(): void {
    const { others } = this.#parts
    const [any] = others?.urls() ?? []
    for (const session of this.#byId.values()) {
      const job = session.run?.job.id ?? session.seat?.job
      const whereabouts = job === undefined ? undefined : others?.whereIs(job)
      const url = typeof whereabouts === 'object' ? whereabouts.url : any
      if (url !== undefined) session.sendAway(url, job ?? null)
    }
  }

  /** Volunteers that came by this invite have to go. */
  putOut(invite: string): void {
    for (const session of [...this.#byId.values(), ...this.#strangers])
      if (session.admission.invite === invite)
        session.refuse(
          'invite-required',
          'expected a valid invite of this coordinator, got one that was revoked; ask its owner for another link',
          true,
        )
  }

  heard({ id }: VolunteerSession): void {
    const remembered = id === undefined ? undefined : this.#remembered.get(id)
    if (remembered !== undefined) this.#tokenUsed(remembered, remembered.offered)
  }

  find(job: JobId): RunHost | undefined {
    return this.#parts.find(job)
  }

  refused(code: ErrorCode, what: string, member?: string): void {
    this.#parts.onRefused(code, what, member)
  }

  nameOf(member: MemberId): string {
    return this.#byId.get(member)?.presence?.member().name ?? member.slice(0, 8)
  }

  gone(session: VolunteerSession): void {
    this.#strangers.delete(session)
    const { id } = session
    if (id === undefined || this.#byId.get(id) !== session) return
    this.#byId.delete(id)
    this.#iceAt.delete(id)
    const remembered = this.#remembered.get(id)
    if (remembered !== undefined) remembered.leftAt = this.#parts.clock.awake()
    this.#parts.onGone(id)
  }

  /** Sources first: an offer that they do not expect is refused. */
  introduceToBase(newcomer: MemberId, run: RunHost): void {
    const job = run.job.id
    const sources = run.baseSources(newcomer, (id) => this.#byId.get(id)?.presence?.job() === job)
    for (const source of sources) this.send(source, named(job, { type: 'share-base', member: newcomer }))
    this.send(newcomer, named(job, { type: 'base-sources', members: [...sources] }))
  }

  // ---- for runs ----

  send(to: MemberId, message: OnWire<ToVolunteer>): void {
    const session = this.#byId.get(to)
    if (session !== undefined && OPENS_LINKS.has(message.type)) this.#giveIce(session)
    session?.send(message)
  }

  refuse(
    job: JobId,
    to: MemberId,
    { code, message, fatal }: { readonly code: ErrorCode; readonly message: string; readonly fatal: boolean },
  ): void {
    this.#memberOf(job, to)?.refuse(code, message, fatal)
  }

  /** It asked to leave, and no member waits for it now. */
  dismiss(job: JobId, member: MemberId): void {
    this.#memberOf(job, member)?.dismiss()
  }

  /** A run has no say about a member that went on to another. */
  #memberOf(job: JobId, member: MemberId): VolunteerSession | undefined {
    const session = this.#byId.get(member)
    return session?.run?.job.id === job ? session : undefined
  }

  *present(): Iterable<Presence> {
    for (const session of this.#byId.values()) if (session.presence !== undefined) yield session.presence
  }

  relayedLinks(): number {
    return this.#parts.relayedLinks()
  }

  // ---- for sharing jobs ----

  *seats(): Iterable<VolunteerSeat> {
    for (const { seat } of this.#byId.values()) if (seat !== undefined) yield seat
  }

  seat(volunteer: MemberId): VolunteerSeat | undefined {
    return this.#byId.get(volunteer)?.seat
  }

  move(volunteer: MemberId, to: RunHost): void {
    this.#byId.get(volunteer)?.moveTo(to)
  }

  sendAway(volunteer: MemberId, to: Away): void {
    this.#byId.get(volunteer)?.moveAway(to)
  }

  runMoved(run: RunHost): void {
    const whereabouts = this.#parts.others?.whereIs(run.job.id)
    const url = typeof whereabouts === 'object' ? whereabouts.url : undefined
    for (const session of this.#byId.values()) session.runMoved(run, url)
  }

  sentAway({ id }: VolunteerSession): void {
    if (id !== undefined) this.#forget(id)
  }

  // ---- for routes ----

  /** The member whose token this is; also of one whose socket broke a moment ago. */
  authenticate(token: string): MemberId | undefined {
    const tokenHash = hash(token)
    const id = this.#byTokenHash.get(tokenHash)
    const remembered = id === undefined ? undefined : this.#remembered.get(id)
    if (remembered !== undefined) this.#tokenUsed(remembered, tokenHash)
    return id
  }

  /** The page of this member closes; its Worker may not live to say so. */
  leave(member: MemberId): void {
    const [session, job] = [this.#byId.get(member), this.#remembered.get(member)?.last]
    if (session !== undefined) session.leave()
    else if (job !== undefined) this.#parts.find(job)?.saidGoodbye(member)
  }

  /** Whether a member was given this job, now or before. */
  takesPart(member: MemberId, job: JobId): boolean {
    return this.#remembered.get(member)?.jobs.has(job) ?? false
  }

  /** What belongs to this job the member may fetch from here on. */
  offered(member: MemberId, job: JobId): void {
    const remembered = this.#remembered.get(member)
    if (remembered === undefined) return
    remembered.jobs.add(job)
    remembered.last = job
  }

  /** The end of a run is durable. */
  runEnded(run: RunHost): void {
    for (const session of this.#byId.values()) session.runEnded(run)
  }

  #offerToken(id: MemberId, tokenHash: string): void {
    const before = this.#remembered.get(id)
    if (before !== undefined && before.offered !== before.used) this.#byTokenHash.delete(before.offered)
    this.#remembered.set(id, {
      offered: tokenHash,
      used: before?.used,
      jobs: before?.jobs ?? new Set(),
      last: before?.last,
      leftAt: undefined,
    })
    this.#byTokenHash.set(tokenHash, id)
  }

  /** The member has its newest token, so that the one before is over. */
  #tokenUsed(remembered: Remembered, tokenHash: string): void {
    if (tokenHash !== remembered.offered || tokenHash === remembered.used) return
    if (remembered.used !== undefined) this.#byTokenHash.delete(remembered.used)
    remembered.used = tokenHash
  }

  #welcome(session: VolunteerSession, cameBack: boolean): void {
    const { signallingPath, linkOpenMs } = this.#parts
    const place = session.id === undefined ? undefined : this.#parts.placeFor(session.id)
    if (place !== undefined && 'away' in place) return session.moveAway(place.away)
    const run = place?.run
    const iceServers = withoutCredentials(this.#parts.ice)
    const welcome = (job: JobTerms | null): OnWire<ToVolunteer> => ({
      type: 'welcome',
      session: session.token,
      fence: run?.state.fence ?? 0,
      signallingPath,
      iceServers,
      ...(linkOpenMs === LINK_OPEN_MS ? {} : { linkOpenMs }),
      job,
    })
    if (run !== undefined && session.mayTake(run.job.id)) return session.offer(run.job.terms, welcome)
    session.send(welcome(null))
    const last = this.#parts.lastRun()
    // it was away when its run ended
    if (cameBack && last?.end !== undefined && session.mayTake(last.job.id)) session.send(last.end)
  }

  #check(): void {
    // A thousand pings and their answers at once would keep leases waiting.
    const isCrowd = this.#byId.size >= CROWD
    for (const session of [...this.#byId.values(), ...this.#strangers]) session.check(isCrowd)
    const at = this.#parts.clock.awake()
    for (const [id, { leftAt }] of this.#remembered) {
      const crowded = this.#remembered.size > MAX_REMEMBERED
      if (leftAt !== undefined && (crowded || at - leftAt > REMEMBERED_MS)) this.#forget(id)
    }
  }

  /** TURN credentials are for those who are told to open links, and new ones before the old ones expire. */
  #giveIce(session: VolunteerSession): void {
    const { ice } = this.#parts
    const lifeMs = renewalMs(ice)
    const { id } = session
    if (
      lifeMs === undefined ||
      id === undefined ||
      this.#parts.clock.awake() - (this.#iceAt.get(id) ?? Number.NEGATIVE_INFINITY) < lifeMs
    )
      return
    this.#iceAt.set(id, this.#parts.clock.awake())
    session.send({ type: 'ice-servers', iceServers: iceServersFor(id, ice, this.#parts.clock.awake()) })
  }

  #forget(id: MemberId): void {
    const remembered = this.#remembered.get(id)
    if (remembered === undefined) return
    this.#remembered.delete(id)
    this.#byTokenHash.delete(remembered.offered)
    if (remembered.used !== undefined) this.#byTokenHash.delete(remembered.used)
  }
}

/** Tokens are looked up by hash: the time of the look-up then says nothing about the token. */
function hash(token: string): string {
  return createHash('sha256').update(token).digest('hex')
}
