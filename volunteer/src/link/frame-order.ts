// The order of frames on a link of several connections. Each frame has a number; who gets them hands them on in that
// order, as MPTCP does with its data sequence numbers (RFC 8684). Pure.
import { GridError } from '@starling-grid/protocol'

/** Bytes of the number before a frame: little-endian u32, counted from 0 modulo 2³². */
export const NUMBER_BYTES = 4
/** What frames may cost that wait for an earlier one: two seconds of a line of 20 Mbit/s. */
export const MOST_AHEAD_BYTES = 4 * 1024 * 1024
/** A shorter frame costs as much: what is kept of each counts, too. */
const LEAST_COST_BYTES = 1024
const NUMBERS = 2 ** 32

/** Of the bound on what waits: both ends count alike. */
export function costOf(frame: Uint8Array): number {
  return Math.max(frame.byteLength, LEAST_COST_BYTES)
}

/** At the sending end. */
export class FrameNumbers {
  #next = 0
  /** one is enough: its bytes were copied before the next frame is numbered */
  #memory = new Uint8Array(NUMBER_BYTES)

  /** The frame behind its number, in memory that the next call uses again. */
  messageOf(frame: Uint8Array): Uint8Array<ArrayBuffer> {
    const bytes = NUMBER_BYTES + frame.byteLength
    if (this.#memory.byteLength < bytes) this.#memory = new Uint8Array(bytes)
    new DataView(this.#memory.buffer).setUint32(0, this.#next, true)
    this.#memory.set(frame, NUMBER_BYTES)
    this.#next = (this.#next + 1) % NUMBERS
    return this.#memory.subarray(0, bytes)
  }
}

/** From `number` on to `later`, both modulo 2³². */
export function stepsTo(later: number, number: number): number {
  return (later - number + NUMBERS) % NUMBERS
}

/** At the receiving end. */
export class FrameOrder {
  #next = 0
  readonly #ahead = new Map<number, Uint8Array>()
  #aheadBytes = 0

  /** The number of the frame that comes next, modulo 2³². */
  get next(): number {
    return this.#next
  }

  /** The frames whose turn it is now. @throws GridError 'message-malformed', 'message-too-large' */
  arrived(message: Uint8Array): readonly Uint8Array[] {
    if (message.byteLength <= NUMBER_BYTES)
      throw new GridError('message-malformed', `expected a number and a frame, got ${message.byteLength} bytes`)
    const number = new DataView(message.buffer, message.byteOffset).getUint32(0, true)
    const frame = message.subarray(NUMBER_BYTES)
    if (number !== this.#next) return this.#wait(number, frame)
    return [frame, ...this.#after()]
  }

  #wait(number: number, frame: Uint8Array): readonly Uint8Array[] {
    const isFar = stepsTo(number, this.#next) > MOST_AHEAD_BYTES / LEAST_COST_BYTES
    if (isFar || this.#ahead.has(number))
      throw new GridError(
        'message-malformed',
        `expected a frame soon after number ${this.#next} and each once, got number ${number}; close the link`,
      )
    this.#aheadBytes += costOf(frame)
    if (this.#aheadBytes > MOST_AHEAD_BYTES)
      throw new GridError('message-too-large', `${this.#aheadBytes} bytes came before frame ${this.#next}`)
    this.#ahead.set(number, frame)
    return []
  }

  #after(): Uint8Array[] {
    const frames: Uint8Array[] = []
    for (;;) {
      this.#next = (this.#next + 1) % NUMBERS
      const frame = this.#ahead.get(this.#next)
      if (frame === undefined) return frames
      this.#ahead.delete(this.#next)
      this.#aheadBytes -= costOf(frame)
      frames.push(frame)
    }
  }
}
