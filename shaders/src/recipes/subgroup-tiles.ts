// Tiles of the matrix kernels whose joint operand travels through a subgroup (kernels/subgroup-product.wgsl): for
// software adapters, whose subgroups are the lanes of the CPU's vectors. When each is worth a try.

import type { AdapterTraits } from '../variants.ts'
import { BUSY_GROUPS } from './tiles.ts'

export interface SubgroupTile {
  /** invocations of a subgroup, and of a workgroup */
  readonly lanes: 4 | 8
  /** rows of results joint to them */
  readonly rows: 8 | 16
  /** columns of results that each has to itself */
  readonly columns: 4 | 8
}

/** A result of rows that are joint × columns that are own, for each of `batch` matrices. */
export interface SubgroupProduct {
  readonly rows: number
  readonly columns: number
  readonly batch: number
}

/**
 * Speed relative to the best, as measured on products of 512 × 512: four lanes on SwiftShader, eight on lavapipe. Tiles
 * of 32 rows are no faster and take lavapipe twice as long to compile, which is seconds.
 */
const MEASURED: readonly (SubgroupTile & { readonly speed: number })[] = [
  { lanes: 8, rows: 16, columns: 4, speed: 1 },
  { lanes: 8, rows: 8, columns: 4, speed: 0.7 },
  { lanes: 4, rows: 16, columns: 8, speed: 1 },
  { lanes: 4, rows: 8, columns: 8, speed: 0.8 },
  { lanes: 4, rows: 8, columns: 4, speed: 0.7 },
]

export const SUBGROUP_TILES: readonly SubgroupTile[] = MEASURED

/** Tiles whose estimate is that near the best are tried too. */
const NEAR = 1.1

export function subgroupTileName({ lanes, rows, columns }: SubgroupTile): string {
  return `${rows}×${columns} of ${lanes}`
}

export function subgroupCount({ lanes, rows, columns }: SubgroupTile, product: SubgroupProduct): number {
  return Math.ceil(product.rows / rows) * Math.ceil(product.columns / (lanes * columns)) * product.batch
}

export function subgroupTileFits({ lanes }: SubgroupTile): (traits: AdapterTraits) => boolean {
  return ({ software, subgroupSize }) => software && subgroupSize === lanes
}

/** `ways`: the products that variants compute with their tiles, of which `product` is one. */
export function subgroupTileSuits(
  tile: SubgroupTile,
  product: SubgroupProduct,
  ways: readonly SubgroupProduct[] = [product],
): boolean {
  const tiles = MEASURED.filter(({ lanes }) => lanes === tile.lanes)
  const best = Math.min(...tiles.flatMap((other) => ways.map((way) => estimate(other, way))))
  const own = tiles.find(({ rows, columns }) => rows === tile.rows && columns === tile.columns)
  return own !== undefined && estimate(own, product) <= NEAR * best
}

/** Products of padded sizes over speed, with too few workgroups counted as if there were enough. */
function estimate(tile: SubgroupTile & { readonly speed: number }, product: SubgroupProduct): number {
  return (Math.max(subgroupCount(tile, product), BUSY_GROUPS) * tile.rows * tile.columns * tile.lanes) / tile.speed
}
