// Memory of frames that were read, for the next ones. A link over TCP puts each large frame together in memory of its
// own; taking that from the system costs more than filling it. Who has read a frame gives its memory back
// (collectives/let-go.ts); who does not leaves it to the collector.

/** Bytes that wait at most: what a link holds in flight, several times. */
const MOST_BYTES = 4 * 1024 * 1024

/** Lengths that are kept; one exchange has a few. */
const MOST_LENGTHS = 64

/** by length, of those that were taken: no other is of use, and in tabs none */
const waiting = new Map<number, ArrayBuffer[]>()
let bytesWaiting = 0

/** Memory whose content is of no meaning. */
export function takeMemory(bytes: number): Uint8Array<ArrayBuffer> {
  const alike = waiting.get(bytes)
  if (alike === undefined && waiting.size < MOST_LENGTHS) waiting.set(bytes, [])
  const buffer = alike?.pop()
  if (buffer === undefined) return new Uint8Array(bytes)
  bytesWaiting -= bytes
  return new Uint8Array(buffer)
}

/** No reader and no writer has `buffer` any more. False: there is no use for it. */
export function giveBack(buffer: ArrayBuffer): boolean {
  const { byteLength } = buffer
  const alike = waiting.get(byteLength)
  if (alike === undefined || byteLength === 0 || bytesWaiting + byteLength > MOST_BYTES) return false
  alike.push(buffer)
  bytesWaiting += byteLength
  return true
}
