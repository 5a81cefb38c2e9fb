// The PeerJS wire protocol on our own WebSocket route: introduces volunteers to each other, never sees their data. The
// caller decides who may connect, and which members may talk to each other.
import type {} from '@fastify/websocket'
import {
  CLOSE_DROPPED,
  CLOSE_INTERNAL,
  CLOSE_REPLACED,
  type ErrorCode,
  GridError,
  isGridError,
  type MemberId,
  newMemberId,
  tokenIn,
} from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { WebSocket } from 'ws'
import { type CoordinatorClock, processClock } from '../clock.ts'
import { TokenBucket } from '../token-bucket.ts'
import {
  candidatesIn,
  MAX_CANDIDATES,
  MAX_SIGNAL_BYTES,
  readSignal,
  withoutLocalAddresses,
  withSeenAddress,
  type Signal,
  type SignalOut,
} from './signalling-messages.ts'

/** Messages a client may send at once: two links opened and retried, with all candidates of a large machine. */
const BURST = 200
/** Messages a client may send per second in the long run. */
const MESSAGES_PER_SECOND = 20
/** A refused message costs as much as this many good ones: a client that sends nonsense is soon gone. */
const REFUSAL_COST = 20
/** Bytes waiting for a client that does not read; more is not sent to it. */
const MAX_WAITING_BYTES = 1024 * 1024

export interface SignallingOptions {
  /** absent: of this process */
  readonly clock?: CoordinatorClock
  /** the part before "/peerjs", for example "/signalling" */
  readonly path: string
  /** may this socket speak for this member? Asked once per socket, before it opens */
  authenticate(id: MemberId, token: string): boolean
  /** may `src` send an offer, answer or candidate to `dst` now? */
  mayTalk(src: MemberId, dst: MemberId): boolean
  /** may volunteers at these addresses get each other's local ones? */
  shareNetwork(a: string, b: string): boolean
  onRefusal(code: ErrorCode): void
}

export interface Signalling {
  /** Closes the socket of a member whose session ended. */
  drop(id: MemberId): void
  readonly connected: number
}

interface Client {
  readonly id: MemberId
  readonly socket: WebSocket
  readonly bucket: TokenBucket
  /** where its socket comes from */
  readonly address: string
  /** destination → the connection that it negotiates, and candidates passed on for it */
  readonly candidates: Map<MemberId, { readonly connectionId: string; count: number }>
}

/**
 * Registers the routes; `@fastify/websocket` must be registered before. @example const signalling =
 * registerSignalling(app, options)
 */
export function registerSignalling(app: FastifyInstance, options: SignallingOptions): Signalling {
  const desk = new SignallingDesk(options, (error) => app.log.error(error, 'signalling failed'))
  app.get(
    `${options.path}/peerjs`,
    {
      websocket: true,
      preValidation: async (request, reply) => {
        if (speaksFor(request, options)) return
        options.onRefusal('session-unknown')
        await reply.code(401).send({ code: 'session-unknown' })
      },
    },
    (socket, request) => desk.admit(socket, (request.query as { id: MemberId }).id, request.ip),
  )
  // PeerJS asks for an id when it was given none; ours always are.
  app.get(`${options.path}/peerjs/id`, async (_, reply) => reply.type('text/plain').send(newMemberId()))
  return desk
}

/** The socket's query names a member, and its header proves that the member opened it. */
function speaksFor(request: FastifyRequest, options: SignallingOptions): boolean {
  const { id } = request.query as { id?: unknown }
  const token = tokenIn(request.headers['sec-websocket-protocol'])
  const valid = typeof id === 'string' && /^[0-9a-f]{32}$/.test(id) && token !== undefined
  return valid && options.authenticate(id as MemberId, token)
}

class SignallingDesk implements Signalling {
  readonly #options: SignallingOptions
  readonly #onDefect: (error: unknown) => void
  readonly #clients = new Map<MemberId, Client>()

  constructor(options: SignallingOptions, onDefect: (error: unknown) => void) {
    this.#options = options
    this.#onDefect = onDefect
  }

  get connected(): number {
    return this.#clients.size
  }

  drop(id: MemberId): void {
    this.#clients.get(id)?.socket.close(CLOSE_DROPPED, 'the session ended')
  }

