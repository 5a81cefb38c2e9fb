// The optimizer that ring members and the parameter server apply to the one flat parameter vector.
// Exact f32 on the CPU (reference/sgd.ts, reference/adamw.ts): the same reduced gradient gives the same bytes everywhere.

import { adam } from './reference/adamw.ts'
import { sgd } from './reference/sgd.ts'

/** The learning rate falls in a straight line to lr × `to` over `steps`, and stays there. */
export interface LearningRateSchedule {
  readonly type: 'linear'
  readonly to: number
  /** the job's own number of steps where a job leaves it out; applyUpdate needs it */
  readonly steps?: number
}

export interface SgdSpec {
  readonly type: 'sgd'
  readonly lr: number
  readonly momentum?: number
  readonly nesterov?: boolean
  readonly weightDecay?: number
  readonly schedule?: LearningRateSchedule
}

export interface AdamSpec {
  readonly type: 'adam' | 'adamw'
  readonly lr: number
  readonly betas?: readonly [number, number]
  readonly eps?: number
  readonly weightDecay?: number
  readonly schedule?: LearningRateSchedule
}

export type OptimizerSpec = SgdSpec | AdamSpec

/** PyTorch's defaults. */
const ADAM_BETAS = [0.9, 0.999] as const
const ADAM_EPS = 1e-8
const ADAMW_WEIGHT_DECAY = 0.01

/** Everything besides the parameters that a step reads and writes. */
export interface OptimizerState {
  /** updates applied so far */
  step: number
  /** Adam: β₁ᵗ and β₂ᵗ, multiplied up step by step; SGD: none */
  readonly scalars: Float64Array
  /** vectors as long as the parameters, in the order of slotNames */
  readonly slots: readonly Float32Array[]
}

/** Names of the state vectors, as PyTorch calls them. */
export function slotNames(spec: OptimizerSpec): readonly string[] {
  if (spec.type !== 'sgd') return ['exp_avg', 'exp_avg_sq']
  return spec.momentum ? ['momentum_buffer'] : []
}

/** State before the first step. Two of them, swapped after each update, keep the old version whole until the new one is committed. */
export function createOptimizerState(spec: OptimizerSpec, parameterCount: number): OptimizerState {
  return {
    step: 0,
    scalars: spec.type === 'sgd' ? new Float64Array(0) : Float64Array.of(1, 1),
    slots: slotNames(spec).map(() => new Float32Array(parameterCount)),
  }
}

/**
 * One optimizer step with the mean gradient, out of place: (`parameters`, `state`) stay whole while the new version is not
 * committed. `outParameters` and `outState` may also be the same objects, to update in place.
 * @example applyUpdate(spec, state, parameters, gradient, nextParameters, nextState)
 */
// oxlint-disable-next-line max-params -- two versions side by side read best in the order of the formula
export function applyUpdate(
  spec: OptimizerSpec, state: OptimizerState, parameters: Float32Array, gradient: Float32Array,
  outParameters: Float32Array, outState: OptimizerState,
): void {
  const from = { parameters, state }
  const to = { parameters: outParameters, state: outState }
  requireLengths(from, gradient.length, to)
  if (spec.type === 'sgd') applySgd(spec, from, gradient, to)
  else applyAdam(spec, from, gradient, to)
  outState.step = state.step + 1
}

/** Additions, products and quotients of doubles only: the same bits everywhere, which a cosine would not be. */
export function learningRate({ lr, schedule }: OptimizerSpec, step: number): number {
  if (schedule === undefined) return lr
  if (schedule.steps === undefined) throw new Error('internal: a schedule without its number of steps')
  const done = Math.min(1, step / schedule.steps)
  return lr * (1 - (1 - schedule.to) * done)
}

interface Version {
  readonly parameters: Float32Array
  readonly state: OptimizerState
}

function applySgd(spec: SgdSpec, from: Version, gradient: Float32Array, to: Version): void {
  const { momentum = 0, nesterov = false, weightDecay = 0 } = spec
  const lr = learningRate(spec, from.state.step)
  const vectors = ({ parameters, state }: Version) => ({ parameters, velocity: state.slots[0] })
  sgd({ lr, momentum, nesterov, weightDecay }, vectors(from), gradient, vectors(to))
}

function applyAdam(spec: AdamSpec, from: Version, gradient: Float32Array, to: Version): void {
  const decoupled = spec.type === 'adamw'
  const lr = learningRate(spec, from.state.step)
  const { betas: [beta1, beta2] = ADAM_BETAS, eps = ADAM_EPS, weightDecay = decoupled ? ADAMW_WEIGHT_DECAY : 0 } = spec
  const beta1Power = (from.state.scalars[0] ?? 1) * beta1
  const beta2Power = (from.state.scalars[1] ?? 1) * beta2
  adam({ lr, beta1, beta2, eps, weightDecay, decoupled, beta1Power, beta2Power }, adamVectors(from), gradient, adamVectors(to))
  to.state.scalars.set([beta1Power, beta2Power])
}

function adamVectors({ parameters, state: { slots: [mean, square] } }: Version) {
  if (mean === undefined || square === undefined) throw new Error('internal: the optimizer state is not one of Adam')
  return { parameters, mean, square }
}

function requireLengths(from: Version, expected: number, to: Version): void {
  const lengths = [from, to].flatMap(({ parameters, state }) => [parameters.length, ...state.slots.map(slot => slot.length)])
  if (lengths.some(length => length !== expected) || from.state.slots.length !== to.state.slots.length)
    throw new Error(`internal: an update with ${expected} gradients meets vectors of ${lengths.join(', ')}`)
}
