// Attention for software adapters: batched matrix products in register tiles over kept probabilities.

import type { AttentionDims } from '../kernels.ts'
import { matrix, ofOperand, real, STREAM_WORKGROUP, TILE_WORKGROUP, tiles, type Pass, type Recipe } from '../recipe.ts'

// qkv (B, T, 3, H, D) → probabilities (B, H, T, T), y (B, T, H, D)
export function attentionForward(dims: AttentionDims, capacity: number): Recipe {
  const { qkv, pairs, mixed, products, rows } = parts(dims, capacity)
  return {
    scratch: {},
    passes: [
      { ...products.pairs, entryPoint: 'scores', bindings: [qkv, ofOperand('probabilities', pairs('p', 'write'))] },
      { ...rows, entryPoint: 'softmax', bindings: [ofOperand('probabilities', pairs('p', 'update'))] },
      {
        ...products.vectors,
        entryPoint: 'mix_values',
        bindings: [qkv, ofOperand('probabilities', pairs('p', 'read')), mixed('y', 'write')],
      },
    ],
  }
}

// qkv, probabilities, dy → dqkv (B, T, 3, H, D)
export function attentionBackward(dims: AttentionDims, capacity: number): Recipe {
  const { qkv, dqkv, pairs, mixed, products, rows } = parts(dims, capacity)
  const p = ofOperand('probabilities', pairs('p', 'read'))
  const dy = mixed('dy', 'read')
  return {
    scratch: { ds: capacity * dims.heads * dims.length * dims.length },
    passes: [
      { ...products.pairs, entryPoint: 'probability_gradient', bindings: [qkv, dy, pairs('ds', 'write')] },
      { ...rows, entryPoint: 'score_gradient', bindings: [p, pairs('ds', 'update')] },
      { ...products.vectors, entryPoint: 'query_gradient', bindings: [qkv, pairs('ds', 'read'), dqkv] },
      { ...products.vectors, entryPoint: 'key_gradient', bindings: [qkv, pairs('ds', 'read'), dqkv] },
      { ...products.vectors, entryPoint: 'value_gradient', bindings: [qkv, p, dy, dqkv] },
    ],
  }
}

type Unbound = Omit<Pass, 'entryPoint' | 'bindings'>

function parts({ length, heads, headSize, causal }: AttentionDims, capacity: number) {
  const file = 'attention'
  const constants = {
    T: length,
    HEADS: heads,
    D: headSize,
    CAUSAL: causal ? 1 : 0,
    SCALE: real(1 / Math.sqrt(headSize)),
    T_TILES: tiles(length),
    D_TILES: tiles(headSize),
  }
  const tokens = capacity * length
  // four blocks of four rows for each four steps of a product
  const tile = (rowTiles: number, columnTiles: number, steps: number): Unbound => ({
    file,
    constants,
    loads: Math.ceil(steps / 4) * 16,
    workgroup: TILE_WORKGROUP,
    threads: (samples) => samples * heads * rowTiles * columnTiles,
  })
  return {
    qkv: matrix('qkv', 'read', tokens * 3 * heads, headSize),
    dqkv: matrix('dqkv', 'write', tokens * 3 * heads, headSize),
    pairs: (name: string, access: 'read' | 'write' | 'update') => matrix(name, access, tokens * heads, length),
    mixed: (name: string, access: 'read' | 'write') => matrix(name, access, tokens * heads, headSize),
    products: {
      pairs: tile(tiles(length), tiles(length), headSize),
      vectors: tile(tiles(length), tiles(headSize), length),
    },
    rows: {
      file,
      constants,
      loads: Math.ceil(length / 4) * 3,
      workgroup: STREAM_WORKGROUP,
      threads: (samples: number) => samples * heads * length,
    } satisfies Unbound,
  }
}
