// The shapes of tiles that matrix kernels come in, for both families, and when each is worth a try.

import type { KernelDims, KernelName } from '../kernels.ts'
import { TILE_WORKGROUP } from '../recipe.ts'
import type { AdapterTraits, MakeRecipe, Variant } from '../variants.ts'

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

/**
 * A workgroup's results (m × n), those of one invocation, and the steps of k that it keeps at once. An invocation
 * brings three blocks of 4 × 4 elements of these steps at most (tile-product.wgsl).
 */
export interface SharedTile {
  readonly m: number
  readonly n: number
  readonly threadM: 4 | 8
  readonly threadN: 4 | 8
  readonly slab: number
}

/**
 * On matrix units (matrix-tiles.ts): a workgroup's results (m × n), and how many matrices of 16 × 16 of them each
 * subgroup makes, down and across.
 */
export interface MatrixTile {
  readonly m: number
  readonly n: number
  /** steps of k kept at once: two matrices */
  readonly slab: 32
  readonly ownM: 1 | 2 | 4
  readonly ownN: 1 | 2 | 4
  /** invocations: 32 for each subgroup */
  readonly workgroup: 128 | 256
}

/** A tile whose operands lie in workgroup memory, whatever multiplies them. */
export type ProductTile = SharedTile | MatrixTile

const USUAL_SLAB = 16

/** The flat ones are for products with few rows or few columns: first layers, classes, gradients of small kernels. */
export const SHARED_TILES: readonly SharedTile[] = [
  // 17 KB of workgroup memory: not every adapter has it
  { m: 128, n: 128, threadM: 8, threadN: 8, slab: 16 },
  { m: 128, n: 128, threadM: 8, threadN: 8, slab: 8 },
  { m: 64, n: 64, threadM: 8, threadN: 8, slab: 16 },
  { m: 64, n: 64, threadM: 4, threadN: 4, slab: 16 },
  { m: 32, n: 32, threadM: 4, threadN: 4, slab: 16 },
  { m: 16, n: 64, threadM: 4, threadN: 4, slab: 16 },
  { m: 8, n: 128, threadM: 4, threadN: 4, slab: 16 },
  { m: 16, n: 32, threadM: 4, threadN: 4, slab: 16 },
  { m: 64, n: 16, threadM: 4, threadN: 4, slab: 16 },
  { m: 8, n: 32, threadM: 4, threadN: 4, slab: 16 },
]

/** Invocations that fill a GPU of the middle class: below, more and smaller tiles are faster. */
const FULL_GPU_INVOCATIONS = 32_768
/** Invocations that run side by side on a GPU whether or not there are so many. */
const GPU_LANES = 32
/** Steps of k that reading a row or a column of a tile costs: what makes small tiles slow. */
const LOAD_STEPS = 16
/** An invocation with 4 × 4 results loads one value for two products, with 8 × 8 for four. */
const SMALL_THREAD_SPEED = 0.75
/** … and with 8 × 8 spills where registers are few. */
const SPILLING_SPEED = 0.4
/** Below, a laptop's GPU works for nothing, whatever a large one has to spare. */
const LEAST_USEFUL = 0.5
/** Worth a try beside the cheapest, where variants are measured. */
const NEAR = 1.6
const BYTES_PER_QUAD = 16

export function sharedTileName({ m, n, threadM, threadN, slab }: SharedTile): string {
  return `${m}×${n}/${threadM}×${threadN}${slab === USUAL_SLAB ? '' : ` s${slab}`}`
}

export function sharedWorkgroup(tile: ProductTile): number {
  if ('ownM' in tile) return tile.workgroup
  return (tile.m / tile.threadM) * (tile.n / tile.threadN)
}

