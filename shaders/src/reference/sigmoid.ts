// Plain sigmoid, elementwise. y = 1 / (1 + e⁻ˣ), so dy/dx = y(1 − y).

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'
import { mapElements, mapGradient } from './elementwise.ts'

export function sigmoidForward(
  dims: ElementwiseDims,
  samples: number,
  { x, y }: KernelOperands<'sigmoid.forward', Float32Array>,
): void {
  mapElements(samples * dims.size, x, y, (value) => 1 / (1 + Math.exp(-value)))
}

export function sigmoidBackward(
  dims: ElementwiseDims,
  samples: number,
  operands: KernelOperands<'sigmoid.backward', Float32Array>,
): void {
  mapGradient(samples * dims.size, operands, (y, dy) => dy * y * (1 - y))
}
