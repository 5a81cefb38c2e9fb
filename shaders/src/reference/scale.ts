// Plain multiplication by a number. y = factor · x.

import type { KernelOperands, ScaleDims } from '../kernels.ts'
import { mapElements } from './elementwise.ts'

export function scaleForward(
  { size, factor }: ScaleDims,
  samples: number,
  { x, y }: KernelOperands<'scale.forward', Float32Array>,
): void {
  mapElements(samples * size, x, y, (value) => value * factor)
}
