// Bounds on connections of strangers: their number for each address and the least speed of sending and reading. Also
// the bytes of all bodies on their way. A body or an answer may take as long as it needs while bytes move: nothing here
// bounds the whole time of a request.
import type { Server } from 'node:http'
import { BlockList, isIPv6, type Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { CoordinatorClock } from '../clock.ts'
import { subscriberOf } from './addresses.ts'
import { KeyedCounts } from './counts.ts'
import { announcesBody, HttpRefusal } from './errors.ts'

export interface ConnectionLimits {
  /** Open connections of one address. A tab has up to ten: a hundred volunteers behind one router. */
  readonly perAddress: number
  /** Bytes a second that a caller reads at least of what waits for it, and sends at least of its body: a modem line. */
  readonly slowest: number
  /** ms over which the floor is measured */
  readonly graceMs: number
  /** Bytes of all bodies on their way: one of the largest versions, or many gradients. */
  readonly bodyBytes: number
}

export const DEFAULT_CONNECTION_LIMITS: ConnectionLimits = {
  perAddress: 1024,
  slowest: 16 * 1024,
  graceMs: 20_000,
  bodyBytes: 1024 * 1024 * 1024,
}

/** bytes that a body counts for when it announces no length: the largest JSON */
const UNANNOUNCED_BYTES = 512 * 1024
const RETRY_SECONDS = 2

/** How far a caller was when the present window began. */
interface CallerProgress {
  at: number
  bytes: number
}

/** Callers whose bytes have to move, by their connections. */
type Moving = Map<Socket, CallerProgress>

export interface ConnectionGuard {
  readonly clock: CoordinatorClock
  /** addresses whose connections carry many callers */
  readonly proxies: readonly string[]
  readonly limits: ConnectionLimits
}

export function guardConnections(app: FastifyInstance, { clock, proxies, limits }: ConnectionGuard): void {
  const trusted = blockList(proxies)
  const open = new KeyedCounts()
  const readers: Moving = new Map()
  const senders: Moving = new Map()
  app.server.on('connection', (socket: Socket) => {
    const { remoteAddress: ip = '' } = socket
    const address = subscriberOf(ip)
    if (open.of(address) >= limits.perAddress && !trusted.check(ip, isIPv6(ip) ? 'ipv6' : 'ipv4'))
      return void socket.destroy()
    open.add(address)
    readers.set(socket, { at: clock.awake(), bytes: 0 })
    socket.once('close', () => {
      readers.delete(socket)
      senders.delete(socket)
      open.remove(address)
    })
  })
  // WebSockets have bounds of their own.
  ;(app.server as Server).prependListener('upgrade', (_, socket) => readers.delete(socket as Socket))
  const guard = { limits, clock }
  const stopLooking = clock.every(limits.graceMs / 4, () => {
    cutSlow(readers, guard, (socket) => ({
      bytes: socket.bytesWritten - socket.writableLength,
      isOwed: socket.writableLength > 0,
    }))
    cutSlow(senders, guard, (socket) => ({ bytes: socket.bytesRead, isOwed: true }))
  })
  app.addHook('onClose', async () => stopLooking())
  boundBodies(app, senders, guard)
}

/** Cuts off a caller that owes bytes, or the reading of them, and stayed below the floor for a whole window. */
function cutSlow(
  callers: Moving,
  { limits: { slowest, graceMs }, clock }: Omit<ConnectionGuard, 'proxies'>,
  look: (socket: Socket) => { readonly bytes: number; readonly isOwed: boolean },
): void {
  const at = clock.awake() // stands still while this process does: its own stall is no fault of a caller
  for (const [socket, before] of callers) {
    const { bytes, isOwed } = look(socket)
    const took = at - before.at
    if (isOwed && took < graceMs) continue
    if (isOwed && bytes - before.bytes < (slowest * took) / 1000) socket.destroy()
    Object.assign(before, { at, bytes })
  }
}

/**
 * The bytes of a body count from its headers to the end of its answer; they have to move until the last one is here.
 */
function boundBodies(
  app: FastifyInstance,
  senders: Moving,
  { limits: { bodyBytes }, clock }: Omit<ConnectionGuard, 'proxies'>,
): void {
  let onTheirWay = 0
  app.addHook('preParsing', async (request, reply) => {
    if (!announcesBody(request)) return
    const bytes = Number(request.headers['content-length'] ?? UNANNOUNCED_BYTES)
    if (onTheirWay > 0 && onTheirWay + bytes > bodyBytes)
      throw new HttpRefusal(
        429,
        'rate-exceeded',
        'expected fewer bytes on their way here, got too many at once; send this again in a moment',
        RETRY_SECONDS,
      )
    onTheirWay += bytes
    const { socket } = request.raw
    senders.set(socket, { at: clock.awake(), bytes: socket.bytesRead })
    request.raw.once('end', () => senders.delete(socket))
    reply.raw.once('close', () => {
      senders.delete(socket)
      onTheirWay -= bytes
    })
  })
}

/** "10.0.0.0/8" or "192.0.2.1" */
function blockList(proxies: readonly string[]): BlockList {
  const list = new BlockList()
  for (const proxy of proxies) {
    const [address = '', bits] = proxy.split('/')
    const family = isIPv6(address) ? 'ipv6' : 'ipv4'
    if (bits === undefined) list.addAddress(address, family)
    else list.addSubnet(address, Number(bits), family)
  }
  return list
}
