// The mean gradient and its norm, for clipping. The norm is summed in double precision, the rest is exact f32: the same
// bits on every machine.

import { simd } from './simd.ts'

/** What PyTorch adds to the norm before dividing by it. */
const NORM_EPSILON = 1e-6

/**
 * Element i belongs to partial sum i mod 4, and these are added at the end. That order is the same everywhere, and four
 * times faster than one sum, whose additions have to wait for each other.
 */
export function sumOfSquares(values: Float32Array): number {
  let [a, b, c, d] = [0, 0, 0, 0]
  const whole = values.length - (values.length % 4)
  for (let i = 0; i < whole; i += 4) {
    a += square(values[i])
    b += square(values[i + 1])
    c += square(values[i + 2])
    d += square(values[i + 3])
  }
  return a + square(values[whole]) + (b + square(values[whole + 1])) + (c + square(values[whole + 2]) + d)
}

function square(value = 0): number {
  return value * value
}

/**
 * Scales the gradient in place so that its norm is at most `maxNorm`.
 * @returns the norm before clipping; NaN or infinity when a value is not finite
 */
export function clipGlobalNorm(gradient: Float32Array, maxNorm: number): number {
  const norm = Math.sqrt(sumOfSquares(gradient))
  const factor = Math.fround(maxNorm / (norm + NORM_EPSILON))
  if (!(factor < 1)) return norm
  scale(gradient, factor)
  return norm
}

/** In place, by an f32. */
function scale(vector: Float32Array, factor: number): void {
  const run = simd()
  if (run) run('scale', [factor], [{ slot: 0, from: vector, to: vector }])
  else for (let i = 0; i < vector.length; i++) vector[i] = Math.fround((vector[i] ?? 0) * factor)
}

/** Sum → mean: each element divided by the number of targets, rounded once. `out` may be `sum`. */
export function meanGradient(sum: Float32Array, targets: number, out: Float32Array): void {
  // Above 2²⁴ not every whole number is an f32; a double divides by it exactly as well.
  const run = Math.fround(targets) === targets ? simd() : undefined
  if (run) run('divide', [targets], [{ slot: 0, from: sum, to: out }])
  else for (let i = 0; i < sum.length; i++) out[i] = Math.fround((sum[i] ?? 0) / targets)
}
