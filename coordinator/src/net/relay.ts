// Carries frames between two members that cannot reach each other (R18): one WebSocket per end, one binary message per
// frame, handed on unread. Who may, is decided by the caller. What waits here is bounded: an end is not read while the
// other lags.
import type {} from '@fastify/websocket'
import {
  CLOSE_AWAY,
  CLOSE_POLICY,
  CLOSE_REPLACED,
  type ErrorCode,
  GridError,
  isGridError,
  MAX_RELAY_MESSAGE_BYTES,
  type MemberId,
  MemberIdSchema,
  MIN_RELAY_MESSAGE_BYTES,
  parse,
  ROUTES,
  SILENCE_MS,
  tokenIn,
} from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { WebSocket } from 'ws'
import { addressOf } from '../api/addresses.ts'
import { type CoordinatorClock, processClock } from '../clock.ts'
import { TokenBucket } from '../token-bucket.ts'
import { RelayAccount, relayQuota, type RelayQuota } from './relay-quota.ts'

/** Bytes that wait for one end, the last message apart: a ring of 32 relayed links then costs at most 32 MiB. */
const MAX_WAITING_BYTES = 512 * 1024
/** Bytes from which on the other end is read again. */
const LOW_WATER_BYTES = MAX_WAITING_BYTES / 4
/** Ends that one member may have: links to both neighbours, and the ones that these replace. */
const MAX_ENDS_PER_MEMBER = 4
/** Messages of an end whose other end is not here yet: its greeting. */
const MAX_EARLY_MESSAGES = 1
/** 60 KiB frames at 100 MB/s are 1,700 messages a second; members send heartbeats every second. */
const RELAY_LIMITS: RelayLimits = { messagesPerSecond: 10_000, pauseMs: 20, quietMs: 3 * SILENCE_MS }
/** ms between looks at the clock */
const CHECK_MS = 1000
/** connections in a minute from one address: a lab behind one router, and no storm */
const DIALS_PER_MINUTE = 600

/** What both ends receive; the next ballot goes on without this link (R18). */
const QUOTA_SPENT = 'the relay carries no more bytes of this member or address in this hour'

/** Bytes of a close reason (RFC 6455); ours are ASCII */
const MAX_REASON_LENGTH = 120

export interface RelayOptions {
  /** absent: of this process */
  readonly clock?: CoordinatorClock
  /** may this socket speak for this member? Asked once per socket, before it opens */
  authenticate(id: MemberId, token: string): boolean
  /** are these two members to be linked through us now? Asked before a socket opens, and every second */
  mayRelay(a: MemberId, b: MemberId): boolean
  /** ms for the other end to come */
  readonly linkOpenMs: number
  onRefusal(code: ErrorCode, what: string): void
  onForwarded(bytes: number, from: MemberId, to: MemberId): void
  /** absent: RELAY_LIMITS; tests have smaller ones */
  readonly limits?: RelayLimits
  /** absent: that of relayQuota() */
  readonly quota?: RelayQuota
}

export interface RelayLimits {
  /** of one end, in the long run and at once; beyond that it is read more slowly */
  readonly messagesPerSecond: number
  /** ms that an end which sends more is not read */
  readonly pauseMs: number
  /** ms without a message of an end, or without room for one, after which its link is closed */
  readonly quietMs: number
}

export interface Relay {
  /** Closes the links of a member whose session ended. */
  drop(id: MemberId): void
  /** links with both ends */
  readonly links: number
}

interface EndParts {
  readonly socket: WebSocket
  readonly address: string
  readonly messagesPerSecond: number
  readonly clock: CoordinatorClock
}

export class RelayEnd {
  readonly self: MemberId
  readonly peer: MemberId
  readonly socket: WebSocket
  /** where it comes from */
  readonly address: string
  readonly bucket: TokenBucket
  other: RelayEnd | undefined
  early: Buffer[] = []
  /** why it is not read at the moment */
  readonly paused = new Set<'the other end lags' | 'too fast'>()
  /** ms: when it last said something */
  heardAt: number

