// Where each named parameter lies in the one flat vector that travels, is updated and is stored.

import { elementCount, lastSize, type Shape } from '@starling-grid/shaders'
import { layerShapes } from './parse.ts'
import type { ModelSpec } from './spec.ts'

export interface ParameterEntry {
  /** PyTorch's name: `fc1.weight` */
  readonly name: string
  readonly shape: Shape
  /** first element in the flat vector */
  readonly offset: number
  readonly length: number
  readonly fanIn: number
}

/** Entries in layer order, weight before bias, without gaps. */
export interface ParameterLayout {
  readonly total: number
  readonly entries: readonly ParameterEntry[]
}

export function parameterLayout(spec: ModelSpec): ParameterLayout {
  let total = 0
  const entries = layerShapes(spec).flatMap(layer => layer.parameters).map(({ name, shape, fanIn }) => {
    const entry = { name, shape, offset: total, length: elementCount(shape), fanIn }
    total += entry.length
    return entry
  })
  return { total, entries }
}

export function parameterCount(spec: ModelSpec): number {
  return parameterLayout(spec).total
}

/** Shape of one sample's output. */
export function outputShape(spec: ModelSpec): Shape {
  return layerShapes(spec).at(-1)?.y ?? spec.input
}

/** How many targets the loss of one sample sums over: Σloss ÷ (samples × this) is the mean loss. */
export function targetsPerSample(spec: ModelSpec): number {
  const output = outputShape(spec)
  return spec.loss === 'mse' ? elementCount(output) : elementCount(output) / lastSize(output)
}

/** Backward computes a gradient for the inputs and one for the weights, each as dear as forward. */
const PASSES_PER_STEP = 3
const FLOPS_PER_MULTIPLY_ADD = 2

/** Floating-point operations to train on one sample; rough, for estimates of time and for fair shares. */
export function flopsPerSample(spec: ModelSpec): number {
  return layerShapes(spec).reduce((sum, { multiplyAdds }) => sum + multiplyAdds, 0) * FLOPS_PER_MULTIPLY_ADD * PASSES_PER_STEP
}
