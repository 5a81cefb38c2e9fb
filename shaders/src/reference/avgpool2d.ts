// Plain average pooling. x (B, C, H, W) → y (B, C, H', W'). Padded cells count as zeros: the divisor is always kernel².

import type { DerivativeDims, KernelOperands, Pool2dDims } from '../kernels.ts'
import { finishGradient } from './finish.ts'
import { forEachWindow } from './pool2d.ts'

type AvgPoolOperands<K extends 'forward' | 'backward'> = KernelOperands<`avgpool2d.${K}`, Float32Array>

export function avgpool2dForward(dims: Pool2dDims, samples: number, { x, y }: AvgPoolOperands<'forward'>): void {
  const scale = 1 / (dims.kernel * dims.kernel)
  forEachWindow(dims, samples, ({ output, plane, rows, columns }) => {
    let sum = 0
    for (let row = rows.first; row < rows.end; row++)
      for (let column = columns.first; column < columns.end; column++) sum += x[plane + row * dims.width + column] ?? 0
    y[output] = sum * scale
  })
}

export function avgpool2dBackward(
  dims: Pool2dDims & DerivativeDims,
  samples: number,
  { dy, activated, dx }: AvgPoolOperands<'backward'>,
): void {
  const scale = 1 / (dims.kernel * dims.kernel)
  dx.fill(0, 0, samples * dims.channels * dims.height * dims.width)
  forEachWindow(dims, samples, ({ output, plane, rows, columns }) => {
    const d = (dy[output] ?? 0) * scale
    for (let row = rows.first; row < rows.end; row++)
      for (let column = columns.first; column < columns.end; column++) {
        const cell = plane + row * dims.width + column
        dx[cell] = (dx[cell] ?? 0) + d
      }
  })
  finishGradient(dims, { size: samples * dims.channels * dims.height * dims.width, activated, dx })
}
