// A push joins a sum, weighed, in exact f32: what shards of the parameter server and sums for the ring do alike.

const f32 = Math.fround

export interface PushWeights {
  /** of the trained part; below 1: clipped, damped */
  readonly gradient: number
  /** of running means and variances behind it: sums over samples, which being late does not make smaller */
  readonly statistics: number
}

/** sum (total,) += weights · gradient (total,), of which the first `trained` are gradients. */
export function addPush(
  sum: Float32Array,
  gradient: Float32Array,
  { trained, weights }: { readonly trained: number; readonly weights: PushWeights },
): void {
  addScaled(sum, gradient, { start: 0, end: trained, weight: f32(weights.gradient) })
  addScaled(sum, gradient, { start: trained, end: sum.length, weight: f32(weights.statistics) })
}

/** What is infinite and weighs nothing counts nothing: ∞ · 0 would be NaN. */
function addScaled(
  sum: Float32Array,
  more: Float32Array,
  { start, end, weight }: { readonly start: number; readonly end: number; readonly weight: number },
): void {
  if (weight > 0) for (let i = start; i < end; i++) sum[i] = f32((sum[i] ?? 0) + f32(weight * (more[i] ?? 0)))
}
