// LeNet-5 for 28×28 grey images: 61,706 parameters. Source: LeCun et al., "Gradient-Based Learning Applied to Document
// Recognition" (1998), whose pooling is the average and whose activation is tanh. The maximum and relu learn more from
// few images.

import { parseModelSpec } from '../parse.ts'
import type { ModelSpec } from '../spec.ts'

/** Grey levels are stored as bytes. */
const PIXEL_SCALE = 1 / 255

export interface LeNet5Options {
  readonly classes?: number
  readonly pooling?: 'average' | 'maximum'
  readonly activation?: 'relu' | 'tanh'
}

/** @example const start = initialParameters(lenet5(), 42) */
export function lenet5({ classes = 10, pooling = 'average', activation = 'relu' }: LeNet5Options = {}): ModelSpec {
  const pool = { type: pooling === 'average' ? 'avgpool2d' : 'maxpool2d', kernel: 2 }
  return parseModelSpec({
    name: 'lenet5',
    input: [1, 28, 28],
    layers: [
      { type: 'conv2d', name: 'conv1', out: 6, kernel: 5, padding: 2 },
      { type: activation },
      pool,
      { type: 'conv2d', name: 'conv2', out: 16, kernel: 5 },
      { type: activation },
      pool,
      { type: 'flatten' },
      { type: 'linear', name: 'fc1', out: 120 },
      { type: activation },
      { type: 'linear', name: 'fc2', out: 84 },
      { type: activation },
      { type: 'linear', name: 'fc3', out: classes },
    ],
    loss: 'cross_entropy',
    inputScale: PIXEL_SCALE,
  })
}
