// One direction of a line to the Internet, as a formula: a rate, a queue before it, the way, and loss. Pure.

export interface HomeLine {
  /** Mbit/s, headers of IP and UDP included */
  readonly megabits: number
  /** ms from one end to the other */
  readonly latencyMs: number
  /** share of packets that get lost on the way, one by one */
  readonly loss: number
}

/** Bytes of the headers of IPv4 and UDP. */
export const HEADER_BYTES = 28
/** The queue holds what arrives in one round trip, as that of a router does, and at least a burst of this many ms. */
const SHORTEST_QUEUE_MS = 20

export class LineDirection {
  readonly #line: HomeLine
  readonly #random: () => number
  readonly #queueMs: number
  /** when the last packet that was taken has left the queue, ms */
  #freeAt = 0
  /** packets that the queue had no room for, and that the way lost */
  readonly lost = { full: 0, way: 0 }
  passed = 0

  /** `random`: from 0 to 1 */
  constructor(line: HomeLine, random: () => number) {
    this.#line = line
    this.#random = random
    this.#queueMs = Math.max(SHORTEST_QUEUE_MS, 2 * line.latencyMs)
  }

  /** What the line carries in so many ms, headers included. */
  bytesIn(ms: number): number {
    return (this.#line.megabits * 1000 * ms) / 8
  }

  /** When a packet that comes now, with so many bytes of payload, is at the other end; undefined: it is lost. */
  arrival(now: number, bytes: number): number | undefined {
    const { megabits, latencyMs, loss } = this.#line
    const begins = Math.max(now, this.#freeAt)
    if (begins - now > this.#queueMs) return this.#lose('full')
    this.#freeAt = begins + ((bytes + HEADER_BYTES) * 8) / (megabits * 1000)
    if (this.#random() < loss) return this.#lose('way')
    this.passed++
    return this.#freeAt + latencyMs
  }

  #lose(where: 'full' | 'way'): undefined {
    this.lost[where]++
    return undefined
  }
}
