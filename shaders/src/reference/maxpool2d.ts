// Plain max pooling. x (B, C, H, W) → y (B, C, H', W'). Cells outside the input never win; the first of equal cells
// does.

import type { DerivativeDims, KernelOperands, Pool2dDims } from '../kernels.ts'
import { finishGradient } from './finish.ts'
import { forEachWindow, type Window } from './pool2d.ts'

type MaxPoolOperands<K extends 'forward' | 'backward'> = KernelOperands<`maxpool2d.${K}`, Float32Array>

export function maxpool2dForward(dims: Pool2dDims, samples: number, { x, y }: MaxPoolOperands<'forward'>): void {
  forEachWindow(dims, samples, (window) => {
    y[window.output] = x[largest(x, dims.width, window)] ?? 0
  })
}

export function maxpool2dBackward(
  dims: Pool2dDims & DerivativeDims,
  samples: number,
  { x, dy, activated, dx }: MaxPoolOperands<'backward'>,
): void {
  dx.fill(0, 0, samples * dims.channels * dims.height * dims.width)
  forEachWindow(dims, samples, (window) => {
    const cell = largest(x, dims.width, window)
    dx[cell] = (dx[cell] ?? 0) + (dy[window.output] ?? 0)
  })
  finishGradient(dims, { size: samples * dims.channels * dims.height * dims.width, activated, dx })
}

/** Index of the window's largest cell. */
function largest(x: Float32Array, width: number, { plane, rows, columns }: Window): number {
  let best = plane + rows.first * width + columns.first
  for (let row = rows.first; row < rows.end; row++)
    for (let column = columns.first; column < columns.end; column++) {
      const cell = plane + row * width + column
      if ((x[cell] ?? 0) > (x[best] ?? 0)) best = cell
    }
  return best
}
