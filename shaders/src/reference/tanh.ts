// Plain tanh, elementwise. y = tanh(x), so dy/dx = 1 − y².

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'
import { mapElements, mapGradient } from './elementwise.ts'

export function tanhForward(
  dims: ElementwiseDims,
  samples: number,
  { x, y }: KernelOperands<'tanh.forward', Float32Array>,
): void {
  mapElements(samples * dims.size, x, y, (value) => Math.tanh(value))
}

export function tanhBackward(
  dims: ElementwiseDims,
  samples: number,
  operands: KernelOperands<'tanh.backward', Float32Array>,
): void {
  mapGradient(samples * dims.size, operands, (y, dy) => dy * (1 - y * y))
}
