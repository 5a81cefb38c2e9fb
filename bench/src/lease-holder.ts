// A volunteer of a load test: real sockets, the real protocol, and no computing. It asks for a lease every two seconds
// and pushes a gradient for what it is granted.
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { type Agent, request } from 'node:http'
import {
  encode,
  HEARTBEAT_MS,
  helloText,
  type Incarnation,
  type JobTerms,
  type MessageTo,
  named,
  newIncarnation,
  type OnWire,
  pathTo,
  PROTOCOL_VERSION,
  type Push,
  PUSH_HEADER,
  ROUTES,
  type ToCoordinator,
  type ToVolunteer,
} from '@starling-grid/protocol'
import { WebSocket } from 'ws'

/** ms from one lease to the next */
const CYCLE_MS = 2000
/** of the model that they train: a linear layer from 16 pixels to ten digits */
const PARAMETERS = 16 * 10 + 10
/** of every element of a gradient: small, and no member's like another's */
const SLOPE = 0.001

export interface LeaseHolderParts {
  readonly url: string
  readonly name: string
  /** of this machine: the coordinator bounds the volunteers of one address */
  readonly localAddress: string
  readonly agent: Agent
  /** ms from the request to the grant */
  readonly onLease: (ms: number) => void
  /** ms from the push to its answer */
  readonly onCommit: (ms: number, verdict: number) => void
}

export class LeaseHolder {
  readonly #parts: LeaseHolderParts
  readonly #key: KeyObject
  readonly #self: Incarnation
  readonly #socket: WebSocket
  readonly closed: Promise<number>
  readonly ready: Promise<void>
  #terms: JobTerms | undefined
  #session = ''
  #asked = 0
  #modeEpoch = 0
  #timers: NodeJS.Timeout[] = []
  #becameReady: () => void = () => undefined

  constructor(parts: LeaseHolderParts) {
    this.#parts = parts
    this.#key = generateKeyPairSync('ed25519').privateKey
    this.#self = newIncarnation(Buffer.from(this.#key.export({ format: 'jwk' }).x ?? '', 'base64url'))
    this.#socket = new WebSocket(`${parts.url.replace(/^http/, 'ws')}${ROUTES.volunteer}`, {
      localAddress: parts.localAddress,
      perMessageDeflate: false,
    })
    this.ready = new Promise((resolve) => {
      this.#becameReady = resolve
    })
    this.closed = new Promise((resolve) => this.#socket.once('close', resolve))
    void this.closed.then(() => this.#end())
    this.#socket.on('error', () => undefined) // close follows
    this.#socket.on('message', (data) => this.#obey(JSON.parse(String(data)) as OnWire<ToVolunteer>))
  }

  close(): void {
    this.#socket.close()
  }

  #end(): void {
    for (const timer of this.#timers) clearTimeout(timer)
  }

  #obey(message: OnWire<ToVolunteer>): void {
    switch (message.type) {
      case 'challenge':
        return this.#hello(message.nonce)
      case 'welcome':
        this.#session = message.session
        return this.#take(message.job)
      case 'job':
        return this.#take(message.job)
      case 'async':
        this.#modeEpoch = message.modeEpoch
        this.#becameReady()
        return this.#askIn(Math.random() * CYCLE_MS)
      case 'grant':
        this.#parts.onLease(performance.now() - this.#asked)
        return void this.#push(message)
      default:
    }
  }

  #hello(nonce: string): void {
    const coordinator = new URL(this.#parts.url).host
    const signature = sign(null, helloText({ nonce, coordinator, incarnation: this.#self.incarnation }), this.#key)
    const { name } = this.#parts
    const hello = { type: 'hello', protocol: PROTOCOL_VERSION, ...this.#self, name, client: 'node', coordinator }
    this.#socket.send(JSON.stringify({ ...hello, signature: signature.toString('hex') }))
  }

  #take(terms: JobTerms | null): void {
    if (terms === null || this.#terms !== undefined) return
    this.#terms = terms
    this.#say({
      type: 'ready',
      modelHash: terms.modelHash,
      adapter: { name: 'none', vendor: 'load', software: true, executor: 'reference' },
      samplesPerSecond: 100,
    })
    const beat = (): void =>
      this.#say({
        type: 'heartbeat',
        samplesPerSecond: 100,
        activity: 'computing',
        bytesSent: 0,
        bytesReceived: 0,
      })
    this.#timers.push(
      setTimeout(() => this.#timers.push(setInterval(beat, HEARTBEAT_MS)), Math.random() * HEARTBEAT_MS),
    )
  }

  #say(message: ToCoordinator): void {
    if (this.#terms !== undefined && this.#socket.readyState === WebSocket.OPEN)
      this.#socket.send(encode(named(this.#terms.id, message)))
  }

  #askIn(ms: number): void {
    this.#timers.push(
      setTimeout(() => {
        this.#timers = this.#timers.slice(0, 2)
        this.#asked = performance.now()
        this.#say({ type: 'lease-request', modeEpoch: this.#modeEpoch })
      }, ms),
    )
  }

  #push({ modeEpoch, base, leases }: MessageTo<'grant'>): void {
    const { agent, url, localAddress, onCommit } = this.#parts
    const began = performance.now()
    const samples = leases.length
    const counts = { samples, targets: samples, lossSum: samples / 2, correct: 0 }
    const push: Push = { incarnation: this.#self.incarnation, modeEpoch, base, leases, ...counts }
    const bytes = new Uint8Array(new Float32Array(PARAMETERS).fill(SLOPE * (1 + Math.random())).buffer)
    const asked = request(
      url + pathTo(ROUTES.pushes, { id: this.#terms?.id ?? '' }),
      {
        method: 'POST',
        agent,
        localAddress,
        headers: {
          'content-type': 'application/octet-stream',
          'content-length': bytes.byteLength,
          [PUSH_HEADER]: JSON.stringify(push),
          authorization: `Bearer ${this.#session}`,
        },
      },
      (answer) => {
        answer.resume()
        answer.once('end', () => {
          onCommit(performance.now() - began, answer.statusCode ?? 0)
          this.#askIn(Math.max(0, CYCLE_MS - (performance.now() - this.#asked)))
        })
      },
    )
    asked.on('error', () => onCommit(performance.now() - began, 0))
    asked.end(bytes)
  }
}
