// The plain mean of each channel. x (B, C, plane) → y (B, C)

import type { GlobalAvgPoolDims, KernelOperands } from '../kernels.ts'

type GlobalAvgPoolOperands<K extends 'forward' | 'backward'> = KernelOperands<`globalavgpool.${K}`, Float32Array>

export function globalavgpoolForward(
  { channels, plane }: GlobalAvgPoolDims,
  samples: number,
  { x, y }: GlobalAvgPoolOperands<'forward'>,
): void {
  for (let p = 0; p < samples * channels; p++)
    y[p] = x.subarray(p * plane, (p + 1) * plane).reduce((sum, value) => sum + value, 0) / plane
}

export function globalavgpoolBackward(
  { channels, plane }: GlobalAvgPoolDims,
  samples: number,
  { dy, dx }: GlobalAvgPoolOperands<'backward'>,
): void {
  for (let p = 0; p < samples * channels; p++) dx.fill((dy[p] ?? 0) / plane, p * plane, (p + 1) * plane)
}
