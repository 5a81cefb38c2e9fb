// Layers over the last dimension, whatever dimensions lead it; and those that only arrange elements anew.

import { elementCount, flattenShape, lastSize, linearShape, type Shape } from '@starling-grid/shaders'
import { invalid } from '../fields.ts'
import type { AddLayer, ConcatLayer, FlattenLayer, LinearLayer, SwigluLayer } from '../spec.ts'
import {
  frozenIf,
  type LayerRule,
  NO_PARAMETERS,
  type ParameterSpec,
  requireInputs,
  SIZE,
  weightAndBias,
} from './rule.ts'

export const linear: LayerRule<LinearLayer> = {
  read: (fields) => ({
    type: 'linear',
    name: fields.name('name'),
    out: fields.integer('out', SIZE),
    bias: fields.boolean('bias', true),
    ...fields.present('in', fields.optionalInteger('in', SIZE)),
  }),
  shape(layer, [x], place) {
    requireInputs(place, layer.in, lastSize(x), 'inputs')
    return linearShape(x, layer.out)
  },
  parameters: ({ frozen, ...layer }, x) => frozenIf(frozen, linearParameters(layer, x)),
  multiplyAdds: (_, x, y) => elementCount(y) * lastSize(x),
}

function linearParameters({ name, out, bias, tied, deviation, transposed }: LinearLayer, x: Shape): ParameterSpec[] {
  const [matrix, ...rest] = weightAndBias(name, [out, lastSize(x)], bias)
  if (matrix === undefined) throw new Error('internal: a linear layer without a weight')
  const weight: ParameterSpec = transposed ? { ...matrix, transposed } : matrix
  if (tied !== undefined) return [{ ...weight, name: tied, tied: true }, ...rest]
  if (deviation === undefined) return [weight, ...rest]
  const zero = { type: 'constant', value: 0 } as const
  return [
    { ...weight, initial: deviation === 0 ? zero : { type: 'normal', deviation } },
    ...rest.map((bias0) => ({ ...bias0, initial: zero })),
  ]
}

/** silu(a) · b. Comes out of blocks only. */
export const swiglu: LayerRule<SwigluLayer> = {
  read: () => ({ type: 'swiglu' }),
  shape(_, inputs, place) {
    const [a, b] = inputs
    if (inputs.length !== 2 || b?.join() !== a.join())
      throw invalid(
        place,
        'two branches of one shape, of which the first gates the second,',
        inputs.map((x) => `[${x.join(', ')}]`).join(' and '),
      )
    return a
  },
  parameters: NO_PARAMETERS,
  multiplyAdds: (_, __, y) => elementCount(y),
}

export const flatten: LayerRule<FlattenLayer> = {
  read: () => ({ type: 'flatten' }),
  shape: (_, [x]) => flattenShape(x),
  parameters: NO_PARAMETERS,
  multiplyAdds: () => 0,
}

export const add: LayerRule<AddLayer> = {
  read: () => ({ type: 'add' }),
  shape(_, [x, ...others], place) {
    for (const other of others)
      if (other.join() !== x.join())
        throw invalid(
          place,
          'one shape of all the branches that it adds',
          `[${x.join(', ')}] and [${other.join(', ')}]`,
        )
    return x
  },
  parameters: NO_PARAMETERS,
  multiplyAdds: (_, __, y) => elementCount(y),
}

/** Joins along the first dimension of a sample: the channels of images. */
export const concat: LayerRule<ConcatLayer> = {
  read: () => ({ type: 'concat' }),
  shape(_, inputs, place) {
    const [[, ...rest]] = inputs
    for (const other of inputs)
      if (other.slice(1).join() !== rest.join())
        throw invalid(
          place,
          'branches that differ in their first dimension at most, along which it joins them,',
          inputs.map((x) => `[${x.join(', ')}]`).join(' and '),
        )
    return [inputs.reduce((sum, [first = 1]) => sum + first, 0), ...rest]
  },
  parameters: NO_PARAMETERS,
  multiplyAdds: () => 0,
}
