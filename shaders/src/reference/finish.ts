// Epilogues, on results that are stored already: of a product, y = activation(y + residual); of a gradient,
// dx = dx · derivative(activated).

import type { Activation, DerivativeDims, FinishDims } from '../kernels.ts'
import { leakyReluBackward, leakyReluForward } from './leaky-relu.ts'
import { reluBackward, reluForward } from './relu.ts'
import { sigmoidBackward, sigmoidForward } from './sigmoid.ts'
import { tanhBackward, tanhForward } from './tanh.ts'

interface FinishSizes {
  readonly size: number
  /** of leaky_relu */
  readonly slope: number
}

type FinishOperands = { y: Float32Array; dy: Float32Array; dx: Float32Array }

const APPLY: {
  readonly [A in Activation]: {
    forward(sizes: FinishSizes, y: Float32Array): void
    backward(sizes: FinishSizes, operands: FinishOperands): void
  }
} = {
  relu: {
    forward: (sizes, y) => reluForward(sizes, 1, { x: y, y }),
    backward: (sizes, operands) => reluBackward(sizes, 1, operands),
  },
  tanh: {
    forward: (sizes, y) => tanhForward(sizes, 1, { x: y, y }),
    backward: (sizes, operands) => tanhBackward(sizes, 1, operands),
  },
  sigmoid: {
    forward: (sizes, y) => sigmoidForward(sizes, 1, { x: y, y }),
    backward: (sizes, operands) => sigmoidBackward(sizes, 1, operands),
  },
  leaky_relu: {
    forward: (sizes, y) => leakyReluForward(sizes, 1, { x: y, y }),
    backward: (sizes, operands) => leakyReluBackward(sizes, 1, operands),
  },
}

export function finish(
  { activation, slope = 0 }: FinishDims,
  { size, residual, y }: { size: number; residual: Float32Array | undefined; y: Float32Array },
): void {
  if (residual) for (let i = 0; i < size; i++) y[i] = (y[i] ?? 0) + (residual[i] ?? 0)
  if (activation) APPLY[activation].forward({ size, slope }, y)
}

export function finishGradient(
  { derivative, slope = 0 }: DerivativeDims,
  { size, activated, dx }: { size: number; activated: Float32Array | undefined; dx: Float32Array },
): void {
  if (derivative && activated) APPLY[derivative].backward({ size, slope }, { y: activated, dy: dx, dx })
}
