// How long a frame takes over one link, from heartbeats that are answered. Independent of links; time is handed in.
import type { Frame } from '@starling-grid/protocol'

/** Heartbeats of which the fastest counts: the others waited behind gradients, or for a thread that computed. */
const REMEMBERED = 20
/** A heartbeat that asks for an answer, and the answer, by their hop. */
const ASKS = 0
const ANSWERS = 1

export class LinkLatency {
  #number = 0
  #askedAt: number | undefined
  readonly #roundTrips: number[] = []

  /** ms one way; undefined: no heartbeat was answered yet. */
  get ms(): number | undefined {
    return this.#roundTrips.length === 0 ? undefined : Math.min(...this.#roundTrips) / 2
  }

  /** The heartbeat to send now. One that was not answered before the next is forgotten. */
  beat(now: number): Frame {
    this.#number = (this.#number + 1) >>> 0
    this.#askedAt = now
    return beatOf(this.#number, ASKS)
  }

  /** What to answer, if it asks. An answer to another heartbeat than the last says nothing. */
  heard({ step, hop }: Frame, now: number): Frame | undefined {
    if (hop === ASKS) return beatOf(step, ANSWERS)
    if (hop !== ANSWERS || step !== this.#number || this.#askedAt === undefined) return undefined
    this.#roundTrips.push(now - this.#askedAt)
    if (this.#roundTrips.length > REMEMBERED) this.#roundTrips.shift()
    this.#askedAt = undefined
    return undefined
  }
}

function beatOf(step: number, hop: number): Frame {
  return { type: 'heartbeat', generation: 0, step, bucket: 0, hop, offset: 0, payload: new Uint8Array(0) }
}
