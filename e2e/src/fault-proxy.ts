// A TCP proxy before the coordinator that does to volunteers what bad networks and rolling restarts do. Answers are
// lost, uploads crawl, sockets break, and another coordinator stands behind the same address. Independent of steps and
// jobs.
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { pipeline } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'

/** bytes that a slowed connection passes on at a time */
const SLOW_PIECE_BYTES = 8 * 1024
/**
 * Answers of a WebSocket that still arrive before it breaks: the challenge, the welcome and the first order are among
 * them.
 */
const FIRST_MESSAGES = 4

export class FaultProxy {
  readonly #server: Server
  readonly #open = new Set<Connection>()
  readonly #random: () => number
  #target: URL
  #losing = 0
  #slow = { bytesPerSecond: Number.POSITIVE_INFINITY, until: 0 }
  /** faults that hit a connection, by kind */
  readonly hits = { answersLost: 0, socketsBroken: 0, uploadsSlowed: 0 }

  static async start(target: string, random: () => number): Promise<FaultProxy> {
    const proxy = new FaultProxy(new URL(target), random)
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  private constructor(target: URL, random: () => number) {
    this.#target = target
    this.#random = random
    this.#server = createServer({ allowHalfOpen: true }, (client) => this.#accept(client))
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** New connections go to this coordinator; those to the one before stay until they end. */
  pointTo(target: string): void {
    this.#target = new URL(target)
  }

  /**
   * The next `count` requests reach the coordinator, and their answers are lost; so is one of the first answers of a
   * socket.
   */
  loseAnswers(count: number): void {
    this.#losing += count
  }

  /** What volunteers upload in the next `ms` crawls. Their control sockets do not. */
  slowUploads(bytesPerSecond: number, ms: number): void {
    this.#slow = { bytesPerSecond, until: Date.now() + ms }
  }

  async stop(): Promise<void> {
    for (const connection of this.#open) connection.break()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #accept(client: Socket): void {
    const upstream = connect({ host: this.#target.hostname, port: Number(this.#target.port), allowHalfOpen: true })
    const connection = new Connection(client, upstream)
    this.#open.add(connection)
    const survives = 1 + (this.#random() % FIRST_MESSAGES)
    void connection
      .carry({
        up: (source) => this.#slowed(connection, source),
        down: (source) => this.#lossy(connection, source, survives),
      })
      .finally(() => this.#open.delete(connection))
  }

  async *#slowed(connection: Connection, source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of source) {
      connection.sent(chunk)
      if (connection.isSocket || Date.now() > this.#slow.until) yield chunk
      else yield* this.#crawl(chunk)
    }
  }

  async *#crawl(chunk: Buffer): AsyncGenerator<Buffer> {
    this.hits.uploadsSlowed++
    for (let at = 0; at < chunk.length; at += SLOW_PIECE_BYTES) {
      const piece = chunk.subarray(at, at + SLOW_PIECE_BYTES)
      if (Date.now() < this.#slow.until) await delay((1000 * piece.length) / this.#slow.bytesPerSecond)
      yield piece
    }
  }

  async *#lossy(connection: Connection, source: AsyncIterable<Buffer>, survives: number): AsyncGenerator<Buffer> {
    let answers = 0
    for await (const chunk of source) {
      answers++
      const due = this.#losing > 0 && (!connection.isSocket || answers === survives)
      if (!due) {
        yield chunk
        continue
      }
      this.#losing--
      this.hits[connection.isSocket ? 'socketsBroken' : 'answersLost']++
      return connection.break()
    }
  }
}

type StreamShape = (source: AsyncIterable<Buffer>) => AsyncGenerator<Buffer>

class Connection {
  readonly #client: Socket
  readonly #upstream: Socket
  /** a WebSocket, from its first request on */
  isSocket = false
  #begun = false

  constructor(client: Socket, upstream: Socket) {
    this.#client = client
    this.#upstream = upstream
  }

  /** Resolves when both directions ended, however they ended. */
  async carry({ up, down }: { readonly up: StreamShape; readonly down: StreamShape }): Promise<void> {
    await Promise.allSettled([pipeline(this.#client, up, this.#upstream), pipeline(this.#upstream, down, this.#client)])
    this.break()
  }

  sent(chunk: Buffer): void {
    if (this.#begun) return
    this.#begun = true
    this.isSocket = /\r\nupgrade: websocket\r\n/i.test(chunk.toString('latin1'))
  }

  break(): void {
    this.#client.resetAndDestroy()
    this.#upstream.resetAndDestroy()
  }
}
