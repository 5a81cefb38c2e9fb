// How many members a ring should have. Every member adds two hops to a step around it, and computing that gets shorter:
// over links with some latency a long ring is slower than a short one, or than a direct exchange of all. What hops cost
// is learned from the rings that ran. Source of the formula: T = 2(N−1)(α + β/N), the hops of reduce-scatter and
// all-gather (Patarasuk and Yuan, 2009).
import type { StepPace } from './exchange-cost.ts'

/** Ring size → ms of exchange, as last measured there. */
export type ExchangeTimes = ReadonlyMap<number, number>

/** α: ms of one hop whatever it carries; β: ms to carry the whole gradient once. */
interface HopCost {
  readonly alpha: number
  readonly beta: number
}

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
    return (1000 * samples) / Math.max(sum, 1e-3) + (directMs(i + 1) ?? ringMs(i + 1, cost))
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

function ringMs(size: number, { alpha, beta }: HopCost): number {
  return 2 * (size - 1) * (alpha + beta / size)
}

/**
 * Least squares over what was measured, neither below 0. One size alone does not tell latency from bandwidth: it is
 * taken for latency, and the shorter ring that follows from it makes the second measurement.
 */
function fit(times: ExchangeTimes): HopCost {
  const points = [...times].map(([size, ms]) => ({ x: 1 / size, y: ms / (2 * (size - 1)) }))
  const n = points.length
  if (n === 0) return { alpha: 0, beta: 0 }
  const [meanX, meanY] = [points.reduce((sum, { x }) => sum + x, 0) / n, points.reduce((sum, { y }) => sum + y, 0) / n]
  const spread = points.reduce((sum, { x }) => sum + (x - meanX) ** 2, 0)
  const slope = spread === 0 ? 0 : points.reduce((sum, { x, y }) => sum + (x - meanX) * (y - meanY), 0) / spread
  if (slope <= 0) return { alpha: meanY, beta: 0 }
  const alpha = meanY - slope * meanX
  return alpha >= 0 ? { alpha, beta: slope } : { alpha: 0, beta: meanX === 0 ? 0 : meanY / meanX }
}
