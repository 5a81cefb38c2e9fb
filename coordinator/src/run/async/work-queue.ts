// Who asked for work, in the order in which they asked. Most of a crowd waits for the version that their last rounds
// are in, so these are set apart until it is made: to look at all of them at each push would cost more than the pushes.
import type { MemberId } from '@starling-grid/protocol'

export class WorkQueue {
  /** → how many asked before */
  #ready = new Map<MemberId, number>()
  #parked = new Map<MemberId, number>()
  #parkedFor: object | undefined
  #count = 0

  get size(): number {
    return this.#ready.size + this.#parked.size
  }

  clear(): void {
    this.#ready.clear()
    this.#parked.clear()
  }

  /** Who is here already keeps the place. */
  add(id: MemberId): void {
    if (!this.#ready.has(id) && !this.#parked.has(id)) this.#ready.set(id, this.#count++)
  }

  delete(id: MemberId): void {
    this.#ready.delete(id)
    this.#parked.delete(id)
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
