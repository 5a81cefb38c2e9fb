// Whose slice is far outside of what the others sent for the same part of a gradient (DESIGN §4.1, reliability.md §3). Pure.

/**
 * Times the others' median that a slice's norm may be. A bound for lies and faults, not for taste. The parameter server of
 * systems.md §C5 rejects from 10 on, which costs one push; here it costs a generation. Honest norms of one step, compared per
 * sample, differ most when nearly everything is learned: one member then has the samples that are not (test/slice-norms.test.ts
 * measures that). What stays below the bound the job's `clipNorm` makes harmless.
 */
export const FAR_OUTSIDE = 1000
/** Members besides the owner and the one that is judged: between two nobody can tell who is right. */
const LEAST_OTHERS = 2

/**
 * The place whose slice is far outside, and how many times the others' median it is. `weights`: of the samples that each member
 * has, in proportion. `self` judges, and is not judged.
 */
export function farOutside(norms: readonly number[], weights: readonly number[], self: number): { readonly place: number; readonly times: number } | undefined {
  let worst: { readonly place: number; readonly times: number } | undefined
  for (const [place, norm] of norms.entries()) {
    const usual = place === self ? undefined : usualFor(place, norms, weights)
    if (usual === undefined) continue
    const times = norm / usual
    if (times > FAR_OUTSIDE && times > (worst?.times ?? 0)) worst = { place, times }
  }
  return worst
}

/** What the others' norms let expect of one member, at most. Zeros say nothing: a table's rows are often touched by one alone. */
function usualFor(place: number, norms: readonly number[], weights: readonly number[]): number | undefined {
  const expected = norms.flatMap((norm, i) => (i === place || norm === 0 ? [] : [norm * growth((weights[place] ?? 0) / (weights[i] ?? 0))]))
  if (expected.length < LEAST_OTHERS) return undefined
  return expected.sort((a, b) => a - b)[expected.length >> 1]
}

/** A sum over k times the samples is k times as long when all samples agree, and √k when their gradients are noise. */
function growth(times: number): number {
  return Number.isFinite(times) && times > 0 ? Math.max(times, Math.sqrt(times)) : 1
}

/** √Σx² in double precision, over some floats. */
export function normOf(values: Float32Array, start: number, end: number): number {
  let squares = 0
  for (let i = start; i < end; i++) squares += (values[i] ?? 0) ** 2
  return Math.sqrt(squares)
}
