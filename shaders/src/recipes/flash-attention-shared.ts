// Attention over long sequences in workgroup memory, for GPUs (kernels/flash-attention-shared.wgsl).

import type { AttentionDims } from '../kernels.ts'
import { array, ofOperand, real, type Recipe } from '../recipe.ts'
import type { AdapterTraits, Variant } from '../variants.ts'
import { attentionBindings, dotOutputs } from './flash-attention.ts'
import { lastQuad } from './tiles.ts'

/** Invocations along the rows of a tile and along its columns; each keeps 4 × 4 results of a product. */
interface AttentionTile {
  readonly m: number
  readonly n: number
  /** steps of a product that are in workgroup memory at once */
  readonly slab: number
  /** … and of these, steps that an invocation may load ahead: half of them where registers are few */
  readonly atOnce: number
}

/** A row has at most four numbers for each invocation along the columns. */
const ATTENTION_TILES: readonly AttentionTile[] = [16, 8].flatMap((atOnce) => [
  { m: 16, n: 8, slab: 16, atOnce },
  { m: 16, n: 16, slab: 16, atOnce },
  { m: 8, n: 32, slab: 16, atOnce },
])
const EDGE = 4
const BYTES_PER_QUAD = 16

export const FLASH_ATTENTION_FORWARD_SHARED: readonly Variant<'flash_attention.forward'>[] = ATTENTION_TILES.map(
  (tile) => ({ ...variantOf(tile), recipe: (dims, capacity) => forward(tile, dims, capacity) }),
)

export const FLASH_ATTENTION_BACKWARD_SHARED: readonly Variant<'flash_attention.backward'>[] = ATTENTION_TILES.map(
  (tile) => ({ ...variantOf(tile), recipe: (dims, capacity) => backward(tile, dims, capacity) }),
)

/**
 * Of the tiles that a row fits into, the narrowest. Software adapters spend their time at barriers. Backward spills on
 * Intel's GPUs where a whole slab is loaded ahead.
 */
function variantOf(tile: AttentionTile) {
  return {
    family: 'shared' as const,
    name: `${tile.m * EDGE}×${tile.n * EDGE}/4×4${tile.atOnce === tile.slab ? '' : ` u${tile.atOnce}`}`,
    fits: (traits: AdapterTraits, { headSize }: AttentionDims) =>
      tile.n === ATTENTION_TILES.find(({ n }) => headSize <= n * EDGE)?.n &&
      workgroupBytes(tile) <= traits.maxComputeWorkgroupStorageSize &&
      tile.m * tile.n <= traits.maxComputeInvocationsPerWorkgroup,
    suits: (_: AttentionDims, __: number, { software, fewRegisters }: AdapterTraits) =>
      !software && (!fewRegisters || tile.atOnce < tile.slab),
  }
}

/** Two slabs with a quad of padding in each row, and a quad of every invocation. */
function workgroupBytes({ m, n, slab }: AttentionTile): number {
  return (slab * (m + 1 + n + 1) + m * n) * BYTES_PER_QUAD
}

// qkv (B, T, 3, H, D) → y (B, T, H, D), logSums (B, H, T)
function forward(tile: AttentionTile, dims: AttentionDims, capacity: number): Recipe {
  const { qkv, mixed, rows, pass } = parts(tile, dims, capacity)
  const logSums = ofOperand('logSums', array('log_sums', 'write', rows))
  return { scratch: {}, passes: [{ ...pass, entryPoint: 'forward', bindings: [qkv, mixed('y', 'write'), logSums] }] }
}

// qkv, y, logSums, dy → dqkv (B, T, 3, H, D)
function backward(tile: AttentionTile, dims: AttentionDims, capacity: number): Recipe {
  const { qkv, dqkv, mixed, rows, pass } = parts(tile, dims, capacity)
  const perRow = [ofOperand('logSums', array('log_sums', 'read', rows)), array('dots', 'read', rows)]
  const bindings = [qkv, mixed('dy', 'read'), ...perRow, dqkv]
  return {
    scratch: { dots: rows },
    passes: [
      dotOutputs(dims, capacity),
      { ...pass, entryPoint: 'query_gradient', bindings, loads: pass.loads * 1.5 },
      { ...pass, entryPoint: 'key_value_gradient', bindings, loads: pass.loads * 2 },
    ],
  }
}

function parts(tile: AttentionTile, dims: AttentionDims, capacity: number) {
  const { length, heads, headSize, causal } = dims
  const rowTiles = Math.ceil(length / (tile.m * EDGE))
  const workgroup = tile.m * tile.n
  // each product of forward brings the rows of the other side to workgroup memory once
  const slabs = Math.ceil(headSize / tile.slab) + Math.ceil((tile.n * EDGE) / tile.slab)
  const loads = Math.ceil(length / (tile.n * EDGE)) * slabs * 4
  const pass = {
    file: 'flash-attention-shared' as const,
    loads,
    uses: ['tile-product'] as const,
    workgroup,
    constants: {
      T: length,
      HEADS: heads,
      D: headSize,
      LAST_QUAD: lastQuad(headSize),
      CAUSAL: causal ? 1 : 0,
      SCALE: real(1 / Math.sqrt(headSize)),
      ROW_LANES: tile.m,
      COLUMN_LANES: tile.n,
      SLAB: tile.slab,
      AT_ONCE: tile.atOnce,
      ROW_TILES: rowTiles,
    },
    threads: (samples: number) => samples * heads * rowTiles * workgroup,
  }
  return { ...attentionBindings(dims, capacity), pass }
}
