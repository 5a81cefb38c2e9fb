// One of several inputs at its place in their joint output. x (B, size) ⇄ part of y (B, total)

import type { ConcatDims, KernelOperands } from '../kernels.ts'

type ConcatOperands<K extends 'forward' | 'backward'> = KernelOperands<`concat.${K}`, Float32Array>

export function concatForward(
  { size, offset, total }: ConcatDims,
  samples: number,
  { x, y }: ConcatOperands<'forward'>,
): void {
  for (let sample = 0; sample < samples; sample++)
    y.set(x.subarray(sample * size, (sample + 1) * size), sample * total + offset)
}

export function concatBackward(
  { size, offset, total }: ConcatDims,
  samples: number,
  { dy, dx }: ConcatOperands<'backward'>,
): void {
  for (let sample = 0; sample < samples; sample++)
    dx.set(dy.subarray(sample * total + offset, sample * total + offset + size), sample * size)
}
