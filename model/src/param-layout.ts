// Where each named parameter lies in the one flat vector that travels, is updated and is stored.

import { elementCount, lastSize, type Shape } from '@starling-grid/shaders'
import { layerShapes } from './expand.ts'
import type { FixedKind, InitialValues, ParameterKind } from './layers/rule.ts'
import type { ModelSpec } from './spec.ts'

export interface ParameterEntry {
  /** PyTorch's name: `fc1.weight` */
  readonly name: string
  readonly shape: Shape
  /** first element in the flat vector */
  readonly offset: number
  readonly length: number
  readonly kind: ParameterKind
  readonly initial: InitialValues
  /** statistics: share of each step's measurement */
  readonly momentum?: number
  /** published files hold the matrix with rows and columns exchanged */
  readonly transposed?: true
}

/** A tensor that stays as it is: it does not travel with versions, and no optimizer sees it. */
export interface FixedEntry {
  readonly name: string
  readonly shape: Shape
  readonly length: number
  readonly kind: FixedKind
  readonly initial: InitialValues
  readonly transposed?: true
}

/** Entries without gaps: those that the optimizer trains in layer order, weight before bias, then statistics. */
export interface ParameterLayout {
  readonly total: number
  /** elements that the optimizer trains; statistics follow them */
  readonly trained: number
  readonly entries: readonly ParameterEntry[]
}

/** Tensors that stay as they are, in layer order. */
export function fixedEntries(spec: ModelSpec): FixedEntry[] {
  return layerShapes(spec)
    .flatMap((layer) => layer.parameters)
    .flatMap(({ name, shape, kind, initial, tied, transposed }) =>
      tied !== true && isFixed(kind)
        ? [{ name, shape, length: elementCount(shape), kind, initial, ...(transposed ? { transposed } : {}) }]
        : [],
    )
}

function isFixed(kind: ParameterKind | FixedKind): kind is FixedKind {
  return kind === 'frozen' || kind === 'constant'
}

export function parameterLayout(spec: ModelSpec): ParameterLayout {
  const parameters = layerShapes(spec)
    .flatMap((layer) => layer.parameters)
    .flatMap(({ kind, tied, ...rest }) => (tied === true || isFixed(kind) ? [] : [{ kind, ...rest }]))
  const isStatistic = ({ kind }: { kind: ParameterKind }) => kind === 'statistic'
  let total = 0
  const entries = [...parameters.filter((parameter) => !isStatistic(parameter)), ...parameters.filter(isStatistic)].map(
    ({ name, shape, kind, initial, momentum, transposed }): ParameterEntry => {
      const entry = {
        name,
        shape,
        offset: total,
        length: elementCount(shape),
        kind,
        initial,
        ...(momentum === undefined ? {} : { momentum }),
        ...(transposed ? { transposed } : {}),
      }
      total += entry.length
      return entry
    },
  )
  return { total, trained: entries.find(isStatistic)?.offset ?? total, entries }
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
  return spec.loss === 'cross_entropy' ? elementCount(output) / lastSize(output) : elementCount(output)
}

/** Backward computes a gradient for the inputs and one for the weights, each as dear as forward. */
const PASSES_PER_STEP = 3
const FLOPS_PER_MULTIPLY_ADD = 2

/** Floating-point operations to train on one sample; rough, for estimates of time and for fair shares. */
export function flopsPerSample(spec: ModelSpec): number {
  return (
    layerShapes(spec).reduce((sum, { multiplyAdds }) => sum + multiplyAdds, 0) *
    FLOPS_PER_MULTIPLY_ADD *
    PASSES_PER_STEP
  )
}

/** Bytes of all values that forward makes for one sample: what backward may need at once. */
export function activationBytesPerSample(spec: ModelSpec): number {
  return layerShapes(spec).reduce((sum, { y }) => sum + elementCount(y), 0) * Float32Array.BYTES_PER_ELEMENT
}
