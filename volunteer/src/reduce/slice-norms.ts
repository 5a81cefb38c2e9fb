// Finds the slice that is far outside of what the other members sent for the same part of a gradient (docs/STEPS.md).
// Pure.

/**
 * Times the others' median that a slice's norm may be. A bound of 10 would suit a parameter server, where a false alarm
 * costs one push; here it costs a generation. The bound does not suffice alone. When the model has learned nearly all
 * samples, a wrong label makes one gradient thousands of times as long as the others (test/slice-norms.test.ts measures
 * it). So a slice must be beyond `harmless` as well.
 */
export const FAR_OUTSIDE = 1000
/** Members besides the owner and the one that is judged: between two members no comparison shows which one is right. */
const LEAST_OTHERS = 2

export interface SliceNorms {
  /** by rank */
  readonly norms: readonly number[]
  /** of the samples that each member has, in proportion */
  readonly weights: readonly number[]
  /** judges, and is not judged */
  readonly self: number
  /** a norm that does no harm, whatever others sent: asked when one is longer than usual */
  harmless(): number
}

/** The rank whose slice is far outside, and how many times the others' median it is. */
export function farOutside({
  norms,
  weights,
  self,
  harmless,
}: SliceNorms): { readonly rank: number; readonly times: number } | undefined {
  let worst: { readonly rank: number; readonly times: number } | undefined
  for (const [rank, norm] of norms.entries()) {
    const times = rank === self ? 0 : norm / usualFor(rank, norms, weights)
    if (times > FAR_OUTSIDE && times > (worst?.times ?? 0) && norm > harmless()) worst = { rank, times }
  }
  return worst
}

/**
 * What the others' norms let expect of one member; infinity where they are too few to say. Zeros say nothing: rows of a
 * table are often touched by one alone.
 */
export function usualFor(rank: number, norms: readonly number[], weights: readonly number[]): number {
  const expected = norms.flatMap((norm, i) =>
    i === rank || norm === 0 ? [] : [norm * growth((weights[rank] ?? 0) / (weights[i] ?? 0))],
  )
  if (expected.length < LEAST_OTHERS) return Number.POSITIVE_INFINITY
  return expected.sort((a, b) => a - b)[expected.length >> 1] ?? Number.POSITIVE_INFINITY
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
