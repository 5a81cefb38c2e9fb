// Stochastic gradient descent with PyTorch's semantics (dampening 0), bit-exact on every machine. Each operation is one
// IEEE f32 operation: a double +, −, ×, ÷ or √ of f32 operands rounds to the f32 result. Out of place: `out…` may be
// the same arrays as the inputs.

import { sgdName, SLOT } from './simd-kernels.ts'
import { simd } from './simd.ts'
import { meanAt, type MeanGradient } from './sum-of-squares.ts'

const f32 = Math.fround

export interface SgdSettings {
  readonly lr: number
  readonly momentum: number
  readonly nesterov: boolean
  readonly weightDecay: number
}

/** One parameter vector with its momentum, which is absent when momentum is 0. */
export interface SgdVectors {
  readonly parameters: Float32Array
  readonly velocity: Float32Array | undefined
}

// g ← gradient + weightDecay·p;  v ← momentum·v + g;  p ← p − lr·(nesterov ? g + momentum·v : v)
export function sgd(settings: SgdSettings, from: SgdVectors, gradient: MeanGradient, to: SgdVectors): void {
  const lanes = simd()
  if (!lanes) return plainSgd(settings, from, gradient, to)
  const moving = hasVelocity(from) && hasVelocity(to)
  const [lr, momentum, decay] = [f32(settings.lr), f32(settings.momentum), f32(settings.weightDecay)]
  const kernel = sgdName({ moving, nesterov: settings.nesterov, decayed: decay !== 0 })
  const { sum, targets, factor } = gradient
  lanes.run(
    kernel,
    [targets, factor, lr, momentum, decay],
    [
      { slot: SLOT.parameters, from: from.parameters, to: to.parameters },
      { slot: SLOT.gradient, from: sum },
      ...(moving ? [{ slot: SLOT.velocity, from: from.velocity, to: to.velocity }] : []),
    ],
  )
}

/** The same bits in plain TypeScript: what the formula means, and the way where WebAssembly SIMD is missing. */
export function plainSgd(settings: SgdSettings, from: SgdVectors, gradient: MeanGradient, to: SgdVectors): void {
  if (hasVelocity(from) && hasVelocity(to)) sgdWithMomentum(settings, from, gradient, to)
  else sgdAtRest(settings, from.parameters, gradient, to.parameters)
}

function sgdAtRest(
  settings: SgdSettings,
  parameters: Float32Array,
  gradient: MeanGradient,
  outParameters: Float32Array,
): void {
  const lr = f32(settings.lr)
  const decay = f32(settings.weightDecay)
  for (let i = 0; i < parameters.length; i++) {
    const p = parameters[i] ?? 0
    const g = decayed(meanAt(gradient, i), p, decay)
    outParameters[i] = f32(p - f32(lr * g))
  }
}

type MovingVectors = SgdVectors & { readonly velocity: Float32Array }

function hasVelocity(vectors: SgdVectors): vectors is MovingVectors {
  return vectors.velocity !== undefined
}

function sgdWithMomentum(settings: SgdSettings, from: MovingVectors, gradient: MeanGradient, to: MovingVectors): void {
  const { parameters, velocity } = from
  const lr = f32(settings.lr)
  const decay = f32(settings.weightDecay)
  const momentum = f32(settings.momentum)
  for (let i = 0; i < parameters.length; i++) {
    const p = parameters[i] ?? 0
    const g = decayed(meanAt(gradient, i), p, decay)
    const v = f32(f32(momentum * (velocity[i] ?? 0)) + g)
    to.velocity[i] = v
    const direction = settings.nesterov ? f32(g + f32(momentum * v)) : v
    to.parameters[i] = f32(p - f32(lr * direction))
  }
}

function decayed(gradient: number, parameter: number, decay: number): number {
  return decay === 0 ? gradient : f32(gradient + f32(decay * parameter))
}
