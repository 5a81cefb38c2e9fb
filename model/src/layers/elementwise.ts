// Layers that keep the shape and look at one element at a time.

import { elementCount } from '@starling-grid/shaders'
import type { ActivationLayer, ActivationType, DropoutLayer, LeakyReluLayer, ScaleLayer } from '../spec.ts'
import { type LayerRule, NO_PARAMETERS } from './rule.ts'

/** PyTorch's default. */
const NEGATIVE_SLOPE = 0.01

const sameShape = {
  shape: (_: unknown, [x]: readonly [readonly number[], ...unknown[]]) => x,
  parameters: NO_PARAMETERS,
  multiplyAdds: (_: unknown, __: unknown, y: readonly number[]) => elementCount(y),
}

export function activation<T extends ActivationType>(type: T): LayerRule<ActivationLayer<T>> {
  return { read: () => ({ type }), ...sameShape }
}

export const leakyRelu: LayerRule<LeakyReluLayer> = {
  read: (fields) => ({ type: 'leaky_relu', negative_slope: fields.positive('negative_slope', NEGATIVE_SLOPE) }),
  ...sameShape,
}

export const scale: LayerRule<ScaleLayer> = {
  read: (fields) => ({ type: 'scale', factor: fields.positive('factor') }),
  ...sameShape,
}

export const dropout: LayerRule<DropoutLayer> = {
  read: (fields) => ({ type: 'dropout', p: fields.fraction('p') ?? 0.5 }),
  ...sameShape,
}
