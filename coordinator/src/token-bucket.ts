// How often a caller may do something: refills with time, pays for each message.

import type { Clock } from '@starling-grid/protocol'

export class TokenBucket {
  readonly #perSecond: number
  readonly #burst: number
  #tokens: number
  readonly #clock: Pick<Clock, 'now'>
  #countedAt: number

  constructor(perSecond: number, burst: number, clock: Pick<Clock, 'now'>) {
    this.#clock = clock
    this.#countedAt = clock.now()
    this.#perSecond = perSecond
    this.#burst = burst
    this.#tokens = burst
  }

  /** False when it is empty. */
  take(): boolean {
    const now = this.#clock.now()
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#countedAt) / 1000) * this.#perSecond)
    this.#countedAt = now
    if (this.#tokens < 1) return false
    this.#tokens -= 1
    return true
  }

  /** What costs so much at once; false when there is not enough. */
  pay(cost: number): boolean {
    this.#tokens += 1 - cost
    if (this.take()) return true
    this.#tokens -= 1 - cost
    return false
  }

  /** What costs more than a message; it may owe some, and takes nothing until that is paid. */
  charge(cost: number): void {
    this.#tokens -= cost
  }
}
