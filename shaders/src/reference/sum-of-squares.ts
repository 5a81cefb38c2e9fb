// The mean gradient and its norm, for clipping. The norm is summed in double precision, the rest is exact f32: the same
// bits on every machine. A mean need not be written: what uses it divides as it reads.

import { BLOCK } from './simd-module.ts'
import { simd } from './simd.ts'

/** What PyTorch adds to the norm before dividing by it. */
const NORM_EPSILON = 1e-6

/** Σ gradients as the mean that an optimizer sees: element i is sum[i] ÷ targets · factor, rounded after each. */
export interface MeanGradient {
  readonly sum: Float32Array
  /** an f32 */
  readonly targets: number
  /** an f32; 1: not clipped */
  readonly factor: number
}

/** A gradient that is the mean already. */
export function asMean(gradient: Float32Array): MeanGradient {
  return { sum: gradient, targets: 1, factor: 1 }
}

/** The mean over the targets. Its norm over the first `counted` elements is at most `clipNorm`, if that is given. */
export function meanOfSum(
  sum: Float32Array,
  targets: number,
  { clipNorm, counted }: { readonly clipNorm: number | undefined; readonly counted: number },
): MeanGradient {
  if (Math.fround(targets) !== targets) {
    // Above 2²⁴ not every whole number is an f32; a double divides by it exactly as well.
    const mean = new Float32Array(sum.length)
    meanGradient(sum, targets, mean)
    return meanOfSum(mean, 1, { clipNorm, counted })
  }
  const norm = clipNorm === undefined ? 0 : Math.sqrt(sumOfSquares(sum.subarray(0, counted), targets))
  return { sum, targets, factor: clipNorm === undefined ? 1 : clipFactor(norm, clipNorm) }
}

/** Element of the mean gradient. */
export function meanAt({ sum, targets, factor }: MeanGradient, index: number): number {
  return Math.fround(Math.fround((sum[index] ?? 0) / targets) * factor)
}

/**
 * Of the values ÷ `targets`, an f32. Element i belongs to partial sum i mod 4, and these are added at the end. That
 * order is the same everywhere, and four times faster than one sum, whose additions have to wait for each other.
 */
export function sumOfSquares(values: Float32Array, targets = 1): number {
  const whole = values.length - (values.length % 4)
  const [a = 0, b = 0, c = 0, d = 0] =
    simd()?.fold('squares', [targets], values.subarray(0, whole)) ?? plainSquares(values.subarray(0, whole), targets)
  const [e, f, g] = [0, 1, 2].map((i) => square(values[whole + i], targets))
  return a + (e ?? 0) + (b + (f ?? 0)) + (c + (g ?? 0) + d)
}

/** The four partial sums in plain TypeScript: the same bits. */
export function plainSquares(values: Float32Array, targets: number): readonly number[] {
  let [a, b, c, d] = [0, 0, 0, 0]
  for (let i = 0; i < values.length; i += 4) {
    a += square(values[i], targets)
    b += square(values[i + 1], targets)
    c += square(values[i + 2], targets)
    d += square(values[i + 3], targets)
  }
  return [a, b, c, d]
}

function square(value = 0, targets: number): number {
  const mean = Math.fround(value / targets)
  return mean * mean
}

/** No NaN and no infinity. */
export function allFinite(values: Float32Array): boolean {
  const whole = values.length - (values.length % 4)
  // A shorter vector is done before it is copied into a block.
  const fold = whole < BLOCK ? undefined : simd()?.fold('notFinite', [], values.subarray(0, whole))
  if (fold === undefined) return plainFinite(values)
  return (
    new Uint32Array(fold.buffer, fold.byteOffset, 4).every((bits) => bits === 0) && plainFinite(values.subarray(whole))
  )
}

/**
 * x·0 is 0 for every finite x and NaN otherwise; one test at the end keeps the loop free of branches. Four sums do not
 * wait for each other.
 */
export function plainFinite(values: Float32Array): boolean {
  let [a, b, c, d] = [0, 0, 0, 0]
  for (let i = 0; i < values.length; i += 4) {
    a += (values[i] ?? 0) * 0
    b += (values[i + 1] ?? 0) * 0
    c += (values[i + 2] ?? 0) * 0
    d += (values[i + 3] ?? 0) * 0
  }
  return a + b + c + d === 0
}

/**
 * Scales the gradient in place so that its norm is at most `maxNorm`.
 * @returns the norm before clipping; NaN or infinity when a value is not finite
 */
export function clipGlobalNorm(gradient: Float32Array, maxNorm: number): number {
  const norm = Math.sqrt(sumOfSquares(gradient))
  const factor = clipFactor(norm, maxNorm)
  if (factor !== 1) scale(gradient, factor)
  return norm
}

/** 1: the gradient stays as it is, as that of a norm that is not finite does. */
export function clipFactor(norm: number, maxNorm: number): number {
  const factor = Math.fround(maxNorm / (norm + NORM_EPSILON))
  return factor < 1 ? factor : 1
}

/** In place, by an f32. */
function scale(vector: Float32Array, factor: number): void {
  const lanes = simd()
  if (lanes) lanes.run('scale', [factor], [{ slot: 0, from: vector, to: vector }])
  else for (let i = 0; i < vector.length; i++) vector[i] = Math.fround((vector[i] ?? 0) * factor)
}

/** sum (n) += weight, an f32, times more (n): each product and each sum rounded once. */
export function addScaled(sum: Float32Array, more: Float32Array, weight: number): void {
  const lanes = simd()
  if (lanes) {
    lanes.run(
      'addScaled',
      [weight],
      [
        { slot: 0, from: sum, to: sum },
        { slot: 1, from: more },
      ],
    )
    return
  }
  for (let i = 0; i < sum.length; i++) sum[i] = Math.fround((sum[i] ?? 0) + Math.fround(weight * (more[i] ?? 0)))
}

/** Sum → mean: each element divided by the number of targets, rounded once. `out` may be `sum`. */
export function meanGradient(sum: Float32Array, targets: number, out: Float32Array): void {
  // Above 2²⁴ not every whole number is an f32; a double divides by it exactly as well.
  const lanes = Math.fround(targets) === targets ? simd() : undefined
  if (lanes) lanes.run('divide', [targets], [{ slot: 0, from: sum, to: out }])
  else for (let i = 0; i < sum.length; i++) out[i] = Math.fround((sum[i] ?? 0) / targets)
}
