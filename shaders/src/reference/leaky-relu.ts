// Plain leaky relu, elementwise. y = x above 0, else slope · x; the gradient at 0 is the slope, as in PyTorch.

import type { KernelOperands, LeakyReluDims } from '../kernels.ts'
import { mapElements, mapGradient } from './elementwise.ts'

export function leakyReluForward(
  { size, slope }: LeakyReluDims,
  samples: number,
  { x, y }: KernelOperands<'leaky_relu.forward', Float32Array>,
): void {
  mapElements(samples * size, x, y, (value) => (value > 0 ? value : slope * value))
}

export function leakyReluBackward(
  { size, slope }: LeakyReluDims,
  samples: number,
  operands: KernelOperands<'leaky_relu.backward', Float32Array>,
): void {
  mapGradient(samples * size, operands, (y, dy) => (y > 0 ? dy : slope * dy))
}
