// How often a caller may do something: refills with time, pays for each message.

export class TokenBucket {
  readonly #perSecond: number
  readonly #burst: number
  #tokens: number
  #countedAt = performance.now()

  constructor(perSecond: number, burst: number) {
    this.#perSecond = perSecond
    this.#burst = burst
    this.#tokens = burst
  }

  /** False when it is empty. */
  take(): boolean {
    const now = performance.now()
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
