// Layers that slide a window over an image: convolution and pooling.

import { conv2dShape, elementCount, imageSizes, pool2dShape, type Shape } from '@starling-grid/shaders'
import { type Fields, invalid } from '../fields.ts'
import { MAX_KERNEL } from '../limits.ts'
import type { Conv2dLayer, GlobalAvgPoolLayer, PoolLayer, PoolType } from '../spec.ts'
import { KERNEL, type LayerRule, NO_PARAMETERS, requireImage, requireInputs, SIZE, weightAndBias } from './rule.ts'

export const conv2d: LayerRule<Conv2dLayer> = {
  read: (fields) => ({
    type: 'conv2d',
    name: fields.name('name'),
    out: fields.integer('out', SIZE),
    ...readWindow(fields, 1),
    groups: fields.integer('groups', { ...SIZE, otherwise: 1 }),
    bias: fields.boolean('bias', true),
    ...fields.present('in', fields.optionalInteger('in', SIZE)),
  }),
  shape(layer, [x], place) {
    const { channels } = requireImage(place, x)
    requireInputs(place, layer.in, channels, 'input channels')
    for (const [what, count] of [
      ['input', channels],
      ['output', layer.out],
    ] as const)
      if (count % layer.groups !== 0)
        throw invalid(place, `${what} channels divisible by its ${layer.groups} groups`, String(count))
    return requireWindows(place, conv2dShape(x, layer.out, layer), x, layer)
  },
  parameters: ({ name, out, kernel, groups, bias }, x) =>
    weightAndBias(name, [out, imageSizes(x).channels / groups, kernel, kernel], bias),
  multiplyAdds: ({ kernel, groups }, x, y) => elementCount(y) * (imageSizes(x).channels / groups) * kernel * kernel,
}

export function pool2d<T extends PoolType>(type: T): LayerRule<PoolLayer<T>> {
  return {
    read: (fields) => ({ type, ...readWindow(fields, 'kernel') }),
    shape(layer, [x], place) {
      requireImage(place, x)
      if (2 * layer.padding > layer.kernel)
        throw invalid(place, `a padding of at most half its kernel ${layer.kernel}`, String(layer.padding))
      return requireWindows(place, pool2dShape(x, layer), x, layer)
    },
    parameters: NO_PARAMETERS,
    multiplyAdds: ({ kernel }, _, y) => elementCount(y) * kernel * kernel,
  }
}

export const globalavgpool: LayerRule<GlobalAvgPoolLayer> = {
  read: () => ({ type: 'globalavgpool' }),
  shape: (_, [x], place) => [x.length === 2 ? (x[0] ?? 0) : requireImage(place, x).channels],
  parameters: NO_PARAMETERS,
  multiplyAdds: (_, x) => elementCount(x),
}

function readWindow(fields: Fields, stride: number | 'kernel') {
  const kernel = fields.integer('kernel', KERNEL)
  return {
    kernel,
    stride: fields.integer('stride', { ...KERNEL, otherwise: stride === 'kernel' ? kernel : stride }),
    padding: fields.integer('padding', { min: 0, max: MAX_KERNEL, otherwise: 0 }),
  }
}

function requireWindows(
  place: string,
  y: Shape,
  x: Shape,
  { kernel, padding }: { kernel: number; padding: number },
): Shape {
  if (y.some((size) => size < 1))
    throw invalid(
      place,
      `an image of at least ${kernel} × ${kernel} with its padding of ${padding}`,
      `the shape [${x.join(', ')}]`,
    )
  return y
}
