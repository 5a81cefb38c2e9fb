// Bytes that passed: all of them, and how many a second lately.

/** Whole seconds that "lately" is. */
const SECONDS = 5

export class Throughput {
  /** second (of the caller's clock) → bytes in it */
  readonly #recent = new Map<number, number>()
  #total = 0

  /** now: ms */
  add(bytes: number, now: number): void {
    const second = Math.floor(now / 1000)
    this.#total += bytes
    this.#recent.set(second, (this.#recent.get(second) ?? 0) + bytes)
    if (this.#recent.size > SECONDS + 1) this.#forget(second)
  }

  get total(): number {
    return this.#total
  }

  /** Over the last whole seconds before now. */
  perSecond(now: number): number {
    const second = Math.floor(now / 1000)
    this.#forget(second)
    let bytes = 0
    for (const [at, amount] of this.#recent) if (at < second) bytes += amount
    return bytes / SECONDS
  }

  #forget(second: number): void {
    for (const at of this.#recent.keys()) if (at < second - SECONDS) this.#recent.delete(at)
  }
}