export function sharedGroups(tile: Pick<ProductTile, 'm' | 'n'>, { m, n, batch }: ProductSize): number {
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

/** Results asked for ÷ results computed: the rest of a tile lies past the edge of the result. */
export function usefulShare(tile: Pick<ProductTile, 'm' | 'n'>, { m, n }: ProductSize): number {
  return (m * n) / (Math.ceil(m / tile.m) * tile.m * Math.ceil(n / tile.n) * tile.n)
}

/**
 * What a product of this size costs with a tile, in units that compare tiles for one size: results computed, ÷ the
 * speed of a tile, ÷ the root of the share of a GPU that its invocations fill. On a large GPU that is not full, waste
 * costs energy and no time; a small one is full sooner. The root lies between the two, but for a tile that wastes more
 * than half.
 */
export function sharedTileCost(tile: SharedTile, size: ProductSize, { fewRegisters = false }: AdapterTraits): number {
  const groups = sharedGroups(tile, size)
  const workgroup = sharedWorkgroup(tile)
  const isLarge = tile.threadM === 8 && tile.threadN === 8
  const largeSpeed = fewRegisters ? SPILLING_SPEED : 1
  const inner = isLarge ? largeSpeed : SMALL_THREAD_SPEED
  const speed = inner / (1 + LOAD_STEPS * (1 / tile.m + 1 / tile.n))
  const lanes = Math.min(1, workgroup / GPU_LANES)
  const filled = Math.min(1, (groups * workgroup) / FULL_GPU_INVOCATIONS)
  const useful = usefulShare(tile, size)
  const wasteful = useful < LEAST_USEFUL ? (LEAST_USEFUL / useful) ** 2 : 1
  // parts of a split sum have fewer steps each
  return (wasteful * (groups / size.batch) * tile.m * tile.n) / (speed * lanes * Math.sqrt(filled))
}

/** Near the cheapest. Never on software adapters, where a barrier costs more than it saves. */
export function sharedTileSuits(
  tile: SharedTile,
  sizeOf: (tile: SharedTile) => ProductSize,
  traits: AdapterTraits,
): boolean {
  if (traits.software) return false
  const cheapest = Math.min(
    ...SHARED_TILES.filter((other) => sharedTileFits(other)(traits)).map((other) =>
      sharedTileCost(other, sizeOf(other), traits),
    ),
  )
  return sharedTileCost(tile, sizeOf(tile), traits) <= NEAR * cheapest
}

/** A product whose size follows the kernel's; a split of its sum follows the tile too. */
export interface TileVariant<K extends KernelName, T extends ProductTile> {
  readonly tile: T
  readonly make: (tile: T) => MakeRecipe<K>
  readonly sizeOf: (dims: KernelDims<K>, capacity: number, tile: T) => ProductSize
  readonly suffix?: string
}

/** One tile of a product as a variant of its kernel. */
export function sharedVariant<K extends KernelName>({
  tile,
  make,
  sizeOf,
  suffix = '',
}: TileVariant<K, SharedTile>): Variant<K> {
  return {
    family: 'shared',
    name: `${sharedTileName(tile)}${suffix}`,
    recipe: make(tile),
    fits: sharedTileFits(tile),
    suits: (dims, capacity, traits) => sharedTileSuits(tile, (other) => sizeOf(dims, capacity, other), traits),
    cost: (dims, capacity, traits) => sharedTileCost(tile, sizeOf(dims, capacity, tile), traits),
    useful: (dims, capacity) => usefulShare(tile, sizeOf(dims, capacity, tile)),
  }
}

/** Constants of tile-product.wgsl. */
export function sharedConstants(tile: SharedTile): Record<string, number> {
  return { TILE_M: tile.m, TILE_N: tile.n, THREAD_M: tile.threadM, THREAD_N: tile.threadN, SLAB: tile.slab }
}

/** Workgroups that fill a GPU of 100 and more cores. */
const FULL_GPU_GROUPS = 256
/** Invocations below which such a GPU is mostly idle. */
export const FEW_INVOCATIONS = 16_384

/** Workgroups of a tile that a split sum should be shared by. */
export function wantedGroups(tile: ProductTile): number {
  return Math.max(FULL_GPU_GROUPS, FEW_INVOCATIONS / sharedWorkgroup(tile))
}

/** Blocks of 4 × 4 elements that invocations bring to workgroup memory for so many steps: of A, and of B. */
export function sharedBlocks(tile: ProductTile, steps: number): { readonly a: number; readonly b: number } {
  const slabs = Math.ceil(steps / tile.slab)
  const blocks = (edge: number) => slabs * Math.ceil((edge * tile.slab) / 16 / sharedWorkgroup(tile))
  return { a: blocks(tile.m), b: blocks(tile.n) }
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
