// Divides the gradient into the buckets that enter the ring one by one (docs/STEPS.md). Pure, and a function of the
// parameters alone. Members with other adapters must cut alike, because the cut decides the order in which assignments
// are added.
import type { FloatRange } from '../floats.ts'

/** Floats of a bucket at least, 1 MiB: less gains no time and costs a submit and a read-back, some 0.2 ms each. */
const LEAST_FLOATS = 256 * 1024
/** Of one gradient: more overlap little more, since only the exchange of the last bucket has nothing to hide behind. */
const MOST_BUCKETS = 8
/**
 * Floats that do not make a bucket of their own at the end, one frame; anything larger does, so that the last bucket is
 * small.
 */
const CRUMB_FLOATS = 15 * 1024

/** What the cut depends on, of a model's layout: where parameters begin, those that the optimizer trains first. */
export interface GradientLayout {
  readonly entries: readonly { readonly offset: number }[]
  readonly trained: number
  readonly total: number
}

/**
 * Whole parameters, from the last of the layout to the first: the order in which backward finishes them, nearly.
 * Statistics, which lie behind them and are measured all along, come last. One range over all is one read-back and one
 * reduce.
 */
export function gradientBuckets({ entries, trained, total }: GradientLayout): FloatRange[] {
  const min = Math.max(LEAST_FLOATS, Math.ceil(trained / MOST_BUCKETS))
  const buckets: FloatRange[] = []
  let end = trained
  for (const { offset } of entries.filter((entry) => entry.offset < trained).reverse()) {
    if (offset > 0 && (end - offset < min || offset <= CRUMB_FLOATS)) continue
    buckets.push({ start: offset, end })
    end = offset
  }
  if (buckets.length <= 1) return [{ start: 0, end: total }]
  return total > trained ? [...buckets, { start: trained, end: total }] : buckets
}
