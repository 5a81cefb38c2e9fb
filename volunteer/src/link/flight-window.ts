// How many bytes of a WebRTC link may be under way: as many as keep the line full, and few enough that no queue on the
// way overflows. SCTP by itself sends until packets are lost. Chromium takes minutes to recover from many lost at once
// (decision 0039). The receiver counts what came; the sender compares how long that took with the shortest time so far.
// Pure: times are given.
import { GridError } from '@starling-grid/protocol'

/**
 * Bytes that come before the receiver says how many there are. Less than the smallest window: no sender waits for ever.
 */
export const RECEIPT_EVERY_BYTES = 32 * 1024
/** Bytes of a receipt: fewer than any frame has. */
export const RECEIPT_BYTES = 8

/** Four frames of the ring: SCTP forgets what a line carries when it has nothing to send between them. */
const LEAST_BYTES = 256 * 1024
/**
 * Of the first window, of one in a network of its own, and of each of several connections: two frames and the one
 * across the border. A busy reader's socket overflows when more come at once, and both SCTPs then wait for their
 * timers, longer each time (decision 0039).
 */
const LEAST_NEAR_BYTES = 128 * 1024
/** A line of 200 Mbit/s over 80 ms each way. */
const MOST_BYTES = 4 * 1024 * 1024
/**
 * Kept free for the frame that crosses the border of the window and leaves whole: all of it up to 80 KiB. All of the
 * largest would hold a window of three where it is, on lines that carry six; 60 KiB let a fourth onto lines of three.
 */
const MOST_CROSSING_BYTES = 80 * 1024
/** Times what the line carries in the shortest way: half of it waits in queues. Also the growth of a round trip. */
const GAIN = 1.5
/** Round trips of which the second best rate counts: lines change, and one is seldom as good as the next. */
const ROUNDS = 10
/** A way there and back that is shorter (ms) is a network of its own, perhaps with busy machines. */
const NEAR_MS = 15
/** ms for which the shortest way is remembered at least: lines change */
const REMEMBERED_MS = 30_000
/** Receipts of which the time of a frame is the mean, as of TCP's round trip (RFC 6298). */
const SMOOTHED = 8
const COUNTER = 2 ** 32

/** What the receiver says, both modulo 2³². */
export interface Receipt {
  /** bytes of this connection that came */
  readonly bytes: number
  /** the number of the frame that its owner gets next (frame-order.ts) */
  readonly next: number
}

interface Mark {
  /** bytes sent with this frame and those before */
  readonly total: number
  readonly at: number
  /** bytes that had arrived then */
  readonly arrived: number
  /** the whole window was full after it */
  readonly isLast: boolean
}

export class FlightWindow {
  /** the link has other connections: together they begin with no more than one */
  isShared = false
  #bytes = LEAST_NEAR_BYTES
  /** of them at present: all at once after a rest would overflow the queue that they fill by and by */
  #allowed = LEAST_NEAR_BYTES
  #sent = 0
  /** bytes of the newest */
  #frameBytes = 0
  /** that frames take there and their receipts back, ms; of those of late */
  #frameMs = 0
  #arrived = 0
  readonly #marks: Mark[] = []
  #shortest = { now: Number.POSITIVE_INFINITY, before: Number.POSITIVE_INFINITY, since: 0 }
  /** bytes/ms, the best of each of the last round trips */
  readonly #rates: number[] = []
  #round = { at: 0, best: 0 }

  /** May the next frame leave? */
  get hasRoom(): boolean {
    return this.underWay < Math.min(this.#allowed, this.#bytes)
  }

  /** The other side is in the same network. */
  get #isNear(): boolean {
    return this.#shortestMs < NEAR_MS
  }

