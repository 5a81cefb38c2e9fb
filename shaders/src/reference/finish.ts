// Epilogues, on results that are stored already: of a product, preactivation = y + residual and
// y = activation(preactivation); of a gradient, dx = dx · derivative(activated).

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

interface Applied {
  forward(sizes: FinishSizes, y: Float32Array): void
  backward(sizes: FinishSizes, operands: { readonly activated: Float32Array; readonly dx: Float32Array }): void
}

type PlainKernel<O> = (sizes: FinishSizes, samples: number, operands: O) => void
type Forward = PlainKernel<{ x: Float32Array; y: Float32Array }>

function fromOutput(
  forward: Forward,
  backward: PlainKernel<{ y: Float32Array; dy: Float32Array; dx: Float32Array }>,
): Applied {
  return {
    forward: (sizes, y) => forward(sizes, 1, { x: y, y }),
    backward: (sizes, { activated, dx }) => backward(sizes, 1, { y: activated, dy: dx, dx }),
  }
}

function fromInput(
  forward: Forward,
  backward: PlainKernel<{ x: Float32Array; dy: Float32Array; dx: Float32Array }>,
): Applied {
  return {
    forward: (sizes, y) => forward(sizes, 1, { x: y, y }),
    backward: (sizes, { activated, dx }) => backward(sizes, 1, { x: activated, dy: dx, dx }),
  }
}

const APPLY: { readonly [A in Activation]: Applied } = {
  relu: fromOutput(reluForward, reluBackward),
  tanh: fromOutput(tanhForward, tanhBackward),
  sigmoid: fromOutput(sigmoidForward, sigmoidBackward),
  leaky_relu: fromOutput(leakyReluForward, leakyReluBackward),
  gelu: fromInput(geluForward, geluBackward),
  gelu_tanh: fromInput(geluTanhForward, geluTanhBackward),
  silu: fromInput(siluForward, siluBackward),
}

interface ProductResults {
  readonly size: number
  readonly residual: Float32Array | undefined
  readonly preactivation: Float32Array | undefined
  readonly y: Float32Array
}

export function finish(
  { activation, slope = 0 }: FinishDims,
  { size, residual, preactivation, y }: ProductResults,
): void {
  if (residual) for (let i = 0; i < size; i++) y[i] = (y[i] ?? 0) + (residual[i] ?? 0)
  preactivation?.set(y.subarray(0, size))
  if (activation) APPLY[activation].forward({ size, slope }, y)
}

export function finishGradient(
  { derivative, slope = 0 }: DerivativeDims,
  { size, activated, dx }: { size: number; activated: Float32Array | undefined; dx: Float32Array },
): void {
  if (derivative && activated) APPLY[derivative].backward({ size, slope }, { activated, dx })
}
