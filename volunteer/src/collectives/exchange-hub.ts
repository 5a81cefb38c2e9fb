// All operations of one rank, in all its groups, over one set of links. Gives each frame to its operation, and keeps
// frames that come before their operation began. Ends an operation when a rank is lost, its time is up or its signal
// aborts. Links count the ranks of the whole mesh; an operation counts those of its group.
import { type ErrorCode, type Frame, GridError, packFrame, type Clock } from '@starling-grid/protocol'
import { RankFailure } from '../reduce/rank-failure.ts'
import type { CollectiveExchange, PackFrame } from './exchange.ts'
import type { Mesh } from './mesh.ts'
import { type Line, Pace } from './pace.ts'
import { type RankLinkTimes, RankLinks } from './rank-links.ts'
import { keyOf, lineOf, refusalText, refusalOf, ticketOf, type Ticket, wordFrame } from './ticket.ts'

/**
 * Bytes that one rank may have waiting here for operations that have not begun: several groups with full pace
 * (pace.ts).
 */
const MAX_WAITING_BYTES = 32 * 1024 * 1024
/** what keeping one frame costs besides its payload */
const FRAME_COST_BYTES = 256
/** of half a time-out: timers may come a little early */
const TIMER_SLACK = 0.05

export interface Operation {
  readonly ticket: Ticket
  /** for messages: "allReduce 7" */
  readonly name: string
  readonly exchange: CollectiveExchange
  /** group rank → mesh rank */
  readonly ranks: readonly number[]
  /** without any progress */
  readonly timeoutMs: number
  readonly signal?: AbortSignal | undefined
}

interface RunningOperation extends Operation {
  readonly end: (error?: unknown) => void
  /** when its last frame came or left */
  movedAt: number
}

/** What is known of an operation here: it was announced, frames came, or it runs. */
interface Slot {
  readonly early: { readonly from: number; readonly frame: Frame }[]
  running: RunningOperation | undefined
}

export class ExchangeHub {
  readonly links: RankLinks
  readonly clock: Clock
  readonly #pace = new Pace()
  readonly #slots = new Map<string, Slot>()
  readonly #next = new Map<Line, number>()
  /** words about operations, ahead of all numbers */
  readonly #words = new Map<number, Uint8Array<ArrayBuffer>[]>()
  readonly #waitingBytes = new Map<number, number>()
  #stopped = false

  constructor(mesh: Mesh, times: RankLinkTimes) {
    this.clock = times.clock
    const events = {
      nextFrame: (rank: number, pack: PackFrame) => this.#nextFrame(rank, pack),
      onFrame: (rank: number, frame: Frame) => this.#onFrame(rank, frame),
      onLost: (rank: number) => this.#onLost(rank),
    }
    this.links = new RankLinks(mesh, events, times)
  }

