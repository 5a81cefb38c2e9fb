// Plain gelu, elementwise. y = x · Φ(x), the normal distribution function; dy/dx = Φ(x) + x · φ(x).

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'
import { mapElements, mapGradientOfInput } from './elementwise.ts'

export function geluForward(
  dims: ElementwiseDims,
  samples: number,
  { x, y }: KernelOperands<'gelu.forward', Float32Array>,
): void {
  mapElements(samples * dims.size, x, y, (value) => value * distribution(value))
}

export function geluBackward(
  dims: ElementwiseDims,
  samples: number,
  operands: KernelOperands<'gelu.backward', Float32Array>,
): void {
  mapGradientOfInput(
    samples * dims.size,
    operands,
    (x) => distribution(x) + (x * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI),
  )
}

/** Φ(x) = erfc(−x/√2) / 2 */
function distribution(x: number): number {
  const tail = erfcOfPositive(Math.abs(x) * Math.SQRT1_2) / 2
  return x > 0 ? 1 - tail : tail
}

/**
 * Source: Press et al., Numerical Recipes, 2nd edition (1992), section 6.2, erfcc: relative error below 1.2e-7
 * everywhere.
 */
const ERFCC = [
  0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
  -1.26551223,
]

function erfcOfPositive(z: number): number {
  const t = 1 / (1 + z / 2)
  return t * Math.exp(ERFCC.reduce((sum, coefficient) => sum * t + coefficient, 0) - z * z)
}
