// How much work is submitted at once, so that a submit keeps the device busy for a moment only: Windows resets a driver
// after two seconds, and a desktop draws between submits. First by a cautious guess, then by what was measured. Pure.

/** FLOP that a weak GPU does in a ms; bytes count as FLOP too (`FLOP_PER_BYTE` of the plan). */
const FIRST_WORK_PER_MS = 1e8
/** weight of a faster measurement; a slower one counts at once, since it may be the machine's user */
const FASTER_WEIGHT = 0.25
/** Passes of a run reach rates that differ by as much from the average of the run that is measured. */
const UNEVEN = 0.5
/** ms of a submit where no user waits at the screen */
export const SUBMIT_MS = 50
/** … and where a user does: a frame of 60 in a second is 16.7 ms */
export const SEEN_SUBMIT_MS = 12

export class SubmitPace {
  #workPerMs = FIRST_WORK_PER_MS
  /** ms: when the last run ended that was measured */
  #lastEnd = 0

  /** Work of one submit that should take so long. */
  workIn(ms: number): number {
    return this.#workPerMs * ms
  }

  /**
   * A run ended at `end`. It began when it was submitted, or when the run before it ended: a device does one after the
   * other.
   */
  measured(work: number, { submitted, end }: { readonly submitted: number; readonly end: number }): void {
    const ms = end - Math.max(submitted, this.#lastEnd)
    this.#lastEnd = end
    if (ms <= 0 || work <= 0) return
    const rate = (UNEVEN * work) / ms
    this.#workPerMs = rate < this.#workPerMs ? rate : this.#workPerMs + FASTER_WEIGHT * (rate - this.#workPerMs)
  }
}
