// Steps of an optimizer on a device that keeps parameters and state (optimizer.wgsl). No model calls these kernels, so
// no table of a model lists them. Their reference is the exact update of `optimizer.ts`, which they equal up to
// rounding. Scalars are made here, once a step, in double precision.

import {
  adamSettings,
  nextScalars,
  type OptimizerSpec,
  type OptimizerState,
  sgdSettings,
  slotNames,
} from '../optimizer.ts'
import { array, STREAM_WORKGROUP, type Binding, type Pass } from '../recipe.ts'
import { type AdamScalars, adamScalars } from '../reference/adamw.ts'
import type { SgdSettings } from '../reference/sgd.ts'

/** Quads of a chunk for each invocation of a workgroup. */
const QUADS = 16
/** Elements of a chunk at most: one workgroup sums its squares, and a step has a workgroup for each of its QUADS. */
export const CHUNK_ELEMENTS = 4 * QUADS * STREAM_WORKGROUP
/** Words of the table for each chunk: first quad, elements, what it is, share of a statistic as bits of an f32. */
export const CHUNK_WORDS = 4
export const CHUNK = { decayed: 0, undecayed: 1, statistic: 2 } as const
/** f32 that a step's kernel reads */
export const STEP_SCALARS = 12

/** Of one segment of the flat vectors. */
export interface SegmentDims {
  readonly elements: number
  readonly chunks: number
}

// gradient (elements,) → partials (chunks,): Σ squares; −1: not finite
export function squaresPass({ elements, chunks }: SegmentDims): Pass {
  return pass('squares', { elements, chunks }, { workgroups: 1, bindings: [array('partials', 'write', chunks)] })
}

// gradient, parameters, the optimizer's slots (elements,) → parameters, slots
export function stepPass(optimizer: OptimizerSpec, dims: SegmentDims): Pass {
  const slots = slotNames(optimizer)
  const sgd = slots.length > 0 ? 'sgd_momentum' : 'sgd'
  const entryPoint = optimizer.type === 'sgd' ? sgd : 'adam'
  const vector = (name: string): Binding => array(name, 'update', dims.elements, 'vec4f')
  const bindings = [
    array('scalars', 'read', STEP_SCALARS),
    vector('parameters'),
    ...slots.map((name) => vector(name === 'momentum_buffer' ? 'velocity' : name)),
  ]
  return pass(entryPoint, dims, { workgroups: QUADS, bindings })
}

interface ChunkPass {
  /** for each chunk */
  readonly workgroups: number
  readonly bindings: readonly Binding[]
}

function pass(entryPoint: string, { elements, chunks }: SegmentDims, { workgroups, bindings }: ChunkPass): Pass {
  return {
    file: 'optimizer',
    entryPoint,
    constants: { QUADS },
    bindings: [
      array('chunks', 'read', CHUNK_WORDS * chunks, 'vec4u'),
      array('gradient', 'read', elements, 'vec4f'),
      ...bindings,
    ],
    workgroup: STREAM_WORKGROUP,
    threads: (count) => count * workgroups * STREAM_WORKGROUP,
  }
}

/** What a step multiplies by, for an optimizer whose vectors are on a device. */
export type DeviceStep = ({ readonly type: 'sgd' } & SgdSettings) | ({ readonly type: 'adam' } & AdamScalars)

/** The step after `state`, which goes on to it; its slots are not looked at. */
export function deviceStep(spec: OptimizerSpec, state: OptimizerState): DeviceStep {
  const scalars = nextScalars(spec, state)
  const step: DeviceStep =
    spec.type === 'sgd'
      ? { type: 'sgd', ...sgdSettings(spec, state.step) }
      : { type: 'adam', ...adamScalars(adamSettings(spec, state.step, scalars)) }
  state.scalars.set(scalars)
  state.step++
  return step
}

/**
 * What the kernel reads of a step: SCALAR_ in optimizer.wgsl. `mean`: factor of the sum; `share`: that of statistics.
 */
export function stepScalars(
  step: DeviceStep,
  { mean, share }: { readonly mean: number; readonly share: number },
): Float32Array<ArrayBuffer> {
  const scalars = new Float32Array(STEP_SCALARS)
  scalars.set([mean, share, ...rule(step)])
  return scalars
}

function rule(step: DeviceStep): readonly number[] {
  if (step.type === 'sgd') return [step.lr, step.weightDecay, step.momentum, Number(step.nesterov)]
  const { beta1, rest1, beta2, rest2, eps, stepSize, rootCorrection, shrink, decay } = step
  return [stepSize, decay, beta1, rest1, beta2, rest2, rootCorrection, eps, shrink]
}
