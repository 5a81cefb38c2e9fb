// Lifetimes → places in few buffers: values that are never needed at the same time share memory. WebGPU forbids binding
// one buffer for reading and for writing in one dispatch, even at different offsets. Values that meet that way lie in
// different buffers.
import { random32 } from '@starling-grid/protocol'

export interface LiveRange {
  readonly bytes: number
  /** index of the first pass that uses the value, −1 when it is there before the first */
  readonly first: number
  /** index of the last pass that uses it, Infinity when it is read after the last */
  readonly last: number
}

export interface BufferPlace {
  readonly buffer: number
  readonly byteOffset: number
}

export interface MemoryPlan {
  /** bytes of each buffer */
  readonly buffers: readonly number[]
  /** life → where it lies */
  readonly places: readonly BufferPlace[]
}

export interface PlacementOptions {
  /** life → lives that must not lie in its buffer */
  readonly apart?: readonly ReadonlySet<number>[]
  readonly maxBufferBytes?: number
  /** in all; what cannot lie in so many is not searched for a better place */
  readonly worthBytes?: number
}

/** WebGPU binds storage buffers at multiples of this on every adapter. */
const ALIGNMENT_BYTES = 256

interface PlacedRange extends LiveRange {
  readonly index: number
  readonly byteOffset: number
}

interface OpenBuffer {
  bytes: number
  readonly placed: PlacedRange[]
}

/** A plan that takes at most this many times the least bytes is good enough. */
const GOOD_ENOUGH = 1.005
/**
 * Values to place anew in the search for a better plan: milliseconds for a small model, a tenth of a second for 500
 * values.
 */
const SEARCH_PLACINGS = 2000
const SEARCH_SEED = 1

/** Which values come first; of equal ones the larger. None is best for all models. */
const ORDERS: readonly ((life: LiveRange) => number)[] = [
  ({ bytes }) => -bytes,
  ({ first, last }) => first - last,
  ({ last }) => -last,
  ({ first }) => first,
]

/**
 * Places one value after the other where memory grows least: in the lowest gap that is free for its whole life. Of
 * several orders the best is changed by one value at a time, as long as that helps. Equal lives have equal plans.
 */
export function assignBuffers(lives: readonly LiveRange[], options: PlacementOptions = {}): MemoryPlan {
  const least = peakLiveBytes(lives)
  if (least > (options.worthBytes ?? Infinity)) return placeInOrder(lives, [...lives.keys()], options)
  const goodBytes = GOOD_ENOUGH * least
  let best: { readonly order: readonly number[]; readonly plan: MemoryPlan } = {
    order: [],
    plan: { buffers: [Infinity], places: [] },
  }
  for (const next of orders(lives, () => best.order)) {
    if (bytesOf(best.plan) <= goodBytes) break
    const plan = placeInOrder(lives, next, options)
    if (bytesOf(plan) <= bytesOf(best.plan)) best = { order: next, plan }
  }
  return best.plan
}

/** First each of the orders, then the best so far with one value elsewhere. */
function* orders(lives: readonly LiveRange[], best: () => readonly number[]): Generator<readonly number[]> {
  for (const key of ORDERS)
    yield [...lives.entries()]
      .sort(([, a], [, b]) => difference(key(a), key(b)) || b.bytes - a.bytes)
      .map(([index]) => index)
  const random = random32(SEARCH_SEED)
  for (let moves = Math.floor(SEARCH_PLACINGS / lives.length); moves > 0; moves--) {
    const order = [...best()]
    const moving = order.splice(random() % order.length, 1)
    yield order.toSpliced(random() % lives.length, 0, ...moving)
  }
}

/** Also of two infinite ones. */
function difference(a: number, b: number): number {
  return a === b ? 0 : a - b
}

function bytesOf({ buffers }: MemoryPlan): number {
  return buffers.reduce((sum, bytes) => sum + bytes, 0)
}

function placeInOrder(
  lives: readonly LiveRange[],
  order: readonly number[],
  { apart = [], maxBufferBytes = Infinity }: PlacementOptions,
): MemoryPlan {
  const buffers: OpenBuffer[] = []
  const places = new Array<BufferPlace>(lives.length)
  for (const index of order) {
    const life = lives[index]
    if (life === undefined) throw new Error('internal: an order of other lives')
    const best = bestPlace(buffers, life, { avoid: apart[index], maxBufferBytes })
    const place = best ?? { buffer: buffers.push({ bytes: 0, placed: [] }) - 1, byteOffset: 0 }
    const buffer = buffers[place.buffer]
    buffer?.placed.push({ ...life, index, byteOffset: place.byteOffset })
    if (buffer) buffer.bytes = Math.max(buffer.bytes, place.byteOffset + life.bytes)
    places[index] = place
  }
  return { buffers: buffers.map(({ bytes }) => bytes), places }
}

/** The least memory that any plan for these lives takes: the most that is alive at one time. */
export function peakLiveBytes(lives: readonly LiveRange[]): number {
  const starts = [...new Set(lives.map(({ first }) => first))]
  const aliveAt = (time: number) =>
    lives.reduce((sum, { first, last, bytes }) => (first <= time && time <= last ? sum + bytes : sum), 0)
  return Math.max(0, ...starts.map(aliveAt))
}

function bestPlace(
  buffers: readonly OpenBuffer[],
  life: LiveRange,
  { avoid, maxBufferBytes }: { readonly avoid: ReadonlySet<number> | undefined; readonly maxBufferBytes: number },
): BufferPlace | undefined {
  let best: { readonly place: BufferPlace; readonly growth: number } | undefined
  for (const [index, buffer] of buffers.entries()) {
    if (buffer.placed.some((other) => avoid?.has(other.index))) continue
    const byteOffset = lowestGap(buffer.placed, life)
    const end = byteOffset + life.bytes
    const growth = Math.max(0, end - buffer.bytes)
    if (end <= maxBufferBytes && growth < (best?.growth ?? life.bytes))
      best = { place: { buffer: index, byteOffset }, growth }
  }
  return best?.place
}

function lowestGap(placed: readonly PlacedRange[], life: LiveRange): number {
  const neighbours = placed
    .filter((other) => other.first <= life.last && life.first <= other.last)
    .sort((a, b) => a.byteOffset - b.byteOffset)
  let offset = 0
  for (const other of neighbours) {
    if (offset + life.bytes <= other.byteOffset) return offset
    offset = Math.max(offset, Math.ceil((other.byteOffset + other.bytes) / ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
  }
  return offset
}
