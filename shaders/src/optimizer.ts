// The optimizer that ring members and the parameter server apply to the one flat parameter vector.
// Exact f32 on the CPU (reference/sgd.ts, reference/adamw.ts): the same reduced gradient gives the same bytes
// everywhere.

import { adam, type AdamSettings } from './reference/adamw.ts'
import { sgd, type SgdSettings } from './reference/sgd.ts'
import { asMean, type MeanGradient } from './reference/sum-of-squares.ts'

/**
 * After rising from 0 over `warmup` steps, the learning rate falls to lr × `to` until step `steps`, and stays there.
 */
export interface LearningRateSchedule {
  /** in a straight line, or as half a wave of the cosine */
  readonly type: 'linear' | 'cosine'
  readonly to: number
  /** the job's own number of steps where a job leaves it out; applyUpdate needs it */
  readonly steps?: number
  readonly warmup?: number
}

/** Parameters `start` ≤ i < `end` of the flat vector, for all of which weight decay holds or does not. */
export interface DecayGroup {
  readonly start: number
  readonly end: number
  readonly decayed: boolean
}

export interface SgdSpec {
  readonly type: 'sgd'
  readonly lr: number
  readonly momentum?: number
  readonly nesterov?: boolean
  readonly weightDecay?: number
  /**
   * what weight decay holds for: every parameter, or only matrices and filters, as GPTs are trained; 'all' when absent
   */
  readonly decay?: 'all' | 'matrices'
  readonly schedule?: LearningRateSchedule
}

