// Many seeds, one after another, and what they came to.
import { addCounts, type Counts, noCounts } from './counts.ts'
import { type Outcome, simulate, type SimulateOptions } from './simulate.ts'

export interface Campaign {
  readonly seeds: number
  readonly events: number
  readonly failures: readonly Outcome[]
  readonly counts: Counts
  /** most events that a run needed after its last fault */
  readonly slowest: number
}

/** Seeds from `first` on; `each` is told after every one. */
export function campaign(
  first: number,
  seeds: number,
  options: SimulateOptions & { readonly each?: (outcome: Outcome) => void } = {},
): Campaign {
  const counts = noCounts()
  const failures: Outcome[] = []
  let events = 0
  let slowest = 0
  for (let seed = first; seed < first + seeds; seed++) {
    const outcome = simulate(seed, options)
    if (outcome.violation !== undefined) failures.push(outcome)
    addCounts(counts, outcome.counts)
    events += outcome.events
    slowest = Math.max(slowest, outcome.calmEvents)
    options.each?.(outcome)
  }
  return { seeds, events, failures, counts, slowest }
}

/** The first of `limit` seeds, from `first` on, that breaks an invariant. */
export function firstCaught(
  limit: number,
  { first = 1, ...options }: SimulateOptions & { readonly first?: number } = {},
): Outcome | undefined {
  for (let seed = first; seed < first + limit; seed++) {
    const outcome = simulate(seed, options)
    if (outcome.violation !== undefined) return outcome
  }
  return undefined
}
