// What was refused, by code, for the dashboard: strangers can raise a number here and nothing else.
import type { ErrorCode } from '@starling-grid/protocol'

export class Refusals {
  readonly #counts = new Map<ErrorCode, number>()

  /** True for the first of its kind. */
  count(code: ErrorCode): boolean {
    const before = this.#counts.get(code) ?? 0
    this.#counts.set(code, before + 1)
    return before === 0
  }

  get byCode(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts)
  }
}
