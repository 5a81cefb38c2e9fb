// The norm of the whole gradient, for clipping. Sequential in double precision: the same bits on every machine.

/** What PyTorch adds to the norm before dividing by it. */
const NORM_EPSILON = 1e-6

export function sumOfSquares(values: Float32Array): number {
  let sum = 0
  for (const value of values) sum += value * value
  return sum
}

/**
 * Scales the gradient in place so that its norm is at most `maxNorm`.
 * @returns the norm before clipping; NaN or infinity when a value is not finite
 */
export function clipGlobalNorm(gradient: Float32Array, maxNorm: number): number {
  const norm = Math.sqrt(sumOfSquares(gradient))
  const factor = Math.fround(maxNorm / (norm + NORM_EPSILON))
  if (!(factor < 1)) return norm
  for (let i = 0; i < gradient.length; i++) gradient[i] = Math.fround((gradient[i] ?? 0) * factor)
  return norm
}

/** Sum → mean: each element divided by the number of targets, rounded once. `out` may be `sum`. */
export function meanGradient(sum: Float32Array, targets: number, out: Float32Array): void {
  for (let i = 0; i < sum.length; i++) out[i] = Math.fround((sum[i] ?? 0) / targets)
}
