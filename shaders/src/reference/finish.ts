// Epilogues, on results that are stored already: of a product, before = y + residual and y = activation(before); of a
// gradient, dx = dx · derivative(activated).

import type { Activation, DerivativeDims, FinishDims } from '../kernels.ts'
import { geluTanhBackward, geluTanhForward } from './gelu-tanh.ts'
import { geluBackward, geluForward } from './gelu.ts'
import { leakyReluBackward, leakyReluForward } from './leaky-relu.ts'
import { reluBackward, reluForward } from './relu.ts'
import { sigmoidBackward, sigmoidForward } from './sigmoid.ts'
import { siluBackward, siluForward } from './silu.ts'
import { tanhBackward, tanhForward } from './tanh.ts'

interface FinishSizes {
  readonly size: number
  /** of leaky_relu */
  readonly slope: number
}

interface GradientOperands {
  readonly activated: Float32Array
  readonly dx: Float32Array
}

const APPLY: {
  readonly [A in Activation]: {
    forward(sizes: FinishSizes, y: Float32Array): void
    backward(sizes: FinishSizes, operands: GradientOperands): void
  }
} = {
  relu: {
    forward: (sizes, y) => reluForward(sizes, 1, { x: y, y }),
    backward: (sizes, { activated: y, dx }) => reluBackward(sizes, 1, { y, dy: dx, dx }),
  },
  tanh: {
    forward: (sizes, y) => tanhForward(sizes, 1, { x: y, y }),
    backward: (sizes, { activated: y, dx }) => tanhBackward(sizes, 1, { y, dy: dx, dx }),
  },
  sigmoid: {
    forward: (sizes, y) => sigmoidForward(sizes, 1, { x: y, y }),
    backward: (sizes, { activated: y, dx }) => sigmoidBackward(sizes, 1, { y, dy: dx, dx }),
  },
  leaky_relu: {
    forward: (sizes, y) => leakyReluForward(sizes, 1, { x: y, y }),
    backward: (sizes, { activated: y, dx }) => leakyReluBackward(sizes, 1, { y, dy: dx, dx }),
  },
  gelu: {
    forward: (sizes, y) => geluForward(sizes, 1, { x: y, y }),
    backward: (sizes, { activated: x, dx }) => geluBackward(sizes, 1, { x, dy: dx, dx }),
  },
  gelu_tanh: {
    forward: (sizes, y) => geluTanhForward(sizes, 1, { x: y, y }),
    backward: (sizes, { activated: x, dx }) => geluTanhBackward(sizes, 1, { x, dy: dx, dx }),
  },
  silu: {
    forward: (sizes, y) => siluForward(sizes, 1, { x: y, y }),
    backward: (sizes, { activated: x, dx }) => siluBackward(sizes, 1, { x, dy: dx, dx }),
  },
}

interface ProductResults {
  readonly size: number
  readonly residual: Float32Array | undefined
  readonly before: Float32Array | undefined
  readonly y: Float32Array
}

export function finish({ activation, slope = 0 }: FinishDims, { size, residual, before, y }: ProductResults): void {
  if (residual) for (let i = 0; i < size; i++) y[i] = (y[i] ?? 0) + (residual[i] ?? 0)
  before?.set(y.subarray(0, size))
  if (activation) APPLY[activation].forward({ size, slope }, y)
}

export function finishGradient(
  { derivative, slope = 0 }: DerivativeDims,
  { size, activated, dx }: { size: number; activated: Float32Array | undefined; dx: Float32Array },
): void {
  if (derivative && activated) APPLY[derivative].backward({ size, slope }, { activated, dx })
}
