// Attention with kept keys and values, for one token at a time or a few: what generating text needs.

import type { CachedAttentionDims } from '../kernels.ts'
import { array, real, STREAM_WORKGROUP, type Pass, type Recipe } from '../recipe.ts'

// qkv (R, 3, heads, headSize), places (R,), cache (context, 2, heads, headSize) → y (R, heads, headSize)
export function cachedAttentionForward({ context, heads, headSize }: CachedAttentionDims, capacity: number): Recipe {
  const channels = heads * headSize
  const scores = capacity * heads * context
  const shared = {
    file: 'cached-attention',
    constants: { CONTEXT: context, HEADS: heads, SIZE: headSize, SCALE: real(1 / Math.sqrt(headSize)) },
    workgroup: STREAM_WORKGROUP,
  } as const
  const [qkv, places] = [array('qkv', 'read', capacity * 3 * channels), array('places', 'read', capacity, 'i32')]
  const cache = (access: 'read' | 'update') => array('cache', access, context * 2 * channels)
  const store: Pass = {
    ...shared,
    entryPoint: 'store',
    bindings: [qkv, places, cache('update')],
    threads: (samples) => samples * 2 * channels,
  }
  const score: Pass = {
    ...shared,
    entryPoint: 'score',
    bindings: [qkv, places, cache('read'), array('scores', 'write', scores)],
    threads: (samples) => samples * heads * context,
  }
  const mix: Pass = {
    ...shared,
    entryPoint: 'mix',
    bindings: [places, cache('read'), array('scores', 'read', scores), array('y', 'write', capacity * channels)],
    threads: (samples) => samples * channels,
  }
  return { scratch: { scores }, passes: [store, score, mix] }
}