  constructor(self: MemberId, peer: MemberId, { socket, address, messagesPerSecond, clock }: EndParts) {
    this.address = address
    this.heardAt = clock.awake()
    this.bucket = new TokenBucket(messagesPerSecond, messagesPerSecond, clock)
    this.self = self
    this.peer = peer
    this.socket = socket
  }

  pause(why: 'the other end lags' | 'too fast'): void {
    this.paused.add(why)
    this.socket.pause()
  }

  resume(why: 'the other end lags' | 'too fast'): void {
    if (this.paused.delete(why) && this.paused.size === 0) this.socket.resume()
  }
}

/** Registers the route; `@fastify/websocket` must be registered before. */
export function registerRelay(app: FastifyInstance, options: RelayOptions): Relay {
  const { clock = processClock } = options
  const relay = new Relays(options, clock)
  const stopChecking = clock.every(CHECK_MS, () => relay.check())
  app.addHook('onClose', async () => stopChecking())
  app.get(
    ROUTES.relay,
    {
      websocket: true,
      config: { rateLimit: { max: DIALS_PER_MINUTE, timeWindow: 60_000 } },
      preValidation: async (request, reply) => {
        const refusal = refusalOf(request, options)
        if (refusal === undefined) return
        options.onRefusal(refusal, 'a relayed link')
        await reply.code(refusal === 'session-unknown' ? 401 : 403).send({ code: refusal })
      },
    },
    (socket, request) => {
      const { self, peer } = endsOf(request)
      const { messagesPerSecond } = options.limits ?? RELAY_LIMITS
      relay.admit(new RelayEnd(self, peer, { socket, address: addressOf(request), messagesPerSecond, clock }))
    },
  )
  return relay
}

export class Relays implements Relay {
  readonly #options: RelayOptions
  readonly #ends = new Map<string, RelayEnd>()
  readonly #account: RelayAccount
  readonly #clock: CoordinatorClock

  constructor(options: RelayOptions, clock: CoordinatorClock) {
    this.#options = options
    this.#clock = clock
    this.#account = new RelayAccount(options.quota ?? relayQuota(), clock.awake)
  }

