// UDP between two ends over a line, in this process: no root, no interface of the machine is touched. For each
// connection either end has a face, a socket that the other end takes for it. Who stands behind a face is learned from
// what comes.
import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { networkInterfaces } from 'node:os'
import { HEADER_BYTES, type HomeLine, LineDirection } from './line.ts'

export type Side = 'a' | 'b'

export interface Face {
  readonly address: string
  readonly port: number
}

/** Bytes that a face keeps until this process reads them: its own pauses should cost no packet. */
const SOCKET_BYTES = 4 * 1024 * 1024
/** A timer is late by up to 1 ms, in which a line of 100 Mbit/s delivers ten packets: they come together. */
const TIMER_MS = 1
/**
 * What is late for longer does not come at once, as no line delivers it so: Chromium's sockets hold about 55 packets.
 * Until the path is on time again it delivers twice what the line carries.
 */
const CATCHES_UP = 2
interface Behind {
  port: number
  address: string
}

interface FacedConnection {
  readonly faces: Readonly<Record<Side, Socket>>
  readonly behind: Partial<Record<Side, Behind>>
}

interface UnderWay {
  readonly at: number
  readonly packet: Buffer
  readonly connection: FacedConnection
}

/** All connections share the line. */
export class ShapedPath {
  readonly line: HomeLine
  readonly #connections: FacedConnection[]
  /** towards each side */
  readonly #towards: Readonly<Record<Side, LineDirection>>
  readonly #underWay: Readonly<Record<Side, Queue>> = { a: new Queue(), b: new Queue() }
  #timer: NodeJS.Timeout | undefined
  #wakesAt = Number.POSITIVE_INFINITY
  #deliveredAt = 0
  #closed = false

  /** For so many connections. `back`: the line towards side a, if it is another. */
  static async open(line: HomeLine, connections: number, back = line): Promise<ShapedPath> {
    const opened = await Promise.all(Array.from({ length: connections }, openConnection))
    return new ShapedPath(line, back, opened)
  }

  private constructor(line: HomeLine, back: HomeLine, connections: FacedConnection[]) {
    this.line = line
    this.#connections = connections
    this.#towards = { a: new LineDirection(back, Math.random), b: new LineDirection(line, Math.random) }
    for (const connection of connections)
      for (const side of ['a', 'b'] as const)
        connection.faces[side].on('message', (packet, { port, address }) => {
          connection.behind[other(side)] = { port, address }
          this.#pass(connection, side, packet)
        })
  }

  /** What the other side takes for this one. */
  face(connection: number, side: Side): Face {
    const found = this.#connections[connection]
    if (found === undefined)
      throw new Error(`internal: a path of ${this.#connections.length} connections has no ${connection}`)
    return found.faces[side].address()
  }

  /** Bytes on the way to side b now. */
  get bytesUnderWay(): number {
    return this.#underWay.b.bytes
  }

  /** Connections over which both ends have sent. */
  get connectionsUsed(): number {
    return this.#connections.filter(({ behind }) => behind.a !== undefined && behind.b !== undefined).length
  }

  /** Packets towards both sides. */
  get counts(): Readonly<Record<string, number>> {
    const { a, b } = this.#towards
    return {
      'packets passed': a.passed + b.passed,
      'packets that the queue dropped': a.lost.full + b.lost.full,
      'packets lost on the way': a.lost.way + b.lost.way,
    }
  }

  close(): void {
    this.#closed = true
    for (const { faces } of this.#connections) for (const face of Object.values(faces)) face.close()
  }

  #pass(connection: FacedConnection, to: Side, packet: Buffer): void {
    const at = this.#towards[to].arrival(performance.now(), packet.length)
    if (at === undefined) return
    this.#underWay[to].add({ at, packet, connection })
    this.#wake()
  }

  #wake(): void {
    const at = Math.max(Math.min(this.#underWay.a.nextAt, this.#underWay.b.nextAt), this.#deliveredAt + TIMER_MS)
    if (at >= this.#wakesAt || this.#closed) return
    clearTimeout(this.#timer)
    this.#wakesAt = at
    this.#timer = setTimeout(() => {
      this.#wakesAt = Number.POSITIVE_INFINITY
      this.#deliveredAt = performance.now()
      this.#deliver('a')
      this.#deliver('b')
      this.#wake()
    }, at - performance.now())
  }

  #deliver(to: Side): void {
    if (this.#closed) return
    const now = performance.now()
    const most = this.#towards[to].bytesIn(CATCHES_UP * TIMER_MS)
    let bytes = 0
    for (let due = this.#underWay[to].due(now); due !== undefined; due = this.#underWay[to].due(now)) {
      const { faces, behind } = due.connection
      const target = behind[to]
      if (target !== undefined) faces[other(to)].send(due.packet, target.port, target.address)
      bytes += due.packet.length + HEADER_BYTES
      if (bytes >= most) return
    }
  }
}

/** First in, first out: a line keeps the order. */
class Queue {
  #items: UnderWay[] = []
  #next = 0
  bytes = 0

  add(item: UnderWay): void {
    this.#items.push(item)
    this.bytes += item.packet.length
  }

  get nextAt(): number {
    return this.#items[this.#next]?.at ?? Number.POSITIVE_INFINITY
  }

  due(now: number): UnderWay | undefined {
    if (this.nextAt > now) return undefined
    const item = this.#items[this.#next++]
    this.bytes -= item?.packet.length ?? 0
    if (this.#next * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#next)
      this.#next = 0
    }
    return item
  }
}

function other(side: Side): Side {
  return side === 'a' ? 'b' : 'a'
}

async function openConnection(): Promise<FacedConnection> {
  const [a, b] = await Promise.all([openFace(), openFace()])
  return { faces: { a, b }, behind: {} }
}

async function openFace(): Promise<Socket> {
  const socket = createSocket('udp4')
  socket.bind(0, ownAddress())
  await once(socket, 'listening')
  socket.setRecvBufferSize(SOCKET_BYTES)
  socket.setSendBufferSize(SOCKET_BYTES)
  return socket
}

/** Browsers gather no candidates of the loopback interface, and may send none there. */
function ownAddress(): string {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  return all.find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? '127.0.0.1'
}
