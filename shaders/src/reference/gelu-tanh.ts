// Plain gelu as GPT-2 approximates it, elementwise. y = x · (1 + tanh u) / 2 with u = √(2/π) · (x + 0.044715 x³).

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'
import { mapElements, mapGradientOfInput } from './elementwise.ts'

const ROOT = Math.sqrt(2 / Math.PI)
const CUBIC = 0.044715

export function geluTanhForward(
  dims: ElementwiseDims,
  samples: number,
  { x, y }: KernelOperands<'gelu_tanh.forward', Float32Array>,
): void {
  mapElements(samples * dims.size, x, y, (value) => value * shareOf(value))
}

export function geluTanhBackward(
  dims: ElementwiseDims,
  samples: number,
  operands: KernelOperands<'gelu_tanh.backward', Float32Array>,
): void {
  mapGradientOfInput(samples * dims.size, operands, (x) => {
    const share = shareOf(x)
    return share + 2 * x * share * (1 - share) * ROOT * (1 + 3 * CUBIC * x * x)
  })
}

/** (1 + tanh u) / 2 without the cancellation near −1 */
function shareOf(x: number): number {
  return 1 / (1 + Math.exp(-2 * ROOT * (x + CUBIC * x ** 3)))
}
