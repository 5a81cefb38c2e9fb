// The control socket: challenge, hello, welcome, messages both ways, and coming back by itself with full jitter when it
// breaks (R14).
import {
  decodeToVolunteer,
  describeError,
  encode,
  GridError,
  helloText,
  hex,
  type Incarnation,
  type LinkIdentity,
  type MemberId,
  type MessageFrom,
  type MessageTo,
  newIncarnation,
  type OnWire,
  PROTOCOL_VERSION,
  ROUTES,
  type Signer,
  type ToCoordinator,
  type ToVolunteer,
} from '@starling-grid/protocol'
import type { Coordinators } from './coordinators.ts'
import { isFatal, isFatalCode } from './fatal.ts'
import type { CoordinatorSocket, VolunteerHost } from './host.ts'
import { backoffMs } from './retry.ts'

/**
 * ms: the longest wait before the first and before later attempts; the actual one is drawn below it (full jitter).
 * While the coordinator is away an attempt costs next to nothing; once it is back, 5,000 volunteers return within the
 * longest wait.
 */
const RETRY = { firstMs: 250, mostMs: 1500 }
/** ms before one that was refused for the moment comes back, half of it more or less */
const PUT_OUT_MS = 8000
/** ms for the coordinator to answer hello */
const WELCOME_MS = 10_000
/** Coordinators that send a volunteer on, one after the other, before it waits: what they know may be a second old. */
const MOST_HOPS = 2

/** What the link leaves to the volunteer. */
export type ForVolunteer = Exclude<
  OnWire<ToVolunteer>,
  { type: 'challenge' | 'welcome' | 'refused' | 'coordinators' | 'moved' }
>

export interface CoordinatorEvents {
  /** what a hello says of jobs */
  jobs?(): Pick<MessageFrom<'hello'>, 'job' | 'only' | 'declines'>
  onWelcome(welcome: MessageTo<'welcome'>): void
  onMessage(message: ForVolunteer): void
  /** another coordinator has a job for it; this connection is over */
  onMoved?(moved: MessageTo<'moved'>): void
  /** a refusal after which nothing else was closed */
  onRefused(refusal: MessageTo<'refused'>): void
  /** the socket broke; another attempt follows in retryMs */
  onAway(why: string, retryMs: number): void
}

/** What a connection needs of the host. */
export type LinkHost = Pick<VolunteerHost, 'client' | 'clock' | 'signer'>

export interface LinkOptions {
  readonly name: string
  readonly invite?: string | undefined
  readonly coordinators: Coordinators
}

export class CoordinatorLink {
  readonly #host: LinkHost
  readonly #coordinators: Coordinators
  readonly #name: string
  readonly #invite: string | undefined
  readonly #events: CoordinatorEvents
  #self: (Incarnation & { readonly signer: Signer }) | undefined
  #socket: CoordinatorSocket | undefined
  #session: string | undefined
  /** ends the connection that is open now */
  #drop: (error: GridError) => void = () => undefined
  #stopped = false

  constructor(host: LinkHost, { name, invite, coordinators }: LinkOptions, events: CoordinatorEvents) {
    this.#host = host
    this.#coordinators = coordinators
    this.#name = name
    this.#invite = invite
    this.#events = events
  }

  /** Bearer token of HTTP requests and of signalling. */
  get session(): string {
    return this.#session ?? ''
  }

  /** This page load's or process's id, once it runs. */
  get member(): MemberId {
    return this.#me.incarnation
  }

  get connected(): boolean {
    return this.#socket !== undefined
  }

  /** Lost when there is no socket: the next FREEZE asks for all that matters. */
  send(message: OnWire<ToCoordinator>): void {
    this.#socket?.send(encode(message))
  }

