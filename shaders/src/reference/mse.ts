// Plain squared error. x and target (B, size) → loss (B,) = Σ (x − target)², dx (B, size) = 2 (x − target).

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'

export function mseLoss(
  dims: ElementwiseDims,
  samples: number,
  { x, target, loss, dx }: KernelOperands<'mse.loss', Float32Array>,
): void {
  for (let sample = 0; sample < samples; sample++) {
    let sum = 0
    for (let i = sample * dims.size; i < (sample + 1) * dims.size; i++) {
      const error = (x[i] ?? 0) - (target[i] ?? 0)
      sum += error * error
      dx[i] = 2 * error
    }
    loss[sample] = sum
  }
}