  /** Little enough is under way that no receipt need come of it: what is sent now follows a rest. */
  get #isAtRest(): boolean {
    return this.underWay < RECEIPT_EVERY_BYTES
  }

  /** bytes that were sent and have not arrived, as far as this side knows */
  get underWay(): number {
    return this.#sent - this.#arrived
  }

  /** Frames that wait in SCTP, if its packets take `ms` there and back: those under way are not all on the way. */
  framesHeld(ms: number): number {
    return (this.underWay / this.#frameBytes) * (1 - ms / this.#frameMs)
  }

  sent(bytes: number, now: number): void {
    if (this.#isAtRest) this.#allowed = Math.max(this.#leastBytes, this.#bytes / (2 * GAIN))
    this.#sent += bytes
    this.#frameBytes = bytes
    this.#marks.push({ total: this.#sent, at: now, arrived: this.#arrived, isLast: this.underWay >= this.#bytes })
  }

  /** `count`: bytes of frames that came, as the other side counts them. @throws GridError 'message-malformed' */
  arrived(count: number, now: number): void {
    const more = (count - this.#arrived) % COUNTER
    const bytes = more < 0 ? more + COUNTER : more
    if (bytes > this.underWay)
      throw new GridError(
        'message-malformed',
        `expected a receipt of at most ${this.underWay} bytes, got one of ${bytes}; close the link`,
      )
    this.#arrived += bytes
    this.#allowed += bytes
    const known = this.#marks.findIndex(({ total }) => total > this.#arrived)
    const marks = this.#marks.splice(0, known < 0 ? this.#marks.length : known)
    const newest = marks.at(-1)
    if (newest !== undefined) this.#measured(newest, now)
  }

  get #leastBytes(): number {
    return this.#isNear || this.isShared ? LEAST_NEAR_BYTES : LEAST_BYTES
  }

  get #shortestMs(): number {
    return Math.min(this.#shortest.now, this.#shortest.before)
  }

  /** What arrived in the time of one frame's way is what the line carries, if the owner had as much to send. */
  #measured({ at, arrived, isLast }: Mark, now: number): void {
    const ms = now - at
    this.#frameMs += (ms - this.#frameMs) / (this.#frameMs === 0 ? 1 : SMOOTHED)
    this.#remember(ms, now)
    const rate = (this.#arrived - arrived) / Math.max(1, ms)
    if (isLast || rate > Math.max(...this.#rates)) this.#round.best = Math.max(this.#round.best, rate)
    if (this.#round.best === 0 || now - this.#round.at < this.#shortestMs) return
    this.#rates.push(this.#round.best)
    if (this.#rates.length > ROUNDS) this.#rates.shift()
    this.#round = { at: now, best: 0 }
    // The best may be chance: receipts that waited come together.
    const [best = 0, second = best] = this.#rates.toSorted((a, b) => b - a)
    const carried = GAIN * second * this.#shortestMs
    const crossing = Math.min(this.#frameBytes, MOST_CROSSING_BYTES)
    this.#bytes = Math.min(MOST_BYTES, Math.max(this.#leastBytes, carried - crossing))
  }

  #remember(ms: number, now: number): void {
    const { now: present, since } = this.#shortest
    if (now - since > REMEMBERED_MS) this.#shortest = { now: ms, before: present, since: now }
    else this.#shortest.now = Math.min(present, ms)
  }
}

/** What came, at the receiving end. */
export class Receipts {
  #count = 0
  #said = 0

  /** A receipt is due. */
  after(bytes: number): boolean {
    this.#count += bytes
    return this.#count - this.#said >= RECEIPT_EVERY_BYTES
  }

  /** The receipt of all that came so far. */
  latest(next: number): Uint8Array<ArrayBuffer> {
    this.#said = this.#count
    const receipt = new DataView(new ArrayBuffer(RECEIPT_BYTES))
    receipt.setUint32(0, this.#count % COUNTER, true)
    receipt.setUint32(4, next, true)
    return new Uint8Array(receipt.buffer)
  }
}

/** Undefined: a frame. */
export function receiptIn(message: ArrayBuffer): Receipt | undefined {
  if (message.byteLength !== RECEIPT_BYTES) return undefined
  const view = new DataView(message)
  return { bytes: view.getUint32(0, true), next: view.getUint32(4, true) }
}
