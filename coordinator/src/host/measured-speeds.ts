// How fast a run was with this many members: what one volunteer more may bring (jobs/schedule.ts). Pure.
import type { StepPoint } from '@starling-grid/protocol'
import { speedOf } from './progress.ts'

/** Steps with the same members before their speed counts: the first ones fetch and warm up. */
const LEAST_STEPS = 8
/** Counts of members that are remembered, those measured last. */
const MOST_COUNTS = 64

export class MeasuredSpeeds {
  readonly #speeds = new Map<number, number>()
  #members = 0
  #since = 0

  /** samples per second by number of members */
  get byMembers(): ReadonlyMap<number, number> {
    return this.#speeds
  }

  /** `members`: that train now, 0 while they agree on a ring; `now`: ms */
  note({ members, steps, now }: { members: number; steps: readonly StepPoint[]; now: number }): void {
    if (members !== this.#members) {
      this.#members = members
      this.#since = now
    }
    if (members === 0 || steps.at(-LEAST_STEPS) === undefined) return
    if ((steps.at(-LEAST_STEPS)?.at ?? 0) < this.#since) return
    this.#speeds.delete(members)
    this.#speeds.set(members, speedOf(steps, now, this.#since))
    const [oldest] = this.#speeds.keys()
    if (this.#speeds.size > MOST_COUNTS && oldest !== undefined) this.#speeds.delete(oldest)
  }
}
