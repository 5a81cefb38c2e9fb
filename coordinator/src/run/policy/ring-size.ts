// How many members a ring should have. Every member adds two hops to a step around it, and makes computing shorter.
// Over links with some latency a long ring is slower than a short one, or than a direct exchange of all. What hops cost
// is learned from the rings that ran.
import type { StepPace } from './exchange-cost.ts'
import { costOf, fit } from './exchange-model.ts'

/** Ring size → ms of exchange, as last measured there. */
export type ExchangeTimes = ReadonlyMap<number, number>

export interface RingChoice {
  readonly size: number
  /** predicted ms of a step with that many, and with all */
  readonly stepMs: number
  readonly allMs: number
}

/** A shorter ring leaves people waiting: it must be this much faster. */
const WORTH_IT = 1.5
/** Fewer would be faster still now and then, but two that die together must not take the version with them. */
const LEAST = 3
/** Steps before a measurement counts. */
const SETTLED_RECORDS = 5

export function remember(times: ExchangeTimes, size: number, pace: StepPace | undefined): ExchangeTimes {
  if (pace === undefined || pace.records < SETTLED_RECORDS || size < 2) return times
  return new Map([...times, [size, Math.max(0, pace.recordMs - pace.computeMs)]])
}

/** What a step of these members is reckoned from. */
export interface StepFigures {
  /** samples per second, fastest first */
  readonly speeds: readonly number[]
  /** of one step */
  readonly samples: number
  readonly times: ExchangeTimes
  /** ms of exchange of the first `size`, where their frames would not go around the ring (exchange-now.ts) */
  readonly directMs?: (size: number) => number | undefined
}

/** How many of the members make the fastest step. All of them, unless fewer are faster by far. */
export function bestSize({ speeds, samples, times, directMs = () => undefined }: StepFigures): RingChoice {
  const cost = fit(times)
  const all = speeds.length
  let sum = 0
  const steps = speeds.map((speed, i) => {
    sum += speed
    return (1000 * samples) / Math.max(sum, 1e-3) + (directMs(i + 1) ?? costOf('ring', i + 1, cost))
  })
  const allMs = steps[all - 1] ?? 0
  const shortest = Math.min(LEAST, all) - 1
  const best = steps.reduce(
    (least, ms, i) => (i > shortest && ms < (steps[least] ?? Number.POSITIVE_INFINITY) ? i : least),
    shortest,
  )
  const stepMs = steps[best] ?? 0
  return stepMs * WORTH_IT < allMs ? { size: best + 1, stepMs, allMs } : { size: all, stepMs: allMs, allMs }
}
