// The window of a WebRTC link on virtual time: a sender that always has more to send, a line with a queue, and receipts
// that come back. What the window allows is compared with what the line and its queue hold.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GridError } from '@starling-grid/protocol'
import { FlightWindow, RECEIPT_EVERY_BYTES, receiptIn, Receipts } from '../src/link/flight-window.ts'

const FRAME_BYTES = 60 * 1024
const LEAST_BYTES = 256 * 1024

interface TestLine {
  readonly megabits: number
  /** ms there, and as many back */
  readonly latencyMs: number
}

interface Carried {
  /** of what the line could carry in the last half */
  readonly share: number
  /** most bytes that waited before the line at once */
  readonly deepestQueue: number
}

/** Bytes of a line and its way there and back; the queue of a router holds as many. */
function product({ megabits, latencyMs }: TestLine): number {
  return megabits * 125 * 2 * latencyMs
}

/** In the order of their time: `take` is called for those that are due. */
class Due<T> {
  readonly #items: { readonly at: number; readonly item: T }[] = []

  add(at: number, item: T): void {
    this.#items.push({ at, item })
  }

  each(now: number, take: (item: T) => void): void {
    for (let next = this.#items[0]; next !== undefined && next.at <= now; next = this.#items[0]) {
      this.#items.shift()
      take(next.item)
    }
  }
}

/** `hasWindow` false: frames leave as soon as there are any. */
function carry({ megabits, latencyMs }: TestLine, milliseconds: number, hasWindow = true): Carried {
  const [window, receipts] = [new FlightWindow(), new Receipts()]
  const [coming, back] = [new Due<number>(), new Due<Uint8Array<ArrayBuffer>>()]
  const bytesPerMs = megabits * 125
  let [freeAt, deepestQueue, sent, late] = [0, 0, 0, 0]
  for (let now = 0; now < milliseconds; now++) {
    back.each(now, ({ buffer }) => window.arrived(receiptIn(buffer) ?? 0, now))
    while ((window.hasRoom || !hasWindow) && sent < (now + 1) * 10 * bytesPerMs) {
      sent += FRAME_BYTES
      window.sent(FRAME_BYTES, now)
      freeAt = Math.max(freeAt, now) + FRAME_BYTES / bytesPerMs
      deepestQueue = Math.max(deepestQueue, (freeAt - now) * bytesPerMs)
      coming.add(freeAt + latencyMs, FRAME_BYTES)
    }
    coming.each(now, (bytes) => {
      if (now >= milliseconds / 2) late += bytes
      const receipt = receipts.after(bytes)
      if (receipt !== undefined) back.add(now + latencyMs, receipt)
    })
  }
  return { share: late / (bytesPerMs * (milliseconds / 2)), deepestQueue }
}

/** Those that hold more than the smallest window, and twice that with their queue. */
const LINES: readonly TestLine[] = [
  { megabits: 20, latencyMs: 100 },
  { megabits: 100, latencyMs: 20 },
  { megabits: 100, latencyMs: 50 },
  { megabits: 100, latencyMs: 100 },
  { megabits: 200, latencyMs: 50 },
]

for (const line of LINES)
  test(`a line of ${line.megabits} Mbit/s and ${line.latencyMs} ms is full, and its queue never overflows`, () => {
    const { share, deepestQueue } = carry(line, 10_000)
    assert.ok(share > 0.95, `${share} of the line`)
    assert.ok(deepestQueue <= product(line), `${deepestQueue} bytes waited in a queue of ${product(line)}`)
    assert.ok(carry(line, 1000, false).deepestQueue > product(line), 'without a window it does')
  })

/** Round trips of 100 ms in which all that is under way arrives, `bytes` of each or as much as there is room for. */
class RoundTrips {
  readonly window = new FlightWindow()
  #now = 0
  #count = 0

  make(times: number, bytesPerMs: number, bytes = Number.POSITIVE_INFINITY): void {
    for (let i = 0; i < times; i++) {
      for (let sent = 0; sent < bytes && this.window.hasRoom; sent += FRAME_BYTES)
        this.window.sent(FRAME_BYTES, this.#now)
      const { underWay } = this.window
      this.#now += Math.max(100, underWay / bytesPerMs)
      this.#count += underWay
      this.window.arrived(this.#count, this.#now)
    }
  }

  rest(ms: number): void {
    this.#now += ms
  }

  get room(): number {
    let bytes = 0
    for (; this.window.hasRoom; bytes += FRAME_BYTES) this.window.sent(FRAME_BYTES, this.#now)
    this.#count += bytes
    this.#now += 100
    this.window.arrived(this.#count, this.#now)
    return bytes
  }
}

test('a line that became slower gets a smaller window, and a faster one a larger', () => {
  const trips = new RoundTrips()
  trips.make(30, 12_500)
  const fast = trips.room
  assert.ok(fast > 1.25e6 && fast < 2.5e6, `${fast} bytes at 12.5 MB/s`)
  trips.make(30, 5000)
  const slow = trips.room
  assert.ok(slow > 500_000 && slow < 1.25e6, `${slow} bytes at 5 MB/s`)
  trips.make(30, 12_500)
  assert.ok(trips.room > 1.25e6)
})

test('an owner that sends little, and seldom, keeps the window that the line has', () => {
  const trips = new RoundTrips()
  trips.make(30, 12_500)
  for (let step = 0; step < 100; step++) {
    trips.make(1, 12_500, 300_000)
    trips.rest(1000)
  }
  assert.ok(trips.room > 1.25e6)
})

test('in a network of its own a link has no window', () => {
  const window = new FlightWindow()
  while (window.hasRoom) window.sent(FRAME_BYTES, 0)
  assert.ok(window.underWay < 2 * LEAST_BYTES)
  window.arrived(FRAME_BYTES, 1)
  for (let i = 0; i < 1000; i++) window.sent(FRAME_BYTES, 1)
  assert.ok(window.hasRoom)
})

test('a receipt comes before the smallest window is full, and its count goes on past 32 bits', () => {
  assert.ok(RECEIPT_EVERY_BYTES < LEAST_BYTES)
  const receipts = new Receipts()
  const window = new FlightWindow()
  assert.equal(receipts.after(RECEIPT_EVERY_BYTES - 1), undefined)
  let last = receipts.after(1)
  window.sent(RECEIPT_EVERY_BYTES, 0)
  for (let gib = 0; gib < 5; gib++) {
    last = receipts.after(2 ** 30)
    window.sent(2 ** 30, gib)
    window.arrived(receiptIn(last?.buffer ?? new ArrayBuffer(0)) ?? 0, gib)
    assert.equal(window.underWay, 0)
  }
})

test('a receipt of more than was sent is refused', () => {
  const window = new FlightWindow()
  window.sent(1000, 0)
  assert.throws(
    () => window.arrived(1001, 1),
    (error) => error instanceof GridError && error.code === 'message-malformed' && /1000.*1001/.test(error.message),
  )
  assert.equal(receiptIn(new ArrayBuffer(36)), undefined, 'a frame is no receipt')
})
