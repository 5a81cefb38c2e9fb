// Lifetimes → places in few buffers: values that are never needed at the same time share memory.
// WebGPU forbids binding one buffer for reading and for writing in one dispatch, even at different places in it, so values
// that meet that way lie in different buffers.

export interface Life {
  readonly bytes: number
  /** index of the first pass that uses the value, −1 when it is there before the first */
  readonly first: number
  /** index of the last pass that uses it, Infinity when it is read after the last */
  readonly last: number
}

export interface Place {
  readonly buffer: number
  readonly byteOffset: number
}

export interface MemoryPlan {
  /** bytes of each buffer */
  readonly buffers: readonly number[]
  /** life → where it lies */
  readonly places: readonly Place[]
}

export interface MemoryOptions {
  /** life → lives that must not lie in its buffer */
  readonly apart?: readonly ReadonlySet<number>[]
  readonly maxBufferBytes?: number
}

/** WebGPU binds storage buffers at multiples of this on every adapter. */
const ALIGNMENT_BYTES = 256

interface Placed extends Life {
  readonly index: number
  readonly byteOffset: number
}

interface OpenBuffer {
  bytes: number
  readonly placed: Placed[]
}

/** Largest first, each where memory grows least: into the lowest gap that is free for its whole life. */
export function assignBuffers(lives: readonly Life[], { apart = [], maxBufferBytes = Infinity }: MemoryOptions = {}): MemoryPlan {
  const buffers: OpenBuffer[] = []
  const places = new Array<Place>(lives.length)
  const largestFirst = [...lives.entries()].sort(([, a], [, b]) => b.bytes - a.bytes)
  for (const [index, life] of largestFirst) {
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
export function leastBytes(lives: readonly Life[]): number {
  const starts = [...new Set(lives.map(({ first }) => first))]
  const aliveAt = (time: number) => lives.reduce((sum, { first, last, bytes }) => (first <= time && time <= last ? sum + bytes : sum), 0)
  return Math.max(0, ...starts.map(aliveAt))
}

function bestPlace(
  buffers: readonly OpenBuffer[], life: Life, { avoid, maxBufferBytes }: { readonly avoid: ReadonlySet<number> | undefined; readonly maxBufferBytes: number },
): Place | undefined {
  let best: { readonly place: Place; readonly growth: number } | undefined
  for (const [index, buffer] of buffers.entries()) {
    if (buffer.placed.some(other => avoid?.has(other.index))) continue
    const byteOffset = lowestGap(buffer.placed, life)
    const end = byteOffset + life.bytes
    const growth = Math.max(0, end - buffer.bytes)
    if (end <= maxBufferBytes && growth < (best?.growth ?? life.bytes)) best = { place: { buffer: index, byteOffset }, growth }
  }
  return best?.place
}

function lowestGap(placed: readonly Placed[], life: Life): number {
  const neighbours = placed.filter(other => other.first <= life.last && life.first <= other.last).sort((a, b) => a.byteOffset - b.byteOffset)
  let offset = 0
  for (const other of neighbours) {
    if (offset + life.bytes <= other.byteOffset) return offset
    offset = Math.max(offset, Math.ceil((other.byteOffset + other.bytes) / ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
  }
  return offset
}
