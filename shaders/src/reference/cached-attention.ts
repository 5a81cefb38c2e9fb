// Plain attention with kept keys and values. qkv (R, 3, heads, headSize), places (R,), cache (context, 2, heads,
// headSize) → y (R, heads, headSize), with R = samples: each a token that sees all places up to its own.

import type { CachedAttentionDims, KernelOperands } from '../kernels.ts'

type Operands = KernelOperands<'cached_attention.forward', Float32Array, Int32Array>

export function cachedAttentionForward(dims: CachedAttentionDims, samples: number, operands: Operands): void {
  const { qkv, places, cache } = operands
  const channels = dims.heads * dims.headSize
  for (let row = 0; row < samples; row++) {
    const from = (row * 3 + 1) * channels
    cache.set(qkv.subarray(from, from + 2 * channels), (places[row] ?? 0) * 2 * channels)
  }
  for (let row = 0; row < samples; row++)
    for (let head = 0; head < dims.heads; head++) attend(dims, operands, row, head)
}

function attend({ heads, headSize }: CachedAttentionDims, operands: Operands, row: number, head: number): void {
  const { qkv, places, cache, y } = operands
  const channels = heads * headSize
  const query = row * 3 * channels + head * headSize
  const at = (key: number, part: 0 | 1): number => (key * 2 + part) * channels + head * headSize
  const scores = Array.from({ length: (places[row] ?? 0) + 1 }, (_, key) => {
    let sum = 0
    for (let c = 0; c < headSize; c++) sum += (qkv[query + c] ?? 0) * (cache[at(key, 0) + c] ?? 0)
    return sum / Math.sqrt(headSize)
  })
  const top = scores.reduce((greatest, score) => Math.max(greatest, score), -Infinity)
  const shares = scores.map((score) => Math.exp(score - top))
  const total = shares.reduce((sum, share) => sum + share, 0)
  for (let c = 0; c < headSize; c++)
    y[row * channels + head * headSize + c] =
      shares.reduce((sum, share, key) => sum + share * (cache[at(key, 1) + c] ?? 0), 0) / total
}
