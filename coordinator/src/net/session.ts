// One volunteer's socket: text → checked message → input of the run, and back. Independent of steps and ballots;
// keeps strangers within their limits.
import { randomBytes } from 'node:crypto'
import {
  type AdapterDescription,
  CLOSE_AWAY,
  CLOSE_BROKEN,
  CLOSE_POLICY,
  decodeToCoordinator,
  encode,
  type ErrorCode,
  GridError,
  HEARTBEAT_MS,
  isErrorCode,
  isGridError,
  type JobId,
  type JobTerms,
  type MemberId,
  named,
  type MessageFrom,
  NONCE_BYTES,
  type OnWire,
  plainText,
  SILENCE_MS,
  type ToCoordinator,
  type ToVolunteer,
  type VolunteerId,
  volunteerIdOf,
} from '@starling-grid/protocol'
import type { WebSocket } from 'ws'
import type { Admission } from '../access/invites.ts'
import type { CoordinatorClock } from '../clock.ts'
import { requireHonestMessage } from '../host/honest-counts.ts'
import type { RunHost } from '../host/run-host.ts'
import type { Presence, PresentMember } from '../host/run-view.ts'
import type { Away, VolunteerSeat } from '../jobs/sharing.ts'
import { TokenBucket } from '../token-bucket.ts'
import { requireProof } from './hello-proof.ts'

/** ms for the first message */
const HELLO_MS = 5000
/** ms without a sign of life before `ready`: planning a model may keep a volunteer's event loop busy */
const PREPARING_SILENCE_MS = 60_000
/** ms without a sign of life after which one of a crowd is pinged: who beats says enough */
const QUIET_MS = 2 * HEARTBEAT_MS
/** ms for a volunteer to plan a job, compile its kernels and say that it is ready */
const READY_MS = 300_000
/** ms for a run to end its step without a member that goes to another; then it goes anyway */
const LET_GO_MS = 30_000
/**
 * messages per second in the long run, and at once: a fast ring of a small model commits some hundred steps a second
 */
const MESSAGES_PER_SECOND = 500
const MESSAGE_BURST = 1000
/** bytes per second in the long run, and at once: eight of the largest messages, whose reading takes some 20 ms each */
const BYTES_PER_SECOND = 512 * 1024
const BYTES_BURST = 2 * 1024 * 1024
/** refused messages before the socket is closed */
const MAX_REFUSED = 8
/** ms between two questions for members that have a base */
const SEEK_MS = 400
/** bytes that wait for a volunteer which does not read */
const MAX_BACKLOG_BYTES = 8 * 1024 * 1024
/** WebSocket close codes (RFC 6455): going away, policy violation */

export type Hello = MessageFrom<'hello'>

/** What a session asks of the others. */
export interface SessionHost {
  /** Registers the session under its incarnation. @throws GridError why it may not join */
  greet(session: VolunteerSession, hello: Hello): void
  /** the run of this job, whether volunteers are given it now or not */
  find(job: JobId): RunHost | undefined
  /** The volunteer has its WELCOME: something came after hello. */
  heard(session: VolunteerSession): void
  /** `member`: the name of the one that it is about */
  refused(code: ErrorCode, what: string, member?: string): void
  nameOf(member: MemberId): string
  gone(session: VolunteerSession): void
  /** a member was told of a job */
  offered(member: MemberId, job: JobId): void
  /** The newcomer learns of members that have the base of a job, and they of it. */
  introduceToBase(newcomer: MemberId, run: RunHost): void
  /** It goes to another coordinator: its tokens are good for nothing here. */
  sentAway(session: VolunteerSession): void
}

/** Why a session is over. */
interface Departure {
  readonly reason: string
  readonly expected: boolean
}

export interface SessionParts {
  readonly clock: CoordinatorClock
  readonly desk: SessionHost
  /** of HTTP requests */
  readonly token: string
  /** names and ports under which this coordinator is known */
  readonly names: readonly string[]
  /** of the socket: an IPv4 address, or an IPv6 /64 */
  readonly address: string
  /** where the socket comes from (network.ts) */
  readonly network: string
}

