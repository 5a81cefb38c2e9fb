// Plain embedding. ids (R,), weight (vocab, channels) of the ids from `first` on → y (R, channels), with R = samples ·
// tokens.

import type { EmbeddingDims, KernelOperands } from '../kernels.ts'

type EmbeddingOperands<K extends 'forward' | 'parameterGradient'> = KernelOperands<
  `embedding.${K}`,
  Float32Array,
  Int32Array
>

export function embeddingForward(
  { tokens, vocab, channels, first = 0 }: EmbeddingDims,
  samples: number,
  { ids, weight, y }: EmbeddingOperands<'forward'>,
): void {
  for (let row = 0; row < samples * tokens; row++) {
    const id = (ids[row] ?? 0) - first
    if (id < 0 || id >= vocab) continue
    const start = id * channels
    y.set(weight.subarray(start, start + channels), row * channels)
  }
}

// dweight[ids] += dy
export function embeddingParameterGradient(
  { tokens, vocab, channels, first = 0 }: EmbeddingDims,
  samples: number,
  { ids, dy, dweight }: EmbeddingOperands<'parameterGradient'>,
): void {
  for (let row = 0; row < samples * tokens; row++) {
    const id = (ids[row] ?? 0) - first
    if (id < 0 || id >= vocab) continue
    const start = id * channels
    for (let c = 0; c < channels; c++) dweight[start + c] = (dweight[start + c] ?? 0) + (dy[row * channels + c] ?? 0)
  }
}
