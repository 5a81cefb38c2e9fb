// Plain relu, elementwise. y = max(x, 0); the gradient at 0 is 0, as in PyTorch.
// NaN passes through both ways, so that a diverged model shows in its loss.

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'
import { mapElements, mapGradient } from './elementwise.ts'

export function reluForward(
  dims: ElementwiseDims,
  samples: number,
  { x, y }: KernelOperands<'relu.forward', Float32Array>,
): void {
  mapElements(samples * dims.size, x, y, (value) => (value < 0 ? 0 : value))
}

export function reluBackward(
  dims: ElementwiseDims,
  samples: number,
  operands: KernelOperands<'relu.backward', Float32Array>,
): void {
  mapGradient(samples * dims.size, operands, (y, dy) => (y <= 0 ? 0 : dy))
}