export class VolunteerSession {
  readonly token: string
  readonly #names: readonly string[]
  readonly network: string
  readonly address: string
  readonly #nonce = randomBytes(NONCE_BYTES).toString('hex')
  readonly #socket: WebSocket
  readonly #desk: SessionHost
  readonly #clock: CoordinatorClock
  readonly #bucket: TokenBucket
  readonly #bytes: TokenBucket
  readonly #openedAt: number
  #hello: Hello | undefined
  #presence: Presence | undefined
  #declines: ReadonlySet<JobId> = new Set()
  #ready: MessageFrom<'ready'> | undefined
  #report: Pick<PresentMember, 'activity' | 'samplesPerSecond' | 'bytesSent' | 'bytesReceived' | 'tcpLinks'> = {
    activity: 'preparing',
    samplesPerSecond: 0,
    bytesSent: 0,
    bytesReceived: 0,
    tcpLinks: [],
  }
  /** the newest job that this volunteer was told of */
  #offered: JobTerms | undefined
  /** ms: when it was told of that job */
  #offeredAt: number
  /** jobs that it said ready for, on this socket */
  readonly #joined = new Set<JobId>()
  #admission: Admission = {}
  /** the run that it takes part in: messages of another job never reach it */
  #run: RunHost | undefined
  /** the job that it goes to when its present run lets it go, how, and since when (ms) */
  #next: { readonly job: JobId; readonly go: () => void; readonly since: number } | undefined
  /** the job that it was given last, and when (ms); of an earlier socket, or what its hello says */
  #placed: { readonly job: JobId | undefined; readonly at: number }
  /** undefined: no adapter was named yet */
  /** undefined: not known yet */
  #adapter: AdapterDescription | undefined
  #refused = 0
  #soughtAt = Number.NEGATIVE_INFINITY
  #hasWelcome = false
  #ended = false
  /** it said so; a tab that is closing may break its connection before its run lets it go */
  #isLeaving = false
  /** ms: last message, last answer to a ping, last ping */
  #heardAt: number
  #aliveAt: number
  #pingedAt: number

  constructor(socket: WebSocket, { clock, desk, token, names, network, address }: SessionParts) {
    this.#clock = clock
    this.#bucket = new TokenBucket(MESSAGES_PER_SECOND, MESSAGE_BURST, clock)
    this.#bytes = new TokenBucket(BYTES_PER_SECOND, BYTES_BURST, clock)
    const at = clock.awake()
    this.#openedAt = at
    this.#offeredAt = at
    this.#heardAt = at
    this.#aliveAt = at
    this.#pingedAt = at
    this.#placed = { job: undefined, at }
    this.#socket = socket
    this.#desk = desk
    this.token = token
    this.#names = names
    this.network = network
    this.address = address
    socket.on('message', (data: Buffer, isBinary) => this.#received(data, isBinary))
    socket.on('pong', () => {
      this.#aliveAt = this.#clock.awake()
    })
    socket.on('close', (code) =>
      this.#end(
        code === CLOSE_BROKEN && !this.#isLeaving
          ? { reason: 'the connection broke', expected: false }
          : { reason: 'closed its connection', expected: true },
      ),
    )
    // The close event follows and does what is to do.
    socket.on('error', (error) =>
      'code' in error && error.code === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH'
        ? desk.refused('message-too-large', this.#who)
        : undefined,
    )
  }

  /** Its hello has to prove who it is, on this socket. */
  challenge(): void {
    this.send({ type: 'challenge', nonce: this.#nonce })
  }

  /** undefined before hello */
  get id(): MemberId | undefined {
    return this.#hello?.incarnation
  }

  /** The key behind the id; undefined before hello. */
  get volunteer(): VolunteerId | undefined {
    return this.#hello === undefined ? undefined : volunteerIdOf(this.#hello.publicKey)
  }

  /** What the dashboard shows; undefined before hello. */
  get presence(): Presence | undefined {
    return this.#hello === undefined ? undefined : this.#presence
  }

  #presenceOf({ incarnation: id, client }: Hello): Presence {
    return {
      id,
      job: () => this.#offered?.id,
      member: () => ({
        id,
        name: this.#who,
        client,
        adapter: this.#ready?.adapter ?? null,
        ...this.#report,
        joinedAt: this.#openedAt,
      }),
    }
  }

  get run(): RunHost | undefined {
    return this.#run
  }

  /** How jobs share it; undefined before hello. */
  get seat(): VolunteerSeat | undefined {
    if (this.#hello === undefined) return undefined
    const { incarnation: id, job, only = false } = this.#hello
    return {
      id,
      job: this.#next?.job ?? this.#placed.job,
      since: this.#next?.since ?? this.#placed.at,
      isOffered: this.#offered !== undefined,
      isBound: this.#admission.job !== undefined,
      chosen: this.#admission.job ?? (only ? job : undefined),
      declines: this.#declines,
      realGpu: this.#adapter && !this.#adapter.software && this.#adapter.executor === 'webgpu',
      f16: this.#adapter && this.#adapter.f16 === true,
      leaves: this.#next === undefined ? undefined : this.#run?.job.id,
    }
  }

  /** What the coordinator remembers comes before what the volunteer does: its last offer may not have arrived. */
  cameFrom(job: JobId | undefined): void {
    this.#placed = { job: job ?? this.#hello?.job, at: this.#clock.awake() }
  }

  /** Its run lets it go when the step has ended; a volunteer in no run goes at once. */
  moveTo({ job: { id, terms } }: RunHost): void {
    this.#goOn(id, () => this.offer(terms, (job) => ({ type: 'job', job })))
  }

  /** To the coordinator of another job, as moveTo(). */
  moveAway(to: Away): void {
    this.#goOn(to.job, () => this.sendAway(to.url, to.job))
  }

  #goOn(job: JobId, go: () => void): void {
    this.#next = { job, go, since: this.#clock.awake() }
    if (this.#run === undefined || this.id === undefined) return this.#goNow()
    this.#run.feed({ type: 'member-leaving', member: this.id })
  }

  #goNow(): void {
    const next = this.#next
    this.#next = undefined
    next?.go()
  }

  /** At once: it says hello to the coordinator there. `job`: that it is wanted for; null: any. */
  sendAway(url: string, job: JobId | null): void {
    this.send({ type: 'moved', url, to: job })
    this.#desk.sentAway(this)
    this.close(CLOSE_AWAY, 'moved', { reason: 'went on to another coordinator', expected: true })
  }

  /** Another coordinator has its run, or soon will. */
  runMoved({ job: { id } }: RunHost, url: string | undefined): void {
    if (this.#run?.job.id !== id && this.#offered?.id !== id) return
    if (url !== undefined) return this.sendAway(url, id)
    this.close(CLOSE_AWAY, 'its job moves', { reason: 'its job moves to another coordinator', expected: true })
  }

  get isOver(): boolean {
    return this.#ended
  }

  /** What let it in. */
  get admission(): Admission {
    return this.#admission
  }

  set admission(admission: Admission) {
    this.#admission = admission
  }

  /** Its invite may name the one job that it is given. */
  mayTake(job: JobId): boolean {
    return this.#admission.job === undefined || this.#admission.job === job
  }

  send(message: OnWire<ToVolunteer>): void {
    if (this.#ended || this.#socket.readyState !== this.#socket.OPEN) return
    if (this.#socket.bufferedAmount > MAX_BACKLOG_BYTES) return this.terminate('it does not read what it is sent')
    this.#socket.send(encode(message))
  }

  /** A job to take part in; the volunteer plans it and answers ready. */
  offer(terms: JobTerms, wrap: (terms: JobTerms) => OnWire<ToVolunteer>): void {
    if (this.#offered?.id === terms.id || !this.mayTake(terms.id)) return
    this.#leaveRun({ reason: 'went on to another job', expected: true })
    this.#ready = undefined
    this.#offered = terms
    this.#offeredAt = this.#clock.awake()
    this.#placed = { job: terms.id, at: this.#offeredAt }
    if (this.id !== undefined) this.#desk.offered(this.id, terms.id)
    this.send(wrap(terms))
  }

  /** The end of a run is durable: a volunteer that only prepares for it is told here, a member was told by the run. */
  runEnded(run: RunHost): void {
    this.#offeredAt = Number.POSITIVE_INFINITY // it waits for the next job, which is no fault of its own
    if (this.#run === run) return this.#leaveRun({ reason: 'the run ended', expected: true })
    if (this.#run === undefined && this.#offered?.id === run.job.id) this.#tellEnd(run)
  }

  #tellEnd({ end }: RunHost): void {
    if (end !== undefined) this.send(end)
  }

  refuse(code: ErrorCode, message: string, fatal: boolean): void {
    this.send({ type: 'refused', code, message: message.slice(0, 1000), fatal })
    if (fatal) this.close(CLOSE_POLICY, code, { reason: `refused: ${code}`, expected: false })
  }

  close(code: number, text: string, departure: Departure): void {
    this.#socket.close(code, text)
    this.#end(departure)
  }

  /** Without the closing handshake: it would go on reading a flood, or wait for a peer that is gone. */
  terminate(reason: string): void {
    this.#socket.terminate()
    this.#end({ reason, expected: false })
  }

  /** Looks at the clock, about twice a second. */
  check(isOneOfCrowd = false): void {
    const at = this.#clock.awake()
    if (this.#next !== undefined && at - this.#next.since > LET_GO_MS) return this.#goNow()
    const why = this.#whyOver(at)
    if (why !== undefined) return this.terminate(why)
    if (at - this.#pingedAt >= HEARTBEAT_MS && !(isOneOfCrowd && this.#isHeard(at))) this.#ping(at)
  }

  #whyOver(at: number): string | undefined {
    if (this.#hello === undefined && at - this.#openedAt > HELLO_MS) return 'no hello'
    if (this.#run === undefined && this.#offered !== undefined && at - this.#offeredAt > READY_MS)
      return `not ready within ${READY_MS / 1000} s`
    if (this.#run !== undefined && at - this.#heardAt > SILENCE_MS) return `silent for ${SILENCE_MS / 1000} s`
    if (at - Math.max(this.#aliveAt, this.#heardAt) > PREPARING_SILENCE_MS)
      return `silent for ${PREPARING_SILENCE_MS / 1000} s`
    return undefined
  }

  #isHeard(at: number): boolean {
    return at - Math.max(this.#aliveAt, this.#heardAt) < QUIET_MS
  }

  #ping(at: number): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return
    this.#pingedAt = at
    this.#socket.ping()
  }

  get #who(): string {
    return this.#hello?.name ?? 'a stranger'
  }

  #received(data: Buffer, isBinary: boolean): void {
    if (this.#ended) return
    if (!this.#bucket.take()) {
      this.#desk.refused('rate-exceeded', `${this.#who} sends more than ${MESSAGES_PER_SECOND} messages a second`)
      return this.terminate('too many messages')
    }
    if (!this.#bytes.pay(data.byteLength)) {
      this.#desk.refused('rate-exceeded', `${this.#who} sends more than ${BYTES_PER_SECOND} bytes a second`)
      return this.terminate('too many bytes')
    }
    this.#heardAt = this.#clock.awake()
    try {
      if (isBinary) throw new GridError('message-malformed', 'expected a text message, got a binary one')
      this.#take(decodeToCoordinator(data.toString('utf8')))
    } catch (error) {
      if (!isGridError(error)) throw error
      this.#refuseMessage(error)
    }
  }

  #refuseMessage({ code, message }: GridError): void {
    this.#desk.refused(code, `${this.#who}: ${message}`, this.#hello?.name)
    this.#refused++
    this.refuse(code, message, this.#hello === undefined || this.#refused >= MAX_REFUSED || code === 'model-hash')
  }

  #take(message: OnWire<ToCoordinator>): void {
    if (message.type === 'hello') return this.#greeted(message)
    if (this.#hello === undefined)
      throw new GridError('message-unexpected', `expected hello as the first message, got ${message.type}`)
    if (!this.#hasWelcome) this.#desk.heard(this)
    this.#hasWelcome = true
    switch (message.type) {
      case 'seek-base':
        return this.#seekBase(message.job)
      case 'ready':
        return this.#takePart(message)
      case 'heartbeat':
        return this.#beat(message)
      case 'leave':
        return this.leave()
      default:
        if (this.#run?.job.id !== message.job) return this.#ignoreStale(message)
        requireHonestMessage(this.#run.job, message)
        this.#run.feed({ type: 'message', member: this.#hello.incarnation, message })
    }
  }

  /**
   * A message of another job crossed the offer of the present one, or a message of this job crossed its end. Both
   * happen when this job is offered, another one, and this one again. @throws GridError when no honest volunteer sends
   * it
   */
  #ignoreStale({ type, job }: { readonly type: string; readonly job: JobId }): void {
    const run = this.#desk.find(job)
    if (run === undefined)
      throw new GridError(
        'message-unexpected',
        `expected ${type} of a job of this coordinator, got job ${job}; join again`,
      )
    if (this.#run === undefined && this.#offered?.id === job && !run.finished && !this.#joined.has(job))
      throw new GridError('message-unexpected', `expected ready before ${type}, got none; send ready first`)
  }

  /** It goes once no member waits for it: its run lets it go between two steps. */
  leave(): void {
    this.#isLeaving = true
    this.#next = undefined
    if (this.#run === undefined || this.id === undefined) return this.dismiss()
    this.#run.feed({ type: 'member-leaving', member: this.id })
  }

  /** No member waits for it now: it said that it leaves, or goes on to another job. */
  dismiss(): void {
    if (this.#next !== undefined) return this.#goNow()
    this.close(CLOSE_AWAY, 'left', { reason: 'left', expected: true })
  }

  #greeted(hello: Hello): void {
    if (this.#hello !== undefined)
      throw new GridError('message-unexpected', 'expected one hello per connection, got a second')
    const name = plainText(hello.name)
    if (name === '')
      throw new GridError(
        'message-malformed',
        'expected a name with a visible character, got none; choose another name',
      )
    requireProof(hello, { nonce: this.#nonce, names: this.#names })
    this.#hello = { ...hello, name }
    this.#presence = this.#presenceOf(this.#hello)
    this.#declines = new Set(hello.declines)
    try {
      this.#desk.greet(this, this.#hello)
    } catch (error) {
      this.#hello = undefined
      throw error
    }
  }

  #takePart(ready: OnWire<MessageFrom<'ready'>>): void {
    const run = this.#desk.find(ready.job)
    if (run === undefined || this.#hello === undefined)
      throw new GridError(
        'message-unexpected',
        `expected ready for a job of this coordinator, got job ${ready.job}; join again`,
      )
    if (run.finished) return this.#tellEnd(run)
    this.#adapter = ready.adapter
    if (ready.job !== this.#offered?.id) return // it crossed the offer of another job
    const { modelHash } = run.job.terms
    if (ready.modelHash !== modelHash)
      throw new GridError(
        'model-hash',
        `expected the model ${modelHash.slice(0, 8)}…, got ${ready.modelHash.slice(0, 8)}…, ` +
          'so their versions differ; reload the page, or update the volunteer',
      )
    const { adapter, samplesPerSecond, holds, relaysOnly = false } = ready
    this.#ready = {
      ...ready,
      adapter: { ...adapter, name: plainText(adapter.name), vendor: plainText(adapter.vendor) },
    }
    this.#report = { ...this.#report, samplesPerSecond }
    const { incarnation: id, name, client } = this.#hello
    if (this.#run !== undefined) return this.#run.feed({ type: 'speed', member: id, samplesPerSecond })
    this.#run = run
    this.#joined.add(run.job.id)
    run.feed({
      type: 'member-joined',
      member: { id, name, client, adapter: this.#ready.adapter, network: this.network, relaysOnly },
      samplesPerSecond,
      ...(holds ? { holds } : {}),
    })
  }

  /**
   * An honest volunteer asks once in each preparation, and when a source is lost. What is asked too soon is answered as
   * if there were none.
   */
  #seekBase(job: JobId): void {
    const run = this.#offered?.id === job ? this.#desk.find(job) : undefined
    if (run === undefined || this.id === undefined) return // it crossed the offer of another job
    const at = this.#clock.awake()
    if (at - this.#soughtAt < SEEK_MS) return this.send(named(job, { type: 'base-sources', members: [] }))
    this.#soughtAt = at
    this.#desk.introduceToBase(this.id, run)
  }

  #beat({
    job,
    activity,
    samplesPerSecond,
    bytesSent,
    bytesReceived,
    hidden = false,
    linkMs,
    tcpLinks = [],
    refusals = [],
  }: OnWire<MessageFrom<'heartbeat'>>): void {
    for (const { code, from, count } of refusals)
      if (isErrorCode(code))
        this.#desk.refused(code, `${this.#who} ${refusalText(code, count, this.#desk.nameOf(from))}`)
    if (this.id === undefined || this.#run?.job.id !== job) return
    this.#report = { activity: plainText(activity), samplesPerSecond, bytesSent, bytesReceived, tcpLinks }
    this.#run.feed({
      type: 'speed',
      member: this.id,
      samplesPerSecond,
      hidden,
      ...(linkMs === undefined ? {} : { linkMs }),
    })
  }

  #leaveRun(departure: Departure): void {
    const run = this.#run
    this.#run = undefined
    if (this.id !== undefined) run?.feed({ type: 'member-lost', member: this.id, ...departure })
  }

  #end(departure: Departure): void {
    if (this.#ended) return
    this.#ended = true
    this.#desk.gone(this)
    this.#leaveRun(departure)
  }
}

function refusalText(code: ErrorCode, count: number, from: string): string {
  const times = count === 1 ? '' : `, ${count} times`
  if (code === 'link-timeout') return `got no link to ${from}, and fetched from others${times}`
  return `got ${count} such frame${count === 1 ? '' : 's'} from ${from}`
}
