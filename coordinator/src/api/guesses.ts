// Wrong owner tokens of an address: a few are mistyped, more are guessed, and each then waits twice as long as the
// last.
import type { CoordinatorClock } from '../clock.ts'
import { HttpRefusal } from './errors.ts'

/** wrong ones in a row before an address waits */
const FREE = 10
const FIRST_WAIT_MS = 1000
const LONGEST_WAIT_MS = 60_000
/** ms after which an address begins anew */
const FORGOTTEN_MS = 600_000
/** The addresses that are kept; the oldest make room. */
const MAX_ADDRESSES = 10_000

interface Wrong {
  count: number
  /** ms: the last one */
  at: number
}

export class Guesses {
  /** oldest first */
  readonly #wrong = new Map<string, Wrong>()
  readonly #clock: CoordinatorClock

  constructor(clock: CoordinatorClock) {
    this.#clock = clock
  }

  /** @throws HttpRefusal 'rate-exceeded' while this address waits; its token is not even compared */
  requireLeisure(address: string): void {
    const wrong = this.#wrong.get(address)
    if (wrong === undefined || wrong.count < FREE) return
    const waitMs =
      Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (wrong.count - FREE)) - (this.#clock.awake() - wrong.at)
    if (waitMs <= 0) return
    throw new HttpRefusal(
      429,
      'rate-exceeded',
      `expected a right token, got ${wrong.count} wrong ones from this address; ` +
        `try again in ${Math.ceil(waitMs / 1000)} s`,
      Math.ceil(waitMs / 1000),
    )
  }

  count(address: string): void {
    const at = this.#clock.awake()
    const before = this.#wrong.get(address)
    const count = before === undefined || at - before.at > FORGOTTEN_MS ? 0 : before.count
    this.#wrong.delete(address)
    this.#wrong.set(address, { count: count + 1, at })
    const [oldest] = this.#wrong.keys()
    if (this.#wrong.size > MAX_ADDRESSES && oldest !== undefined) this.#wrong.delete(oldest)
  }
}
