// Who asked for work, in the order in which they asked. Most of a crowd waits for the version that their last rounds
// are in, so these are set apart until it is made: to look at all of them at each push would cost more than the pushes.
import type { MemberId } from '@starling-grid/protocol'

export class WorkQueue {
  /** → how many asked before */
  #ready = new Map<MemberId, number>()
  #parked = new Map<MemberId, number>()
  #parkedFor: object | undefined
  /** who waits no more: the place is kept until the next look, for one that asks again before it */
  readonly #served = new Set<MemberId>()
  #count = 0

  /** Members that wait. */
  get size(): number {
    return this.#ready.size + this.#parked.size - this.#served.size
  }

  /** Who is here already keeps the place. */
  add(id: MemberId): void {
    this.#served.delete(id)
    if (!this.#has(id)) this.#ready.set(id, this.#count++)
  }

  /** It waits no more: it was given work, or went. */
  served(id: MemberId): void {
    if (this.#has(id)) this.#served.add(id)
  }

  allServed(): void {
    for (const id of [...this.#ready.keys(), ...this.#parked.keys()]) this.#served.add(id)
  }

  forgetServed(): void {
    for (const id of this.#served) {
      this.#ready.delete(id)
      this.#parked.delete(id)
    }
    this.#served.clear()
  }

  #has(id: MemberId): boolean {
    return this.#ready.has(id) || this.#parked.has(id)
  }

  /** Not looked at until another sum is open. */
  park(id: MemberId): void {
    const place = this.#ready.get(id)
    if (place === undefined) return
    this.#ready.delete(id)
    this.#parked.set(id, place)
  }

  /** Who may be served while this sum is open, in the order in which they asked. */
  whileOpen(sum: object): Iterable<MemberId> {
    this.forgetServed()
    if (this.#parkedFor !== sum) this.#unpark()
    this.#parkedFor = sum
    return this.#ready.keys()
  }

  #unpark(): void {
    if (this.#parked.size === 0) return
    this.#ready = new Map([...this.#ready, ...this.#parked].sort(([, a], [, b]) => a - b))
    this.#parked = new Map()
  }
}