  /**
   * Stays connected until stop(). @throws GridError when the coordinator refuses for good, or was never there, or there
   * is no key
   */
  async run(signal: AbortSignal): Promise<void> {
    const signer = await this.#host.signer()
    this.#self ??= { ...newIncarnation(signer.publicKey), signer }
    const tries = new HelloTries()
    while (!this.#stopped && !signal.aborted) {
      try {
        await this.#connected(signal, () => tries.welcomed())
      } catch (error) {
        if (error instanceof FatalRefusal) throw error.reason
        if (this.#stopped || signal.aborted) return
        if (isFatal(error)) throw error
        const retryMs = this.#waitAfter(error, tries)
        this.#events.onAway(describeError(error), retryMs)
        await this.#host.clock.sleep(retryMs, signal)
      }
    }
  }

  /** Where it asks next, and after how many ms. */
  #waitAfter(error: unknown, tries: HelloTries): number {
    if (error instanceof PutOut) return PUT_OUT_MS * (0.5 + Math.random())
    if (error instanceof Moved && tries.hop()) return 0
    // The one that was there a moment ago is asked once more: it may have started again.
    if (!(error instanceof Moved) && !tries.isFirst) this.#coordinators.turn()
    return tries.failed(this.#coordinators.count)
  }

  /** Another socket, soon: the coordinator has given this one up, which this end may not notice for minutes. */
  renew(why: string): void {
    this.#drop(new GridError('coordinator-lost', why))
  }

  /** Sends `leave`; the coordinator closes the socket when no member depends on this one. */
  leave(): void {
    this.#stopped = true
    this.send({ type: 'leave' })
  }

  stop(): void {
    this.#stopped = true
    this.#socket?.close()
  }

  /** One connection, from dialling to its end, which always throws. */
  async #connected(signal: AbortSignal, onWelcomed: () => void): Promise<never> {
    const socket = await this.#coordinators.door.dialCoordinator(ROUTES.volunteer)
    return new Promise((_, reject) => {
      const onAbort = (): void => fail(new GridError('cancelled', 'the volunteer was stopped'))
      const fail = (error: unknown): void => {
        cancelTimer()
        signal.removeEventListener('abort', onAbort) // the signal outlives the connection
        if (this.#socket === socket) this.#socket = undefined // an old socket may close long after the next has opened
        socket.onMessage = undefined
        socket.close()
        reject(error)
      }
      this.#drop = fail
      const cancelTimer = this.#host.clock.timer(WELCOME_MS, () =>
        fail(new GridError('coordinator-lost', 'the coordinator did not answer')),
      )
      signal.addEventListener('abort', onAbort, { once: true })
      socket.onClose = (reason) =>
        fail(new GridError('coordinator-lost', `the connection to the coordinator closed: ${reason}`))
      socket.onMessage = (text) =>
        this.#received(text, {
          socket,
          fail,
          welcomed: () => {
            cancelTimer()
            return onWelcomed()
          },
        })
    })
  }

  #received(
    text: string,
    connection: { readonly socket: CoordinatorSocket; fail(error: unknown): void; welcomed(): void },
  ): void {
    try {
      const message = decodeToVolunteer(text)
      if (message.type === 'refused') return this.#refused(message, connection)
      if (message.type === 'challenge') return void this.#answer(message, connection).catch(connection.fail)
      if (message.type === 'coordinators') return this.#coordinators.learn(message.urls)
      if (message.type === 'moved') return this.#moved(message, connection)
      if (message.type !== 'welcome') return this.#events.onMessage(message)
      connection.welcomed()
      this.#socket = connection.socket
      this.#session = message.session
      this.#events.onWelcome(message)
    } catch (error) {
      connection.fail(error instanceof GridError ? error : new FatalRefusal(error))
    }
  }

  /** @throws GridError 'coordinator-lost' when it may not go there */
  #moved(moved: MessageTo<'moved'>, connection: { fail(error: unknown): void }): void {
    this.#events.onMoved?.(moved)
    this.#coordinators.follow(moved.url)
    connection.fail(new Moved('coordinator-lost', `goes on at ${moved.url}`))
  }

  async #answer({ nonce }: MessageTo<'challenge'>, { socket }: { readonly socket: CoordinatorSocket }): Promise<void> {
    const { signer, ...self } = this.#me
    const coordinator = new URL(this.#coordinators.url).host
    const signature = hex(await signer.sign(helloText({ nonce, coordinator, incarnation: self.incarnation })))
    const again: Pick<MessageFrom<'hello'>, 'again'> = this.#session === undefined ? {} : { again: true }
    socket.send(
      encode({
        type: 'hello',
        protocol: PROTOCOL_VERSION,
        client: this.#host.client,
        name: this.#name,
        ...self,
        coordinator,
        signature,
        ...again,
        ...this.#events.jobs?.(),
        ...(this.#invite === undefined ? {} : { invite: this.#invite }),
      }),
    )
  }

  /** What links prove. */
  get identity(): LinkIdentity {
    return this.#me
  }

  get #me(): Incarnation & { readonly signer: Signer } {
    if (this.#self === undefined) throw new Error('internal: run() comes first')
    return this.#self
  }

  #refused(message: MessageTo<'refused'>, connection: { fail(error: unknown): void }): void {
    if (message.fatal && isFatalCode(message.code))
      return connection.fail(new FatalRefusal(new GridError(message.code, message.message)))
    this.#events.onRefused(message)
    if (message.fatal) connection.fail(new PutOut(message.code, message.message))
  }
}

/** How often it was tried since the last welcome. */
class HelloTries {
  #failures = 0
  #hops = 0

  welcomed(): void {
    this.#failures = 0
    this.#hops = 0
  }

  get isFirst(): boolean {
    return this.#failures === 0
  }

  /** Whether it goes on at once. */
  hop(): boolean {
    return this.#hops++ < MOST_HOPS
  }

  /** ms to wait: all coordinators are asked before the wait grows. */
  failed(coordinators: number): number {
    const round = Math.floor(this.#failures++ / coordinators)
    return backoffMs(round, RETRY)
  }
}

/** Another coordinator has a job for this volunteer. */
class Moved extends GridError {}

/** The coordinator closed the connection and says why; it may take this volunteer again. */
class PutOut extends GridError {}

/** Ends the run: trying again as we are makes no sense. */
class FatalRefusal extends Error {
  readonly reason: unknown
  constructor(reason: unknown) {
    super('refused')
    this.reason = reason
  }
}