  /** Ends what runs, lets what was accepted leave, closes the links. */
  async stop(): Promise<void> {
    this.#stopped = true
    for (const { running } of [...this.#slots.values()])
      if (running !== undefined) this.#giveUp(running, closed(running.name), 'link-lost', 'left')
    await this.links.stop()
  }

  /** The next place in a line. Frames for it are kept from here on. */
  take(line: Omit<Ticket, 'sequence'>): Ticket {
    const sequence = this.#next.get(lineOf(line)) ?? 0
    this.#next.set(lineOf(line), sequence + 1)
    const ticket = { ...line, sequence }
    this.#slot(ticket)
    return ticket
  }

  /** A place that will not be used. */
  giveBack(ticket: Ticket): void {
    const slot = this.#slots.get(keyOf(ticket))
    if (slot?.running !== undefined) return
    for (const { from, frame } of slot?.early ?? []) this.#account(from, -costOf(frame))
    this.#slots.delete(keyOf(ticket))
  }

  /** @throws RankFailure, GridError 'cancelled' when the group was closed, or the signal's reason */
  run(operation: Operation): Promise<void> {
    if (this.#stopped) return Promise.reject(closed(operation.name))
    return new Promise((resolve, reject) => {
      const { ticket, signal, timeoutMs, exchange } = operation
      const abort = (): void => this.#giveUp(running, signal?.reason, 'message-unexpected', 'cancelled it')
      let cancelTimer = this.clock.timer(timeoutMs / 2, () => look())
      const look = (): void => {
        cancelTimer = this.clock.timer(timeoutMs / 2, look)
        this.#standsStill(running, Math.floor((2 * (this.clock.now() - running.movedAt)) / timeoutMs + TIMER_SLACK))
      }
      const end = (error?: unknown): void => {
        cancelTimer()
        signal?.removeEventListener('abort', abort)
        this.#slots.delete(keyOf(ticket))
        if (error === undefined) resolve()
        else reject(error)
      }
      const running: RunningOperation = { ...operation, end, movedAt: this.clock.now() }
      const slot = this.#slot(ticket)
      slot.running = running
      signal?.addEventListener('abort', abort, { once: true })
      if (signal?.aborted === true) return abort()
      this.#begin(running, slot)
      if (exchange.done) end()
    })
  }

  #begin(running: RunningOperation, slot: Slot): void {
    const { ticket, exchange, ranks } = running
    for (const peer of exchange.peers) {
      const rank = ranks[peer] ?? -1
      const lost = this.links.lost(rank)
      if (lost !== undefined && exchange.needs(peer))
        return this.#fail(running, new RankFailure(peer, lost.code, `was lost: ${lost.message}`))
      this.links.reach(rank)
      if (
        exchange.bytesFrom(peer) > 0 &&
        this.#pace.mustTell(rank, lineOf(ticket), ticket.sequence, exchange.bytesFrom(peer))
      )
        this.#say(rank, wordFrame(ticket, 'heartbeat'))
    }
    for (const { from, frame } of slot.early.splice(0)) {
      this.#account(from, -costOf(frame))
      if (ranks.includes(from) && this.#slots.get(keyOf(ticket)) === slot) this.#give(running, from, frame)
    }
    if (this.#slots.get(keyOf(ticket)) === slot) this.#pumpAll(running)
  }

  #onFrame(from: number, frame: Frame): void {
    if (frame.type === 'heartbeat') return this.#heardBeat(from, frame)
    const ticket = ticketOf(from, frame)
    if (ticket.kind === 'group' && frame.type !== 'refusal') this.#heardOf(from, ticket)
    const slot = this.#slots.get(keyOf(ticket))
    if (slot?.running !== undefined) return this.#give(slot.running, from, frame)
    // of an operation that ended here
    if (slot === undefined && ticket.sequence < (this.#next.get(lineOf(ticket)) ?? 0)) return
    this.#account(from, costOf(frame))
    this.#slot(ticket).early.push({ from, frame })
  }

  /** A heartbeat with a group says which of its operations the sender has begun. */
  #heardBeat(from: number, frame: Frame): void {
    if (frame.generation !== 0) this.#heardOf(from, ticketOf(from, frame))
  }

  /** `from` has begun this operation: what waited for that may go. */
  #heardOf(from: number, ticket: Ticket): void {
    this.#pace.heard(from, lineOf(ticket), ticket.sequence)
    this.links.pump(from)
  }

  #give(running: RunningOperation, from: number, frame: Frame): void {
    const { exchange, ranks } = running
    const peer = ranks.indexOf(from)
    // Not the group's fault: who sent it is dropped.
    if (peer < 0)
      throw new GridError(
        'message-unexpected',
        `expected frames of ranks of the group, got one of rank ${from} of the mesh`,
      )
    try {
      if (frame.type === 'refusal') throw refusalOf(frame, peer, ranks.length)
      exchange.accept(peer, frame)
      running.movedAt = this.clock.now()
    } catch (error) {
      return this.#fail(running, error)
    }
    this.#pumpAll(running)
    if (exchange.done) running.end()
  }

  #nextFrame(rank: number, pack: PackFrame): Uint8Array<ArrayBuffer> | undefined {
    const word = this.#words.get(rank)?.shift()
    if (word !== undefined) return word
    for (const { running } of this.#slots.values()) {
      const frame = running === undefined ? undefined : this.#nextOf(running, rank, pack)
      if (frame !== undefined) return frame
    }
    return undefined
  }

  #nextOf(running: RunningOperation, rank: number, pack: PackFrame): Uint8Array<ArrayBuffer> | undefined {
    const { exchange, ranks, ticket } = running
    const peer = ranks.indexOf(rank)
    if (peer < 0 || !this.#pace.mayGo(rank, lineOf(ticket), ticket.sequence, exchange.bytesTo(peer))) return undefined
    try {
      const frame = exchange.nextFrame(peer, pack)
      if (frame === undefined) return undefined
      running.movedAt = this.clock.now()
      this.#pumpAll(running)
      if (exchange.done) running.end()
      return frame
    } catch (error) {
      this.#fail(running, error)
      return undefined
    }
  }

  #pumpAll({ exchange, ranks }: RunningOperation): void {
    for (const peer of exchange.peers) this.links.pump(ranks[peer] ?? -1)
  }

