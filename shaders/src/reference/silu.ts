// Plain silu, elementwise. y = x · s with s = 1 / (1 + e⁻ˣ), so dy/dx = s · (1 + x · (1 − s)).

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'
import { mapElements, mapGradientOfInput } from './elementwise.ts'

export function siluForward(
  dims: ElementwiseDims,
  samples: number,
  { x, y }: KernelOperands<'silu.forward', Float32Array>,
): void {
  mapElements(samples * dims.size, x, y, (value) => value * shareOf(value))
}

export function siluBackward(
  dims: ElementwiseDims,
  samples: number,
  operands: KernelOperands<'silu.backward', Float32Array>,
): void {
  mapGradientOfInput(samples * dims.size, operands, (x) => shareOf(x) * (1 + x * (1 - shareOf(x))))
}

function shareOf(x: number): number {
  return 1 / (1 + Math.exp(-x))
}
