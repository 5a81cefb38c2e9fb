// The losses: loss → what its target looks like, and the kernel that makes Σloss and the gradient it starts backward with.

import { GridError } from '@starling-grid/protocol'
import { elementCount, lastSize, type KernelCall, type Shape } from '@starling-grid/shaders'
import type { Loss, ModelSpec } from '@starling-grid/model'
import type { Tensor } from './tensor.ts'

/** What a loss kernel reads and writes. */
export interface LossTensors {
  /** the model's output */
  readonly x: Tensor
  readonly target: Tensor
  readonly loss: Tensor
  readonly correct: Tensor
  /** ∂Σloss/∂x */
  readonly dx: Tensor
}

export interface LossRule {
  /** elements of one sample's target: class indices, or values */
  readonly target: 'classes' | 'values'
  targetShape(output: Shape): Shape
  /** numbers of loss that one sample gives */
  rows(output: Shape): number
  kernel(tensors: LossTensors, spec: ModelSpec): KernelCall<Tensor>
}

// x (…, classes), target (…) of class indices
const crossEntropy: LossRule = {
  target: 'classes',
  targetShape: output => output.slice(0, -1),
  rows: output => elementCount(output) / lastSize(output),
  kernel(operands) {
    const classes = lastSize(operands.x.shape)
    return { kernel: 'cross_entropy.loss', dims: { rows: operands.x.size / classes, classes }, operands }
  },
}

// x and target (…)
const mse: LossRule = {
  target: 'values',
  targetShape: output => output,
  rows: () => 1,
  kernel: ({ x, target, loss, dx }) => ({ kernel: 'mse.loss', dims: { size: x.size }, operands: { x, target, loss, dx } }),
}

export const LOSSES: { readonly [L in Loss]?: LossRule } = { cross_entropy: crossEntropy, mse }

export function lossRule(loss: Loss): LossRule {
  const rule = LOSSES[loss]
  if (!rule) throw new GridError('unsupported', `the loss \`${loss}\``)
  return rule
}
