// The shapes of tiles that matrix kernels come in, for both families, and when each is worth a try.

import { TILE_WORKGROUP } from '../recipe.ts'
import type { AdapterTraits } from '../variants.ts'

/** Results that one invocation of a register kernel keeps, and how many invocations share a workgroup. */
export interface RegisterTile {
  readonly rows: 4 | 8
  readonly columns: 4 | 8
  readonly workgroup: number
}

/** A result of M × N elements for each of `batch` matrices. */
export interface ProductSize {
  readonly m: number
  readonly n: number
  readonly batch: number
}

/** Two subgroups of SwiftShader, one of lavapipe: products of few tiles still spread over the cores. */
const SMALL_WORKGROUP = 8
/** Workgroups that keep the cores of a software adapter busy to the end. */
export const BUSY_GROUPS = 16

/**
 * lavapipe: two to three times faster through subgroups in every product measured, and seconds to compile what is not
 * used.
 */
const ALWAYS_BETTER_LANES = 8

/** Better ones first, where they suit: larger tiles read less, smaller ones leave fewer invocations idle. */
export const REGISTER_TILES: readonly RegisterTile[] = [
  { rows: 8, columns: 8, workgroup: TILE_WORKGROUP },
  { rows: 8, columns: 8, workgroup: SMALL_WORKGROUP },
  { rows: 8, columns: 4, workgroup: SMALL_WORKGROUP },
  { rows: 4, columns: 4, workgroup: SMALL_WORKGROUP },
]

export function registerTileName({ rows, columns, workgroup }: RegisterTile): string {
  return `${rows}×${columns}${workgroup === TILE_WORKGROUP ? '' : ` w${workgroup}`}`
}

export function registerThreads({ rows, columns }: RegisterTile, { m, n, batch }: ProductSize): number {
  return Math.ceil(m / rows) * Math.ceil(n / columns) * batch
}

/**
 * Whether there is work for every core; the smallest tiles and, where memory is read in lines, whole workgroups always
 * suit.
 */
export function registerTileSuits(
  tile: RegisterTile,
  size: ProductSize,
  { software, subgroupSize }: AdapterTraits,
): boolean {
  if (software && subgroupSize === ALWAYS_BETTER_LANES) return false
  if (tile.workgroup === TILE_WORKGROUP) return !software || registerThreads(tile, size) >= BUSY_GROUPS * TILE_WORKGROUP
  return (
    software && (tile === REGISTER_TILES.at(-1) || registerThreads(tile, size) >= (BUSY_GROUPS / 4) * SMALL_WORKGROUP)
  )
}

/** A workgroup's results (m × n), those of one invocation, and the steps of k that it keeps at once. */
export interface SharedTile {
  readonly m: number
  readonly n: number
  readonly threadM: 4 | 8
  readonly threadN: 4 | 8
  readonly slab: number
}

export const SHARED_TILES: readonly SharedTile[] = [
  { m: 128, n: 128, threadM: 8, threadN: 8, slab: 8 },
  { m: 64, n: 64, threadM: 8, threadN: 8, slab: 16 },
  { m: 64, n: 64, threadM: 4, threadN: 4, slab: 16 },
  { m: 32, n: 32, threadM: 4, threadN: 4, slab: 16 },
]

/** Workgroups below which a small GPU is half idle. */
const FULL_GPU_GROUPS = 64
const BYTES_PER_QUAD = 16

export function sharedTileName({ m, n, threadM, threadN }: SharedTile): string {
  return `${m}×${n}/${threadM}×${threadN}`
}

export function sharedWorkgroup({ m, n, threadM, threadN }: SharedTile): number {
  return (m / threadM) * (n / threadN)
}

export function sharedGroups(tile: SharedTile, { m, n, batch }: ProductSize): number {
  return Math.ceil(m / tile.m) * Math.ceil(n / tile.n) * batch
}

/** One quad of padding per row: tile-product.wgsl. */
export function sharedBytes({ m, n, slab }: SharedTile): number {
  return slab * (m / 4 + 1 + n / 4 + 1) * BYTES_PER_QUAD
}

export function sharedTileFits(tile: SharedTile): (traits: AdapterTraits) => boolean {
  return (traits) =>
    sharedBytes(tile) <= traits.maxComputeWorkgroupStorageSize &&
    sharedWorkgroup(tile) <= traits.maxComputeInvocationsPerWorkgroup
}

/** Never on software adapters, where a barrier costs more than it saves. */
export function sharedTileSuits(tile: SharedTile, groups: number, { software }: AdapterTraits): boolean {
  return !software && (tile === SHARED_TILES.at(-1) || groups >= FULL_GPU_GROUPS)
}

/** Constants of tile-product.wgsl. */
export function sharedConstants(tile: SharedTile): Record<string, number> {
  return { TILE_M: tile.m, TILE_N: tile.n, THREAD_M: tile.threadM, THREAD_N: tile.threadN, SLAB: tile.slab }
}

/** Where the last quad of so many elements begins. */
export function lastQuad(size: number): number {
  return Math.floor((size - 1) / 4) * 4
}

/** Steps of a long sum that several workgroups share: into how many parts, each of how many steps. */
export interface Split {
  readonly splits: number
  readonly stepsPerSplit: number
}

/** A part shorter than this costs more to add up than it saves. */
const SHORTEST_PART = 64

/** As many parts as make `wanted` pieces of work out of `pieces`, each of whole slabs. */
export function splitSum(
  steps: number,
  { pieces, wanted, slab }: { readonly pieces: number; readonly wanted: number; readonly slab: number },
): Split {
  const splits = Math.max(1, Math.min(Math.ceil(wanted / pieces), Math.floor(steps / SHORTEST_PART)))
  const stepsPerSplit = Math.ceil(steps / splits / slab) * slab
  return { splits: Math.ceil(steps / stepsPerSplit), stepsPerSplit }
}