  get links(): number {
    return [...this.#ends.values()].filter(({ other }) => other !== undefined).length / 2
  }

  drop(id: MemberId): void {
    for (const end of [...this.#ends.values()]) if (end.self === id) this.#part(end, CLOSE_AWAY, 'the session ended')
  }

  admit(end: RelayEnd): void {
    const { self, peer, socket } = end
    // The close event follows every error and does what is to do.
    socket.on('error', () => {})
    const before = this.#ends.get(nameOf(self, peer))
    if (before !== undefined) this.#part(before, CLOSE_REPLACED, 'another socket is this end now')
    if ([...this.#ends.values()].filter((one) => one.self === self).length >= MAX_ENDS_PER_MEMBER)
      return socket.close(CLOSE_POLICY, 'too many relayed links')
    this.#ends.set(nameOf(self, peer), end)
    socket.on('message', (data: Buffer, isBinary) => this.#receive(end, data, isBinary))
    socket.on('close', (_, reason) => this.#part(end, CLOSE_AWAY, reason.toString() || 'the other end went away'))
    const other = this.#ends.get(nameOf(peer, self))
    if (other !== undefined) this.#join(end, other)
  }

  check(): void {
    const at = this.#clock.awake()
    const { quietMs } = this.#options.limits ?? RELAY_LIMITS
    for (const end of this.#ends.values()) {
      const quiet = at - end.heardAt
      if (!this.#options.mayRelay(end.self, end.peer))
        this.#part(end, CLOSE_POLICY, 'this link is not relayed any more')
      else if (end.other === undefined && quiet > this.#options.linkOpenMs)
        this.#part(end, CLOSE_AWAY, 'the other end did not come')
      else if (quiet > quietMs) this.#part(end, CLOSE_AWAY, `nothing moved for ${quietMs / 1000} s`)
    }
  }

  #join(end: RelayEnd, other: RelayEnd): void {
    end.other = other
    other.other = end
    for (const data of other.early.splice(0)) this.#forward(other, end, data)
  }

  #receive(end: RelayEnd, data: Buffer, isBinary: boolean): void {
    if (this.#ends.get(nameOf(end.self, end.peer)) !== end) return // parted; this was on its way
    end.heardAt = this.#clock.awake()
    try {
      requireFrameSize(data, isBinary)
      this.#requireQuota(end, data.byteLength)
      if (end.other !== undefined) this.#forward(end, end.other, data)
      else if (end.early.push(data) > MAX_EARLY_MESSAGES)
        throw new GridError('message-unexpected', 'expected one greeting at the start of a link, got another')
    } catch (error) {
      if (!isGridError(error)) throw error
      this.#options.onRefusal(error.code, `a relayed link: ${error.message}`)
      this.#part(end, CLOSE_POLICY, error.code === 'rate-exceeded' ? QUOTA_SPENT : error.code)
    }
  }

  /** @throws GridError 'rate-exceeded' */
  #requireQuota(end: RelayEnd, bytes: number): void {
    if (!this.#account.take(end, bytes))
      throw new GridError(
        'rate-exceeded',
        'expected no more than the relayed bytes of an hour, got more from this member or its address; try again later',
      )
  }

  #forward(from: RelayEnd, to: RelayEnd, data: Buffer): void {
    this.#options.onForwarded(data.byteLength, from.self, to.self)
    to.socket.send(
      data,
      { binary: true },
      () => to.socket.bufferedAmount <= LOW_WATER_BYTES && from.resume('the other end lags'),
    )
    if (to.socket.bufferedAmount > MAX_WAITING_BYTES) from.pause('the other end lags')
    if (from.bucket.take()) return
    from.pause('too fast')
    this.#clock.timer((this.#options.limits ?? RELAY_LIMITS).pauseMs, () => from.resume('too fast'))
  }

  /** The link ends: both sockets close. */
  #part(end: RelayEnd, code: number, reason: string): void {
    if (this.#ends.get(nameOf(end.self, end.peer)) === end) this.#ends.delete(nameOf(end.self, end.peer))
    end.socket.close(code, reason.slice(0, MAX_REASON_LENGTH))
    end.socket.resume() // or its close would not be read
    const { other } = end
    if (other === undefined) return
    end.other = undefined
    other.other = undefined
    this.#part(other, CLOSE_AWAY, reason)
  }
}

function refusalOf(request: FastifyRequest, options: RelayOptions): ErrorCode | undefined {
  try {
    const { self, peer, token } = endsOf(request)
    if (!options.authenticate(self, token)) return 'session-unknown'
    return options.mayRelay(self, peer) ? undefined : 'message-unexpected'
  } catch (error) {
    if (isGridError(error)) return error.code
    throw error
  }
}

/** @throws GridError 'message-malformed' */
function endsOf(request: FastifyRequest): { readonly self: MemberId; readonly peer: MemberId; readonly token: string } {
  const { id, peer } = request.query as { id?: unknown; peer?: unknown }
  const token = tokenIn(request.headers['sec-websocket-protocol'])
  if (token === undefined)
    throw new GridError(
      'message-malformed',
      'expected the session token before frames of a relayed link, got another message',
    )
  return { self: parse(MemberIdSchema, id, 'id'), peer: parse(MemberIdSchema, peer, 'peer'), token }
}

/** @throws GridError */
function requireFrameSize(data: Buffer, isBinary: boolean): void {
  if (!isBinary) throw new GridError('message-malformed', 'expected binary frames on a link, got text')
  if (data.byteLength < MIN_RELAY_MESSAGE_BYTES)
    throw new GridError(
      'message-malformed',
      `expected a frame of at least ${MIN_RELAY_MESSAGE_BYTES} bytes, got ${data.byteLength}`,
    )
  if (data.byteLength > MAX_RELAY_MESSAGE_BYTES)
    throw new GridError(
      'message-too-large',
      `expected a frame of at most ${MAX_RELAY_MESSAGE_BYTES} bytes, got ${data.byteLength}`,
    )
}

function nameOf(self: MemberId, peer: MemberId): string {
  return `${self} ${peer}`
}
