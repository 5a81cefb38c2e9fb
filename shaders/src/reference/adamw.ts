// Adam and AdamW with PyTorch's semantics, bit-exact on every machine (see sgd.ts for why it is).
// β₁ᵗ and β₂ᵗ come in as repeated products: Math.pow differs between machines.
// Out of place: `to` may hold the same arrays as `from`.

import { SLOT } from './simd-kernels.ts'
import { simd } from './simd.ts'
import { meanAt, type MeanGradient } from './sum-of-squares.ts'

const f32 = Math.fround

export interface AdamSettings {
  readonly lr: number
  readonly beta1: number
  readonly beta2: number
  readonly eps: number
  readonly weightDecay: number
  /** true: decay shrinks the parameter (AdamW); false: decay joins the gradient (Adam) */
  readonly decoupled: boolean
  /** β₁ᵗ for the step t being taken, counted from 1 */
  readonly beta1Power: number
  /** β₂ᵗ */
  readonly beta2Power: number
}

export interface AdamVectors {
  readonly parameters: Float32Array
  /** m: running mean of the gradient */
  readonly mean: Float32Array
  /** v: running mean of its square */
  readonly square: Float32Array
}

// m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  p ← p − lr/(1−β₁ᵗ) · m / (√v / √(1−β₂ᵗ) + eps)
export function adam(settings: AdamSettings, from: AdamVectors, gradient: MeanGradient, to: AdamVectors): void {
  const lanes = simd()
  if (!lanes) return plainAdam(settings, from, gradient, to)
  const { beta1, rest1, beta2, rest2, stepSize, rootCorrection, eps, shrink, decay } = adamScalars(settings)
  const { sum, targets, factor } = gradient
  const scalars = [targets, factor, beta1, rest1, beta2, rest2, stepSize, rootCorrection, eps, shrink]
  const vectors = [
    { slot: SLOT.parameters, from: from.parameters, to: to.parameters },
    { slot: SLOT.gradient, from: sum },
    { slot: SLOT.mean, from: from.mean, to: to.mean },
    { slot: SLOT.square, from: from.square, to: to.square },
  ]
  if (decay === 0) lanes.run('adam', scalars, vectors)
  else lanes.run('adamJoined', [...scalars, decay], vectors)
}

/** The same bits in plain TypeScript: what the formula means, and the way where WebAssembly SIMD is missing. */
export function plainAdam(settings: AdamSettings, from: AdamVectors, gradient: MeanGradient, to: AdamVectors): void {
  const { parameters, mean, square } = from
  const { beta1, rest1, beta2, rest2, stepSize, rootCorrection, eps, shrink, decay } = adamScalars(settings)
  for (let i = 0; i < parameters.length; i++) {
    const old = parameters[i] ?? 0
    const raw = meanAt(gradient, i)
    const g = decay === 0 ? raw : f32(raw + f32(decay * old))
    const m = f32(f32(beta1 * (mean[i] ?? 0)) + f32(rest1 * g))
    const v = f32(f32(beta2 * (square[i] ?? 0)) + f32(rest2 * f32(g * g)))
    to.mean[i] = m
    to.square[i] = v
    const denominator = f32(f32(f32(Math.sqrt(v)) / rootCorrection) + eps)
    to.parameters[i] = f32(f32(shrink * old) - f32(f32(stepSize * m) / denominator))
  }
}

/** All of them f32. */
export interface AdamScalars {
  readonly beta1: number
  /** 1 − β₁ */
  readonly rest1: number
  readonly beta2: number
  readonly rest2: number
  readonly eps: number
  /** lr/(1−β₁ᵗ) */
  readonly stepSize: number
  /** √(1−β₂ᵗ) */
  readonly rootCorrection: number
  /** what a parameter is multiplied by (AdamW) */
  readonly shrink: number
  /** share of a parameter that joins its gradient (Adam) */
  readonly decay: number
}

export function adamScalars(settings: AdamSettings): AdamScalars {
  const { lr, beta1, beta2, eps, weightDecay, decoupled, beta1Power, beta2Power } = settings
  return {
    beta1: f32(beta1),
    rest1: f32(1 - beta1),
    beta2: f32(beta2),
    rest2: f32(1 - beta2),
    eps: f32(eps),
    stepSize: f32(lr / (1 - beta1Power)),
    rootCorrection: f32(Math.sqrt(1 - beta2Power)),
    shrink: decoupled ? f32(1 - lr * weightDecay) : 1,
    decay: decoupled ? 0 : f32(weightDecay),
  }
}
