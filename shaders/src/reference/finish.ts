// The epilogue of a product, on results that are stored already: y = activation(y + residual).

import type { Activation, FinishDims } from '../kernels.ts'
import { leakyReluForward } from './leaky-relu.ts'
import { reluForward } from './relu.ts'
import { sigmoidForward } from './sigmoid.ts'
import { tanhForward } from './tanh.ts'

type Apply = (size: number, y: Float32Array, slope: number) => void

const APPLY: { readonly [A in Activation]: Apply } = {
  relu: (size, y) => reluForward({ size }, 1, { x: y, y }),
  tanh: (size, y) => tanhForward({ size }, 1, { x: y, y }),
  sigmoid: (size, y) => sigmoidForward({ size }, 1, { x: y, y }),
  leaky_relu: (size, y, slope) => leakyReluForward({ size, slope }, 1, { x: y, y }),
}

export function finish({ activation, slope = 0 }: FinishDims, { size, residual, y }: { size: number; residual: Float32Array | undefined; y: Float32Array }): void {
  if (residual) for (let i = 0; i < size; i++) y[i] = (y[i] ?? 0) + (residual[i] ?? 0)
  if (activation) APPLY[activation](size, y, slope)
}
