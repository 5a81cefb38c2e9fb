// The shapes of tiles of products on matrix units (kernels/matrix-product.wgsl), and when each is worth a try.

import type { KernelDims, KernelName } from '../kernels.ts'
import type { AdapterTraits, Variant } from '../variants.ts'
import { lastQuad, sharedGroups, usefulShare, type MatrixTile, type ProductSize, type TileVariant } from './tiles.ts'

/** What the units multiply at once. */
const EDGE = 16
const SUBGROUP = 32

/** Eight quads of each operand an invocation at most, and two at least: matrix-product.wgsl. */
export const MATRIX_TILES: readonly MatrixTile[] = [
  { m: 128, n: 128, slab: 32, ownM: 4, ownN: 2, workgroup: 256 },
  { m: 64, n: 128, slab: 32, ownM: 2, ownN: 4, workgroup: 128 },
  { m: 128, n: 64, slab: 32, ownM: 4, ownN: 2, workgroup: 128 },
  { m: 64, n: 64, slab: 32, ownM: 2, ownN: 2, workgroup: 128 },
  { m: 32, n: 32, slab: 32, ownM: 1, ownN: 1, workgroup: 128 },
]

const BYTES_PER_QUAD = 8
/** 16 lines of five quads of f32 for each subgroup. */
const STAGE_BYTES = EDGE * 5 * 16

/** Steps of k that reading a row or a column of a tile costs: more than without the units, which add much faster. */
const LOAD_STEPS = 64
/** Invocations that fill a large GPU: below, more and smaller tiles are faster. */
const FULL_GPU_INVOCATIONS = 32_768
/** Worth a try beside the cheapest, where variants are measured. */
const NEAR = 1.6
/** Below this share of useful results the flat tiles of f32 are worth more: products of few rows or few columns. */
const LEAST_USEFUL = 0.25

export function matrixTileName({ m, n, ownM, ownN }: MatrixTile): string {
  return `${m}×${n}/${ownM * EDGE}×${ownN * EDGE}`
}

/** Of workgroup memory, in the direction that takes most: two quads of padding in each line. */
export function matrixBytes(tile: MatrixTile): number {
  const { slab } = tile
  const operand = (edge: number) => Math.max(edge * (slab / 4 + 2), slab * (edge / 4 + 2)) * BYTES_PER_QUAD
  return operand(tile.m) + operand(tile.n) + (STAGE_BYTES * tile.workgroup) / SUBGROUP
}

/** Software adapters have no matrix units. */
export function matrixTileFits(tile: MatrixTile, traits: AdapterTraits): boolean {
  return (
    traits.matrixUnits === true &&
    !traits.software &&
    matrixBytes(tile) <= traits.maxComputeWorkgroupStorageSize &&
    tile.workgroup <= traits.maxComputeInvocationsPerWorkgroup
  )
}

/** In units that compare tiles for one size: see sharedTileCost. */
export function matrixTileCost(tile: MatrixTile, size: ProductSize): number {
  const groups = sharedGroups(tile, size)
  const speed = 1 / (1 + LOAD_STEPS * (1 / tile.m + 1 / tile.n))
  const filled = Math.min(1, (groups * tile.workgroup) / FULL_GPU_INVOCATIONS)
  return ((groups / size.batch) * tile.m * tile.n) / (speed * Math.sqrt(filled))
}

/** One tile of a product as a variant of its kernel. */
export function matrixVariant<K extends KernelName>({
  tile,
  make,
  sizeOf,
  suffix = '',
}: TileVariant<K, MatrixTile>): Variant<K> {
  const costOf = (other: MatrixTile, dims: KernelDims<K>, capacity: number) =>
    matrixTileCost(other, sizeOf(dims, capacity, other))
  const useful = (dims: KernelDims<K>, capacity: number) => usefulShare(tile, sizeOf(dims, capacity, tile))
  return {
    family: 'matrix',
    name: `${matrixTileName(tile)}${suffix}`,
    recipe: make(tile),
    fits: (traits) => matrixTileFits(tile, traits),
    suits: (dims, capacity, traits) => {
      const others = MATRIX_TILES.filter((other) => matrixTileFits(other, traits))
      const cheapest = Math.min(...others.map((other) => costOf(other, dims, capacity)))
      return useful(dims, capacity) >= LEAST_USEFUL && costOf(tile, dims, capacity) <= NEAR * cheapest
    },
    cost: (dims, capacity) => costOf(tile, dims, capacity),
    useful,
  }
}

/** What a product says of its sum, for the constants that matrix-product.wgsl alone has. */
export interface MatrixSum {
  readonly k: number
  /** steps of one sample, where k follows the number of samples; else 0 */
  readonly rowsK: number
  /** of the weight: then neither operand is one */
  readonly isGradient: boolean
}

export function matrixConstants(tile: MatrixTile, { k, rowsK, isGradient }: MatrixSum): Record<string, number> {
  const { m, n, slab, ownM, ownN } = tile
  return {
    TILE_M: m,
    TILE_N: n,
    SLAB: slab,
    OWN_M: ownM,
    OWN_N: ownN,
    LAST_QUAD_K: lastQuad(k),
    // nothing to cut off: a run of fewer samples has fewer steps where k follows them
    WHOLE_SLABS: Number(rowsK === 0 && k % slab === 0),
    B_IS_WEIGHT: Number(!isGradient),
  }
}
