// Plain sum. y = a + b.

import type { ElementwiseDims, KernelOperands } from '../kernels.ts'

export function addForward(
  { size }: ElementwiseDims,
  samples: number,
  { a, b, y }: KernelOperands<'add.forward', Float32Array>,
): void {
  for (let i = 0; i < samples * size; i++) y[i] = (a[i] ?? 0) + (b[i] ?? 0)
}