  #onLost(rank: number): void {
    for (const { running } of [...this.#slots.values()]) {
      const peer = running?.ranks.indexOf(rank) ?? -1
      if (running === undefined || peer < 0 || !running.exchange.needs(peer)) continue
      const lost = this.links.lost(rank)
      this.#fail(running, new RankFailure(peer, lost?.code ?? 'link-lost', `was lost: ${lost?.message}`))
    }
  }

  /**
   * Looks at an operation whose last progress is so many halves of its time-out ago. Most who wait do so for one that
   * waits as well. So each says at half time that it has begun; when the time is up, who has not begun is to blame.
   * Half a time-out later, if no rank with better knowledge ended it, the rank that it waits for.
   */
  #standsStill(running: RunningOperation, halves: number): void {
    const { ticket, ranks, exchange, timeoutMs } = running
    if (halves < 1) return
    const waitsFor = [...exchange.waitsFor()]
    const absent = waitsFor.filter((peer) => !this.#pace.hasBegun(ranks[peer] ?? -1, lineOf(ticket), ticket.sequence))
    const [blamed] = halves >= 3 ? [...absent, ...waitsFor] : absent
    if (halves >= 2 && blamed !== undefined)
      return this.#fail(
        running,
        new RankFailure(blamed, 'reduce-timeout', `did not do its part within ${timeoutMs / 1000} s`),
      )
    for (const peer of exchange.peers)
      if (this.links.hasLink(ranks[peer] ?? -1)) this.#say(ranks[peer] ?? -1, wordFrame(ticket, 'heartbeat'))
  }

  /** Ends an operation and tells the others in it, with the rank that is to blame: they would wait in vain. */
  #fail(running: RunningOperation, error: unknown): void {
    // a bug of ours
    if (!(error instanceof RankFailure)) return this.#giveUp(running, error, 'message-unexpected', 'failed')
    running.end(error.in(running.name))
    this.#tellOthers(running, error)
  }

  /** This rank itself is why the operation ends. */
  #giveUp(running: RunningOperation, error: unknown, code: ErrorCode, what: string): void {
    running.end(error)
    this.#tellOthers(running, new RankFailure(running.ranks.indexOf(this.links.rank), code, what))
  }

  #tellOthers({ ranks, ticket }: RunningOperation, failure: RankFailure): void {
    const toTell = ticket.kind === 'group' ? ranks : [ticket.peer]
    for (const rank of toTell)
      if (rank !== this.links.rank && this.links.hasLink(rank))
        this.#say(rank, wordFrame(ticket, 'refusal', { hop: failure.rank, payload: refusalText(failure) }))
  }

  #say(rank: number, word: Frame): void {
    const words = this.#words.get(rank) ?? []
    this.#words.set(rank, words)
    words.push(packFrame(word))
    this.links.pump(rank)
  }

  #slot(ticket: Ticket): Slot {
    const slot = this.#slots.get(keyOf(ticket)) ?? { early: [], running: undefined }
    this.#slots.set(keyOf(ticket), slot)
    return slot
  }

  #account(from: number, bytes: number): void {
    const waiting = (this.#waitingBytes.get(from) ?? 0) + bytes
    this.#waitingBytes.set(from, waiting)
    if (waiting > MAX_WAITING_BYTES)
      throw new GridError(
        'rate-exceeded',
        `expected at most ${MAX_WAITING_BYTES} bytes for operations that this rank did not begin, got more`,
      )
  }
}

function closed(operation: string): GridError {
  return new GridError('cancelled', `${operation}: the group was closed`)
}

function costOf(frame: Frame): number {
  return frame.payload.byteLength + FRAME_COST_BYTES
}
