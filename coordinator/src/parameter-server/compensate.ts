// Delay compensation (DC-ASGD, Zheng et al. 2017): a gradient of an older version, corrected to first order for how far
// the parameters moved since. The second derivative is approximated by λ·g⊙g, with λ scaled by the gradient's own size.

const f32 = Math.fround

/** m of the paper's adaptive λ: weight of the past in the moving mean of g² */
const PAST_WEIGHT = 0.95
/** ε of the paper, so that a gradient that was always 0 divides nothing by 0 */
const EPSILON = 1e-7

export interface CompensationVectors {
  readonly head: Float32Array
  /** the parameters that the gradient was computed at; the same array as `head` when it is not late */
  readonly base: Float32Array
  /** moving mean of g², changed in place; 0: none yet */
  readonly square: Float32Array
}

// sum (trained,), in place:  g = sum/n;  q ← m·q + (1−m)·g²;  sum ← sum + sum · (λ/√(q+ε) · g · (head − base))
// which is n · (g + λ/√(q+ε) · g⊙g⊙(head − base)); each operation rounds once to f32.
export function compensate(
  sum: Float32Array,
  { head, base, square }: CompensationVectors,
  { targets, strength }: { readonly targets: number; readonly strength: number },
): void {
  const past = f32(PAST_WEIGHT)
  const rest = f32(1 - PAST_WEIGHT)
  const lambda = f32(strength)
  const epsilon = f32(EPSILON)
  for (let i = 0; i < sum.length; i++) {
    const total = sum[i] ?? 0
    const g = f32(total / targets)
    const q = f32(f32(past * (square[i] ?? 0)) + f32(rest * f32(g * g)))
    square[i] = q
    if (head === base) continue
    const scaled = f32(lambda / f32(Math.sqrt(f32(q + epsilon))))
    const moved = f32((head[i] ?? 0) - (base[i] ?? 0))
    sum[i] = f32(total + f32(total * f32(f32(scaled * g) * moved)))
  }
}