export interface AdamSpec {
  readonly type: 'adam' | 'adamw'
  readonly lr: number
  readonly betas?: readonly [number, number]
  readonly eps?: number
  readonly weightDecay?: number
  /**
   * what weight decay holds for: every parameter, or only matrices and filters, as GPTs are trained; 'all' when absent
   */
  readonly decay?: 'all' | 'matrices'
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

/**
 * State before the first step. Two of them, swapped after each update, keep the old version whole until the new one is
 * committed.
 */
export function createOptimizerState(spec: OptimizerSpec, parameterCount: number): OptimizerState {
  return {
    step: 0,
    scalars: spec.type === 'sgd' ? new Float64Array(0) : Float64Array.of(1, 1),
    slots: slotNames(spec).map(() => new Float32Array(parameterCount)),
  }
}

/**
 * One optimizer step with the mean gradient, out of place: (`parameters`, `state`) stay whole while the new version is
 * not committed. `outParameters` and `outState` may also be the same objects, to update in place. A mean that is not
 * written down is made while it is read.
 * @example applyUpdate(spec, state, parameters, gradient, nextParameters, nextState)
 */
// oxlint-disable-next-line max-params -- two versions side by side read best in the order of the formula
export function applyUpdate(
  spec: OptimizerSpec,
  state: OptimizerState,
  parameters: Float32Array,
  gradient: Float32Array | MeanGradient,
  outParameters: Float32Array,
  outState: OptimizerState,
  groups: readonly DecayGroup[] = [{ start: 0, end: parameters.length, decayed: true }],
): void {
  const mean = gradient instanceof Float32Array ? asMean(gradient) : gradient
  requireLengths({ parameters, state }, mean.sum.length, { parameters: outParameters, state: outState })
  const scalars = nextScalars(spec, state)
  for (const { start, end, decayed } of groups) {
    const part = (whole: Float32Array, of: OptimizerState): Version => ({
      parameters: whole.subarray(start, end),
      state: { ...of, slots: of.slots.map((slot) => slot.subarray(start, end)) },
    })
    const rule = decayed ? spec : { ...spec, weightDecay: 0 }
    const [from, to] = [part(parameters, state), part(outParameters, outState)]
    const partOfMean = { ...mean, sum: mean.sum.subarray(start, end) }
    if (rule.type === 'sgd') applySgd(rule, from, partOfMean, to)
    else applyAdam(rule, { from, to, scalars }, partOfMean)
  }
  outState.scalars.set(scalars)
  outState.step = state.step + 1
}

/** Additions, products and quotients of doubles only: the same bits everywhere, which Math.cos would not give. */
export function learningRate({ lr, schedule }: OptimizerSpec, step: number): number {
  if (schedule === undefined) return lr
  const { type, to, steps, warmup = 0 } = schedule
  if (steps === undefined) throw new Error('internal: a schedule without its number of steps')
  if (step < warmup) return (lr * (step + 1)) / (warmup + 1)
  const done = steps <= warmup ? 1 : Math.min(1, (step - warmup) / (steps - warmup))
  return lr * (to + (1 - to) * (type === 'linear' ? 1 - done : halfWave(done)))
}

/** (1 + cos πx)/2 = cos²(πx/2) for 0 ≤ x ≤ 1, by Taylor's series of the sine of the smaller angle. */
function halfWave(x: number): number {
  const angle = (Math.PI / 2) * (1 - x) // cos(πx/2) = sin(π/2 − πx/2)
  const square = angle * angle
  let series = 1
  for (let k = SINE_TERMS; k >= 1; k--) series = 1 - (square / (2 * k * (2 * k + 1))) * series
  const sine = angle * series
  return sine * sine
}

/** Terms of the series after the first: the next one is below 2⁻⁵³ for angles up to π/2. */
const SINE_TERMS = 10

interface Version {
  readonly parameters: Float32Array
  readonly state: OptimizerState
}

export function sgdSettings(spec: SgdSpec, step: number): SgdSettings {
  const { momentum = 0, nesterov = false, weightDecay = 0 } = spec
  return { lr: learningRate(spec, step), momentum, nesterov, weightDecay }
}

function applySgd(spec: SgdSpec, from: Version, gradient: MeanGradient, to: Version): void {
  const vectors = ({ parameters, state }: Version) => ({ parameters, velocity: state.slots[0] })
  sgd(sgdSettings(spec, from.state.step), vectors(from), gradient, vectors(to))
}

/** Adam's powers of β after this step, multiplied up because Math.pow differs between machines. */
export function nextScalars(
  spec: OptimizerSpec,
  { scalars: [beta1Power = 1, beta2Power = 1] }: OptimizerState,
): readonly number[] {
  if (spec.type === 'sgd') return []
  const { betas: [beta1, beta2] = ADAM_BETAS } = spec
  return [beta1Power * beta1, beta2Power * beta2]
}

interface AdamStep {
  readonly from: Version
  readonly to: Version
  /** β₁ᵗ and β₂ᵗ of the step being taken */
  readonly scalars: readonly number[]
}

function applyAdam(spec: AdamSpec, { from, to, scalars }: AdamStep, gradient: MeanGradient): void {
  adam(adamSettings(spec, from.state.step, scalars), adamVectors(from), gradient, adamVectors(to))
}

export function adamSettings(spec: AdamSpec, step: number, scalars: readonly number[]): AdamSettings {
  const decoupled = spec.type === 'adamw'
  const { betas: [beta1, beta2] = ADAM_BETAS, eps = ADAM_EPS, weightDecay = decoupled ? ADAMW_WEIGHT_DECAY : 0 } = spec
  const [beta1Power = beta1, beta2Power = beta2] = scalars
  return { lr: learningRate(spec, step), beta1, beta2, eps, weightDecay, decoupled, beta1Power, beta2Power }
}

function adamVectors({
  parameters,
  state: {
    slots: [mean, square],
  },
}: Version) {
  if (mean === undefined || square === undefined) throw new Error('internal: the optimizer state is not one of Adam')
  return { parameters, mean, square }
}

function requireLengths(from: Version, expected: number, to: Version): void {
  const lengths = [from, to].flatMap(({ parameters, state }) => [
    parameters.length,
    ...state.slots.map((slot) => slot.length),
  ])
  if (lengths.some((length) => length !== expected) || from.state.slots.length !== to.state.slots.length)
    throw new Error(`internal: an update with ${expected} gradients meets vectors of ${lengths.join(', ')}`)
}
