// The losses: loss → what its target looks like, and the kernel that makes Σloss and the gradient it starts backward
// with.

import type { Loss, ModelSpec } from '@starling-grid/model'
import { elementCount, lastSize, type KernelCall, type Shape } from '@starling-grid/shaders'
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
  /** what a target is: a class index, or a value */
  readonly target: 'classes' | 'values'
  targetShape(output: Shape): Shape
  /** whether `correct` says how many targets were met */
  readonly counts: boolean
  /** numbers of loss that one sample gives */
  rows(output: Shape): number
  kernel(tensors: LossTensors, spec: ModelSpec): KernelCall<Tensor>
}

// x (…, classes), target (…) of class indices
const crossEntropy: LossRule = {
  target: 'classes',
  targetShape: (output) => output.slice(0, -1),
  counts: true,
  rows: (output) => elementCount(output) / lastSize(output),
  kernel(operands, { label_smoothing: smoothing, ignore_index: ignored }) {
    const classes = lastSize(operands.x.shape)
    const options = { ...(smoothing === undefined ? {} : { smoothing }), ...(ignored === undefined ? {} : { ignored }) }
    return { kernel: 'cross_entropy.loss', dims: { rows: operands.x.size / classes, classes, ...options }, operands }
  },
}

// x and target (…)
const mse: LossRule = {
  target: 'values',
  targetShape: (output) => output,
  counts: false,
  rows: () => 1,
  kernel: ({ x, target, loss, dx }) => ({
    kernel: 'mse.loss',
    dims: { size: x.size },
    operands: { x, target, loss, dx },
  }),
}

// x and target (…), each target from 0 to 1; an output is correct on the side of ½ on which its target is
const bceWithLogits: LossRule = {
  target: 'values',
  targetShape: (output) => output,
  counts: true,
  rows: () => 1,
  kernel: (operands) => ({ kernel: 'bce_with_logits.loss', dims: { size: operands.x.size }, operands }),
}

export const LOSSES: { readonly [L in Loss]: LossRule } = {
  cross_entropy: crossEntropy,
  mse,
  bce_with_logits: bceWithLogits,
}

export function lossRule(loss: Loss): LossRule {
  return LOSSES[loss]
}
