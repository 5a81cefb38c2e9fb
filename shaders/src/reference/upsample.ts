// Nearest upsampling: each cell becomes a square of equal ones. x (B, C, H, W) ⇄ y (B, C, scale · H, scale · W)

import type { KernelOperands, UpsampleDims } from '../kernels.ts'

export function upsampleForward(
  dims: UpsampleDims,
  samples: number,
  { x, y }: KernelOperands<'upsample.forward', Float32Array>,
): void {
  forCells(dims, samples, (small, large) => {
    y[large] = x[small] ?? 0
  })
}

export function upsampleBackward(
  dims: UpsampleDims,
  samples: number,
  { dy, dx }: KernelOperands<'upsample.backward', Float32Array>,
): void {
  dx.fill(0, 0, samples * dims.channels * dims.height * dims.width)
  forCells(dims, samples, (small, large) => {
    dx[small] = (dx[small] ?? 0) + (dy[large] ?? 0)
  })
}

/** Each cell of the larger image, with the cell of the smaller one that it comes from. */
function forCells(
  { channels, height, width, scale }: UpsampleDims,
  samples: number,
  visit: (small: number, large: number) => void,
): void {
  const wide = width * scale
  for (let line = 0; line < samples * channels * height * scale; line++)
    for (let column = 0; column < wide; column++)
      visit(Math.floor(line / scale) * width + Math.floor(column / scale), line * wide + column)
}
