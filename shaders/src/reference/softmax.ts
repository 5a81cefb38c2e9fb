// Plain softmax over the last dimension. x (R, columns) → y (R, columns), with R = samples · rows.

import type { KernelOperands, RowDims } from '../kernels.ts'

export function softmaxForward(
  { rows, columns }: RowDims,
  samples: number,
  { x, y }: KernelOperands<'softmax.forward', Float32Array>,
): void {
  for (let start = 0; start < samples * rows * columns; start += columns) {
    const row = x.subarray(start, start + columns)
    const top = row.reduce((largest, value) => Math.max(largest, value), -Infinity)
    const powers = Array.from(row, (value) => Math.exp(value - top))
    const sum = powers.reduce((total, power) => total + power, 0)
    y.set(
      powers.map((power) => power / sum),
      start,
    )
  }
}

// dx = y · (dy − Σ y · dy)
export function softmaxBackward(
  { rows, columns }: RowDims,
  samples: number,
  { y, dy, dx }: KernelOperands<'softmax.backward', Float32Array>,
): void {
  for (let start = 0; start < samples * rows * columns; start += columns) {
    let mean = 0
    for (let i = start; i < start + columns; i++) mean += (y[i] ?? 0) * (dy[i] ?? 0)
    for (let i = start; i < start + columns; i++) dx[i] = (y[i] ?? 0) * ((dy[i] ?? 0) - mean)
  }
}
