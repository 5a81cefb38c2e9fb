// The table of layers: type → how its attributes are read, what shape comes out, which parameters it holds, what it costs.
// Adding a layer is adding a row here and an op in the volunteer's graph.

import {
  conv2dShape, elementCount, flattenShape, imageSizes, lastSize, linearShape, pool2dShape, type Shape,
} from '@starling-grid/shaders'
import { type Fields, invalid } from './fields.ts'
import { MAX_KERNEL, MAX_SIZE } from './limits.ts'
import type { ActivationLayer, ActivationType, Conv2dLayer, FlattenLayer, LayerSpec, LinearLayer, PoolLayer, PoolType } from './spec.ts'

export type LayerType = LayerSpec['type']

/** One named tensor that a layer trains. */
export interface ParameterSpec {
  readonly name: string
  readonly shape: Shape
  /** inputs that each output sums over; the initial values spread over ±1/√fanIn */
  readonly fanIn: number
}

export interface LayerRule<L> {
  /** Attributes, defaults filled in. */
  read(fields: Fields): L
  /** Throws GridError('model-invalid') naming `place` when the layer cannot take `x`. */
  shape(layer: L, x: Shape, place: string): Shape
  parameters(layer: L, x: Shape): ParameterSpec[]
  /** Multiply-adds of one forward pass over one sample. */
  multiplyAdds(layer: L, x: Shape, y: Shape): number
}

const SIZE = { min: 1, max: MAX_SIZE }
const KERNEL = { min: 1, max: MAX_KERNEL }
const NO_PARAMETERS = (): ParameterSpec[] => []

const linear: LayerRule<LinearLayer> = {
  read: fields => ({
    type: 'linear', name: fields.name('name'), out: fields.integer('out', SIZE), bias: fields.boolean('bias', true),
    ...expectedInputs(fields),
  }),
  shape(layer, x, place) {
    requireInputs(place, layer.in, lastSize(x), 'inputs')
    return linearShape(x, layer.out)
  },
  parameters: ({ name, out, bias }, x) => weightAndBias(name, [out, lastSize(x)], bias),
  multiplyAdds: (_, x, y) => elementCount(y) * lastSize(x),
}

const conv2d: LayerRule<Conv2dLayer> = {
  read: fields => ({
    type: 'conv2d', name: fields.name('name'), out: fields.integer('out', SIZE),
    ...readWindow(fields, 1), groups: fields.integer('groups', { ...SIZE, otherwise: 1 }), bias: fields.boolean('bias', true),
    ...expectedInputs(fields),
  }),
  shape(layer, x, place) {
    requireImage(place, x)
    const { channels } = imageSizes(x)
    requireInputs(place, layer.in, channels, 'input channels')
    for (const [what, count] of [['input', channels], ['output', layer.out]] as const)
      if (count % layer.groups !== 0)
        throw invalid(`${place} expects ${what} channels divisible by its ${layer.groups} groups and gets ${count}`)
    return requireWindows(place, conv2dShape(x, layer.out, layer), x, layer)
  },
  parameters: ({ name, out, kernel, groups, bias }, x) =>
    weightAndBias(name, [out, imageSizes(x).channels / groups, kernel, kernel], bias),
  multiplyAdds: ({ kernel, groups }, x, y) => elementCount(y) * (imageSizes(x).channels / groups) * kernel * kernel,
}

function pool2d<T extends PoolType>(type: T): LayerRule<PoolLayer<T>> {
  return {
    read: fields => ({ type, ...readWindow(fields, 'kernel') }),
    shape(layer, x, place) {
      requireImage(place, x)
      if (2 * layer.padding > layer.kernel)
        throw invalid(`${place} expects a padding of at most half its kernel ${layer.kernel} and gets ${layer.padding}`)
      return requireWindows(place, pool2dShape(x, layer), x, layer)
    },
    parameters: NO_PARAMETERS,
    multiplyAdds: ({ kernel }, _, y) => elementCount(y) * kernel * kernel,
  }
}

function activation<T extends ActivationType>(type: T): LayerRule<ActivationLayer<T>> {
  return {
    read: () => ({ type }),
    shape: (_, x) => x,
    parameters: NO_PARAMETERS,
    multiplyAdds: (_, __, y) => elementCount(y),
  }
}

const flatten: LayerRule<FlattenLayer> = {
  read: () => ({ type: 'flatten' }),
  shape: (_, x) => flattenShape(x),
  parameters: NO_PARAMETERS,
  multiplyAdds: () => 0,
}

export const LAYERS: { readonly [T in LayerType]: LayerRule<Extract<LayerSpec, { type: T }>> } = {
  linear, conv2d, flatten,
  maxpool2d: pool2d('maxpool2d'),
  avgpool2d: pool2d('avgpool2d'),
  relu: activation('relu'),
  tanh: activation('tanh'),
  sigmoid: activation('sigmoid'),
}

/** The row of this layer. The table pairs each type with its own rule, which the compiler cannot follow through a union. */
export function ruleOf(layer: LayerSpec): LayerRule<LayerSpec> {
  return LAYERS[layer.type] as unknown as LayerRule<LayerSpec>
}

function expectedInputs(fields: Fields): { in?: number } {
  const inputs = fields.optionalInteger('in', SIZE)
  return inputs === undefined ? {} : { in: inputs }
}

function readWindow(fields: Fields, stride: number | 'kernel') {
  const kernel = fields.integer('kernel', KERNEL)
  return {
    kernel,
    stride: fields.integer('stride', { ...KERNEL, otherwise: stride === 'kernel' ? kernel : stride }),
    padding: fields.integer('padding', { min: 0, max: MAX_KERNEL, otherwise: 0 }),
  }
}

function weightAndBias(name: string, shape: Shape, bias: boolean): ParameterSpec[] {
  const fanIn = elementCount(shape.slice(1))
  const weight = { name: `${name}.weight`, shape, fanIn }
  return bias ? [weight, { name: `${name}.bias`, shape: shape.slice(0, 1), fanIn }] : [weight]
}

function requireInputs(place: string, expected: number | undefined, found: number, what: string): void {
  if (expected !== undefined && expected !== found) throw invalid(`${place} expects ${expected} ${what} and gets ${found}`)
}

function requireImage(place: string, x: Shape): void {
  if (x.length !== 3) throw invalid(`${place} expects an image (channels, height, width) and gets the shape [${x.join(', ')}]`)
}

function requireWindows(place: string, y: Shape, x: Shape, { kernel, padding }: { kernel: number; padding: number }): Shape {
  if (y.some(size => size < 1))
    throw invalid(`${place} expects an image of at least ${kernel} × ${kernel} with its padding of ${padding} and gets the shape [${x.join(', ')}]`)
  return y
}
