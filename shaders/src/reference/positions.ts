// Plain learned positions. x (B, size) + weight (size,) → y (B, size), with size = T · channels.

import type { KernelOperands, PositionsDims } from '../kernels.ts'

export function positionsForward(
  { size }: PositionsDims,
  samples: number,
  { x, weight, y }: KernelOperands<'positions.forward', Float32Array>,
): void {
  for (let i = 0; i < samples * size; i++) y[i] = (x[i] ?? 0) + (weight[i % size] ?? 0)
}

// dweight (size,) += Σ_samples dy
export function positionsParameterGradient(
  { size }: PositionsDims,
  samples: number,
  { dy, dweight }: KernelOperands<'positions.parameterGradient', Float32Array>,
): void {
  for (let i = 0; i < samples * size; i++) dweight[i % size] = (dweight[i % size] ?? 0) + (dy[i] ?? 0)
}
