// Normalisations: over a batch, over the last dimension, over groups of channels.

import { elementCount, lastSize } from '@starling-grid/shaders'
import { invalid } from '../fields.ts'
import type { BatchNorm2dLayer, GroupNormLayer, LayerNormLayer, RmsNormLayer } from '../spec.ts'
import { frozenIf, type LayerRule, type ParameterSpec, requireImage, scaleAndShift, SIZE } from './rule.ts'

/** PyTorch's defaults. */
const EPS = 1e-5
const RMS_EPS = 1e-6
const STATISTICS_MOMENTUM = 0.1
/** Read, subtract, square, scale, shift. */
const OPERATIONS = 5

const cost = (_: unknown, __: unknown, y: readonly number[]) => OPERATIONS * elementCount(y)

export const batchnorm2d: LayerRule<BatchNorm2dLayer> = {
  read: (fields) => ({
    type: 'batchnorm2d',
    name: fields.name('name'),
    eps: fields.positive('eps', EPS),
    momentum: fields.fraction('momentum') ?? STATISTICS_MOMENTUM,
  }),
  shape(_, [x], place) {
    requireImage(place, x)
    return x
  },
  parameters: ({ name, momentum }, [channels = 1]) => {
    const statistic = (role: string, suffix: string, value: number): ParameterSpec => ({
      role,
      name: `${name}.${suffix}`,
      shape: [channels],
      kind: 'statistic',
      initial: { type: 'constant', value },
      momentum,
    })
    return [
      ...scaleAndShift(name, channels),
      statistic('runningMean', 'running_mean', 0),
      statistic('runningVariance', 'running_var', 1),
    ]
  },
  multiplyAdds: cost,
}

export const layernorm: LayerRule<LayerNormLayer> = {
  read: (fields) => ({
    type: 'layernorm',
    name: fields.name('name'),
    eps: fields.positive('eps', EPS),
    bias: fields.boolean('bias', true),
  }),
  shape: (_, [x]) => x,
  parameters: ({ name, bias, frozen }, x) => frozenIf(frozen, scaleAndShift(name, lastSize(x), bias)),
  multiplyAdds: cost,
}

export const rmsnorm: LayerRule<RmsNormLayer> = {
  read: (fields) => ({
    type: 'rmsnorm',
    name: fields.name('name'),
    eps: fields.positive('eps', RMS_EPS),
    ...fields.present('size', fields.optionalInteger('size', SIZE)),
  }),
  shape({ size }, [x], place) {
    if (size !== undefined && lastSize(x) % size !== 0)
      throw invalid(place, `a last dimension divisible by its \`size\` ${size}`, String(lastSize(x)))
    return x
  },
  parameters: ({ name, size, frozen }, x) => frozenIf(frozen, scaleAndShift(name, size ?? lastSize(x), false)),
  multiplyAdds: cost,
}

export const groupnorm: LayerRule<GroupNormLayer> = {
  read: (fields) => ({
    type: 'groupnorm',
    name: fields.name('name'),
    groups: fields.integer('groups', SIZE),
    eps: fields.positive('eps', EPS),
  }),
  shape(layer, [x], place) {
    const { channels } = requireImage(place, x)
    if (channels % layer.groups !== 0)
      throw invalid(place, `channels divisible by its ${layer.groups} groups`, String(channels))
    return x
  },
  parameters: ({ name }, [channels = 1]) => scaleAndShift(name, channels),
  multiplyAdds: cost,
}