  admit(socket: WebSocket, id: MemberId, address: string): void {
    const client: Client = {
      id,
      socket,
      address,
      bucket: new TokenBucket(MESSAGES_PER_SECOND, BURST, this.#options.clock ?? processClock),
      candidates: new Map(),
    }
    this.#clients.get(id)?.socket.close(CLOSE_REPLACED, 'another socket speaks for this member')
    this.#clients.set(id, client)
    socket.on('message', (data: Buffer) => this.#receive(client, data))
    socket.on('close', () => this.#clients.get(id) === client && this.#clients.delete(id))
    // The close event follows every error and does what is to do.
    socket.on('error', () => {})
    send(client, { type: 'OPEN' })
  }

  #receive(client: Client, data: Buffer): void {
    try {
      if (this.#clients.get(client.id) !== client) return
      if (!client.bucket.take())
        throw new GridError(
          'rate-exceeded',
          `expected at most ${MESSAGES_PER_SECOND} signalling messages a second, got more; send fewer`,
        )
      if (data.byteLength > MAX_SIGNAL_BYTES)
        throw new GridError(
          'message-too-large',
          `expected a signalling message of at most ${MAX_SIGNAL_BYTES} bytes, got a longer one`,
        )
      this.#forward(client, readSignal(data.toString('utf8')))
    } catch (error) {
      this.#refuse(client, error)
    }
  }

  #forward(client: Client, signal: Signal): void {
    if (signal.type === 'HEARTBEAT') return
    const destination = this.#clients.get(signal.dst)
    const allowed = this.#options.mayTalk(client.id, signal.dst)
    if (allowed) countCandidates(client, signal)
    const reachable = allowed && destination !== undefined && destination.socket.bufferedAmount < MAX_WAITING_BYTES
    if (reachable) this.#pass(client, destination, signal)
    // The same answer for absent and forbidden members: an offer must not tell strangers who is here.
    else if (signal.type === 'OFFER') send(client, { type: 'EXPIRE', src: signal.dst })
    else if (signal.type === 'KNOCK') send(client, { type: 'DOOR', src: signal.dst })
    if (!allowed)
      throw new GridError(
        'message-unexpected',
        `expected signals to members of this generation, got one of ${client.id} to ${signal.dst}`,
      )
  }

  #pass(from: Client, to: Client, signal: Exclude<Signal, { type: 'HEARTBEAT' }>): void {
    const seen = withSeenAddress(signal, from.address)
    const passed = this.#options.shareNetwork(from.address, to.address) ? seen : withoutLocalAddresses(seen)
    if (passed !== undefined && passed.type !== 'HEARTBEAT') send(to, { ...withoutDestination(passed), src: from.id })
  }

  #refuse({ socket, bucket }: Client, error: unknown): void {
    if (!isGridError(error)) {
      this.#onDefect(error)
      return socket.close(CLOSE_INTERNAL)
    }
    this.#options.onRefusal(error.code)
    bucket.charge(REFUSAL_COST)
    // No close handshake: it would go on reading the flood.
    if (error.code === 'rate-exceeded') socket.terminate()
  }
}

/** @throws GridError 'message-unexpected' */
function countCandidates({ candidates }: Client, signal: Exclude<Signal, { type: 'HEARTBEAT' }>): void {
  if (signal.type === 'LEAVE') return void candidates.delete(signal.dst)
  if (signal.type === 'KNOCK' || signal.type === 'DOOR') return
  const { connectionId } = signal.payload
  const sent = candidates.get(signal.dst)
  const entry = sent?.connectionId === connectionId ? sent : { connectionId, count: 0 }
  entry.count += candidatesIn(signal)
  candidates.set(signal.dst, entry)
  if (entry.count > MAX_CANDIDATES)
    throw new GridError(
      'message-unexpected',
      `expected at most ${MAX_CANDIDATES} candidates for a connection, got ${entry.count}`,
    )
}

function withoutDestination(signal: Exclude<Signal, { type: 'HEARTBEAT' }>): {
  type: 'OFFER' | 'ANSWER' | 'CANDIDATE' | 'LEAVE' | 'KNOCK' | 'DOOR'
  payload?: unknown
} {
  return signal.type === 'LEAVE' || signal.payload === undefined
    ? { type: signal.type }
    : { type: signal.type, payload: signal.payload }
}

function send(client: Client, message: SignalOut): void {
  if (client.socket.readyState === client.socket.OPEN) client.socket.send(JSON.stringify(message))
}
