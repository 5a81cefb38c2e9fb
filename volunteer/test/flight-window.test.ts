// The window of a WebRTC link on virtual time: a sender that always has more to send, a line with a queue, and receipts
// that come back. What the window allows is compared with what the line and its queue hold.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GridError } from '@starling-grid/protocol'
import { CHUNK_BYTES } from '../src/collectives/choose-algorithm.ts'
import { FlightWindow, RECEIPT_EVERY_BYTES, receiptIn, Receipts } from '../src/link/flight-window.ts'

const FRAME_BYTES = 60 * 1024
const LEAST_BYTES = 256 * 1024
const LEAST_NEAR_BYTES = 128 * 1024

/**
 * Parts of the time: nothing is sent between the first two, nor after the last; what arrives counts from COUNTED on.
 */
const [REST, WORK, COUNTED, END] = [0.4, 0.45, 0.5, 0.9]

interface TestLine {
  readonly megabits: number
  /** ms there, and as many back */
  readonly latencyMs: number
}

interface Carried {
  readonly window: FlightWindow
  readonly receipts: Receipts
  /** of what the line could carry in the last half, which begins soon after a rest */
  readonly share: number
  /** most bytes that waited before the line at once; with another line later: before that one, in the end */
  readonly deepestQueue: number
  /** bytes that were sent and had not arrived, at most, long after the rest */
  readonly mostUnderWay: number
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

/** Bytes in the latest receipt. */
function said(receipts: Receipts): number {
  return receiptIn(receipts.latest(0).buffer)?.bytes ?? assert.fail('no receipt')
}

interface CarryOptions {
  /** false: frames leave as soon as there are any */
  readonly hasWindow?: boolean
  /** the line from the rest on */
  readonly later?: TestLine
  readonly frameBytes?: number
}

function carry(
  line: TestLine,
  milliseconds: number,
  { hasWindow = true, later = line, frameBytes = FRAME_BYTES }: CarryOptions = {},
): Carried {
  const [window, receipts] = [new FlightWindow(), new Receipts()]
  const [coming, back] = [new Due<number>(), new Due<Uint8Array<ArrayBuffer>>()]
  let [freeAt, deepestQueue, sent, counted, mostUnderWay] = [0, 0, 0, 0, 0]
  for (let now = 0; now < milliseconds; now++) {
    const part = now / milliseconds
    const { megabits, latencyMs } = part < REST ? line : later
    const bytesPerMs = megabits * 125
    const sends = part < REST || (part > WORK && part < END)
    back.each(now, ({ buffer }) => window.arrived(receiptIn(buffer)?.bytes ?? 0, now))
    while (sends && (hasWindow ? window.hasRoom : sent < (now + 1) * 10 * bytesPerMs)) {
      sent += frameBytes
      window.sent(frameBytes, now)
      freeAt = Math.max(freeAt, now) + frameBytes / bytesPerMs
      if (later === line || part > (COUNTED + END) / 2)
        deepestQueue = Math.max(deepestQueue, (freeAt - now) * bytesPerMs)
      coming.add(freeAt + latencyMs, frameBytes)
    }
    if (part > (COUNTED + END) / 2) mostUnderWay = Math.max(mostUnderWay, window.underWay)
    coming.each(now, (bytes) => {
      if (part > COUNTED && part < END) counted += bytes
      if (receipts.after(bytes)) back.add(now + latencyMs, receipts.latest(0))
    })
  }
  const share = counted / (later.megabits * 125 * (END - COUNTED) * milliseconds)
  return { window, receipts, share, deepestQueue, mostUnderWay }
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
    assert.ok(carry(line, 1000, { hasWindow: false }).deepestQueue > product(line), 'without a window it does')
  })

for (const line of LINES)
  test(`the largest frames of an exchange fill a line of ${line.megabits} Mbit/s and ${line.latencyMs} ms`, () => {
    const { share, deepestQueue } = carry(line, 10_000, { frameBytes: CHUNK_BYTES })
    assert.ok(share > 0.95, `${share} of the line`)
    assert.ok(deepestQueue <= product(line), `${deepestQueue} bytes waited in a queue of ${product(line)}`)
  })

/** Bytes on the line for each byte of a frame: packets of 1156 carry headers of SCTP, DTLS, UDP and IPv4. */
const OVERHEAD = 1.08

for (const line of [
  { megabits: 20, latencyMs: 50 },
  { megabits: 50, latencyMs: 20 },
])
  test(`the frame across the border of the window fits into a line of ${line.megabits} Mbit/s and its queue`, () => {
    const { share, mostUnderWay } = carry(line, 10_000)
    assert.ok(share > 0.95, `${share} of the line`)
    assert.ok(mostUnderWay * OVERHEAD <= 2 * product(line), `${mostUnderWay} bytes of ${2 * product(line)}`)
  })

test('a line that became slower is not sent too much, and a faster one is full', () => {
  const [fast, slow]: readonly TestLine[] = [
    { megabits: 100, latencyMs: 50 },
    { megabits: 40, latencyMs: 50 },
  ]
  assert.ok(fast && slow)
  const { share, deepestQueue } = carry(fast, 20_000, { later: slow })
  assert.ok(share > 0.95, `${share} of the slow line`)
  assert.ok(deepestQueue <= product(slow), `${deepestQueue} bytes waited in a queue of ${product(slow)}`)
  assert.ok(carry(slow, 20_000, { later: fast }).share > 0.95)
})

test('an owner that sends little, and seldom, keeps what it learned of the line', () => {
  const { window, receipts } = carry({ megabits: 100, latencyMs: 50 }, 10_000)
  let now = 10_000
  for (let step = 0; step < 20; step++, now += 1000) {
    for (let frame = 0; frame < 5; frame++) window.sent(FRAME_BYTES, now)
    for (let frame = 0; frame < 5; frame++)
      if (receipts.after(FRAME_BYTES)) window.arrived(said(receipts), now + 110 + 5 * frame)
  }
  let room = 0
  for (; window.hasRoom; room += FRAME_BYTES) window.sent(FRAME_BYTES, now)
  assert.ok(room > 2 * LEAST_BYTES, `${room} bytes`)
})

test('in a network of its own a link has at most two frames and the one across the border under way', () => {
  const window = new FlightWindow()
  const fill = (now: number): number => {
    while (window.hasRoom) window.sent(FRAME_BYTES, now)
    return window.underWay
  }
  assert.ok(fill(0) < LEAST_NEAR_BYTES + FRAME_BYTES, 'before anything is known')
  let arrived = 0
  for (let now = 1; now < 100; now++) {
    window.arrived((arrived += FRAME_BYTES), now)
    assert.ok(fill(now) < LEAST_NEAR_BYTES + FRAME_BYTES, `${window.underWay} bytes`)
  }
})

test('a receipt comes before the smallest window is full, and its count goes on past 32 bits', () => {
  assert.ok(RECEIPT_EVERY_BYTES < LEAST_NEAR_BYTES)
  const receipts = new Receipts()
  const window = new FlightWindow()
  assert.equal(receipts.after(RECEIPT_EVERY_BYTES - 1), false)
  assert.equal(receipts.after(1), true)
  window.sent(RECEIPT_EVERY_BYTES, 0)
  for (let gib = 0; gib < 5; gib++) {
    receipts.after(2 ** 30)
    window.sent(2 ** 30, gib)
    window.arrived(said(receipts), gib)
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
