// What was refused, by code, for the dashboard: strangers can raise a number here and, now and then, an event.
import type { ErrorCode } from '@starling-grid/protocol'

/** ms between two events of the same code: the history of a run is bounded, the patience of its reader, too */
const EVENT_MS = 10_000

export class Refusals {
  readonly #counts = new Map<ErrorCode, number>()
  readonly #toldAt = new Map<ErrorCode, number>()

  /** True when it is worth an event: the first of its code, and the first after a while. `now`: ms */
  count(code: ErrorCode, now: number): boolean {
    this.#counts.set(code, (this.#counts.get(code) ?? 0) + 1)
    if (now - (this.#toldAt.get(code) ?? Number.NEGATIVE_INFINITY) < EVENT_MS) return false
    this.#toldAt.set(code, now)
    return true
  }

  get byCode(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts)
  }
}
