// Plain gated branch, elementwise. y = a · s · b with s = 1 / (1 + e⁻ᵃ): silu of the gate `a` times `b`.

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'

type SwigluOperands<K extends 'forward' | 'gateGradient' | 'valueGradient'> = KernelOperands<
  `swiglu.${K}`,
  Float32Array
>

export function swigluForward(
  { size }: ElementwiseDims,
  samples: number,
  { a, b, y }: SwigluOperands<'forward'>,
): void {
  for (let i = 0; i < samples * size; i++) y[i] = (a[i] ?? 0) * shareOf(a[i] ?? 0) * (b[i] ?? 0)
}

// ∂y/∂a = b · s · (1 + a · (1 − s))
export function swigluGateGradient(
  { size }: ElementwiseDims,
  samples: number,
  { a, b, dy, dx }: SwigluOperands<'gateGradient'>,
): void {
  for (let i = 0; i < samples * size; i++) {
    const gate = a[i] ?? 0
    const share = shareOf(gate)
    dx[i] = (dy[i] ?? 0) * (b[i] ?? 0) * share * (1 + gate * (1 - share))
  }
}

// ∂y/∂b = a · s
export function swigluValueGradient(
  { size }: ElementwiseDims,
  samples: number,
  { a, dy, dx }: SwigluOperands<'valueGradient'>,
): void {
  for (let i = 0; i < samples * size; i++) dx[i] = (dy[i] ?? 0) * (a[i] ?? 0) * shareOf(a[i] ?? 0)
}

function shareOf(x: number): number {
  return 1 / (1 + Math.exp(-x))
}
