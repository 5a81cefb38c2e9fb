// A volunteer of a load test: real sockets, the real protocol, and no computing. It asks for a lease every two seconds
// and pushes a gradient for what it is granted. A lease counts from when it was due, and each volunteer keeps its own
// beat. So those that wait for a coordinator that stands still neither hide the wait nor fall into step with one
// another.
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { type Agent, request } from 'node:http'
import {
  type BlockId,
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
  PUSH_HEADER,
  type PushHeader,
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
const OK = 200
/** in the answer to a push that was taken */
const VERSION = /^for version (\d+)$/

export interface LeaseHolderParts {
  readonly url: string
  readonly name: string
  /** of this machine: the coordinator bounds the volunteers of one address */
  readonly localAddress: string
  readonly agent: Agent
  /** ms from when the request was due to the grant */
  readonly onLease: (ms: number) => void
  readonly onPushed: (pushed: Pushed) => void
}

export interface Pushed {
  readonly blocks: readonly BlockId[]
  /** version that has them, when it is made; undefined: the push was refused */
  readonly version: number | undefined
  /** why it was refused */
  readonly code: string
}

export class LeaseHolder {
  readonly #parts: LeaseHolderParts
  readonly #key: KeyObject
  readonly #self: Incarnation
  readonly #socket: WebSocket
  /** resolves with the code and the reason */
  readonly closed: Promise<string>
  readonly ready: Promise<void>
  #terms: JobTerms | undefined
  #session = ''
  /** ms: when the present lease was due */
  #due = 0
  #modeEpoch = 0
  #timers: NodeJS.Timeout[] = []
  #becameReady: () => void = () => undefined
  #isResting = false
  #pushing: Promise<void> = Promise.resolve()

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
    let trouble = ''
    this.#socket.on('error', ({ message }) => {
      trouble = message // close follows
    })
    this.closed = new Promise((resolve) =>
      this.#socket.once('close', (code, reason) => resolve(`${code} ${String(reason) || trouble}`)),
    )
    void this.closed.then(() => this.#end())
    this.#socket.on('message', (data) => this.#obey(JSON.parse(String(data)) as OnWire<ToVolunteer>))
  }

  /** It asks for nothing more. Resolves when its last push was answered. */
  rest(): Promise<void> {
    this.#isResting = true
    return this.#pushing
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
        return this.#askAt(performance.now() + Math.random() * CYCLE_MS)
      case 'grant':
        this.#parts.onLease(performance.now() - this.#due)
        this.#pushing = this.#push(message)
        return void this.#pushing.then(() => this.#askAt(this.#nextBeat()))
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

  /** A beat that passed while it waited is left out. */
  #nextBeat(): number {
    return this.#due + CYCLE_MS * Math.max(1, Math.ceil((performance.now() - this.#due) / CYCLE_MS))
  }

  #askAt(due: number): void {
    this.#timers.push(
      setTimeout(
        () => {
          this.#timers = this.#timers.slice(0, 2)
          if (this.#isResting) return
          this.#due = Math.min(due, performance.now()) // timers may be a millisecond early
          this.#say({ type: 'lease-request', modeEpoch: this.#modeEpoch })
        },
        Math.max(0, due - performance.now()),
      ),
    )
  }

  async #push({ modeEpoch, base, leases }: MessageTo<'grant'>): Promise<void> {
    const samples = leases.length
    const push: PushHeader = {
      incarnation: this.#self.incarnation,
      modeEpoch,
      base,
      leaseEpoch: leases[0]?.leaseEpoch ?? 0,
      blocks: samples,
      samples,
      targets: samples,
      lossSum: samples / 2,
      correct: 0,
    }
    const { status, text } = await this.#post(push).catch((error: unknown) => ({ status: 0, text: String(error) }))
    const { message = '', code = text } = status === 0 ? {} : (JSON.parse(text) as { message?: string; code?: string })
    const blocks = leases.map(({ block }) => block)
    const version = status === OK ? Number(VERSION.exec(message)?.[1]) : undefined
    this.#parts.onPushed({ blocks, version, code })
  }

  #post(push: PushHeader): Promise<{ readonly status: number; readonly text: string }> {
    const { agent, url, localAddress } = this.#parts
    const bytes = new Uint8Array(new Float32Array(PARAMETERS).fill(SLOPE * (1 + Math.random())).buffer)
    const headers = {
      'content-type': 'application/octet-stream',
      'content-length': bytes.byteLength,
      [PUSH_HEADER]: JSON.stringify(push),
      authorization: `Bearer ${this.#session}`,
    }
    const path = pathTo(ROUTES.pushes, { id: this.#terms?.id ?? '' })
    return new Promise((resolve, reject) => {
      const asked = request(url + path, { method: 'POST', agent, localAddress, headers }, (answer) => {
        const parts: Buffer[] = []
        answer.on('data', (part: Buffer) => parts.push(part))
        answer.once('end', () => resolve({ status: answer.statusCode ?? 0, text: Buffer.concat(parts).toString() }))
        answer.once('error', reject)
      })
      asked.once('error', reject)
      asked.end(bytes)
    })
  }
}
