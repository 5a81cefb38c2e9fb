// All chance of a simulation comes from here, so that its seed replays it.
import { random32 } from '@starling-grid/protocol'

export class Dice {
  readonly #next: () => number

  constructor(seed: number) {
    this.#next = random32(seed)
  }

  /** 0 ≤ x < 1 */
  fraction(): number {
    return this.#next() / 2 ** 32
  }

  /** An integer, 0 ≤ x < n. */
  below(n: number): number {
    return Math.floor(this.fraction() * n)
  }

  /** An integer, low ≤ x ≤ high. */
  between(low: number, high: number): number {
    return low + this.below(high - low + 1)
  }

  chance(probability: number): boolean {
    return this.fraction() < probability
  }

  /** Undefined: there is none. */
  pick<const T>(items: readonly [T, ...T[]]): T
  pick<T>(items: readonly T[]): T | undefined
  pick<T>(items: readonly T[]): T | undefined {
    return items[this.below(items.length)]
  }
}
