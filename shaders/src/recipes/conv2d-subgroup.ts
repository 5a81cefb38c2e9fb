// Convolution through lines (conv2d-lines.ts) by subgroups, for software adapters (kernels/conv2d-subgroup.wgsl).

import type { Conv2dDims } from '../kernels.ts'
import { roundUp } from '../recipe.ts'
import type { MakeRecipe, Variant } from '../variants.ts'
import {
  forwardRecipe,
  inputGradientRecipe,
  linesOf,
  parameterGradientRecipe,
  type Lines,
  type ProductPass,
} from './conv2d-lines.ts'
import {
  SUBGROUP_TILES,
  subgroupCount,
  subgroupTileFits,
  subgroupTileName,
  subgroupTileSuits,
  type SubgroupProduct,
  type SubgroupTile,
} from './subgroup-tiles.ts'
import { BUSY_GROUPS } from './tiles.ts'

export const CONV2D_FORWARD_SUBGROUP: readonly Variant<'conv2d.forward'>[] = SUBGROUP_TILES.map((tile) =>
  conv2dVariant(tile, forward(tile), { productOf: forwardProduct, isWorthIt: (dims) => !hasWindows(dims) }),
)
export const CONV2D_INPUT_GRADIENT_SUBGROUP: readonly Variant<'conv2d.inputGradient'>[] = SUBGROUP_TILES.map((tile) =>
  conv2dVariant(tile, inputGradient(tile), { productOf: lineProduct, isWorthIt: (dims) => !turnsWell(tile, dims) }),
)
export const CONV2D_PARAMETER_GRADIENT_SUBGROUP: readonly Variant<'conv2d.parameterGradient'>[] = SUBGROUP_TILES.map(
  (tile) =>
    conv2dVariant(tile, parameterGradient(tile), {
      productOf: partialProduct,
      isWorthIt: (dims) => tile.lanes < ENOUGH_LANES || !hasWindows(dims),
    }),
)

type ProductOf = (lines: Lines, dims: Conv2dDims, samples: number) => SubgroupProduct

export type Conv2dKernel = 'conv2d.forward' | 'conv2d.inputGradient' | 'conv2d.parameterGradient'

/** When a variant is worth a try. */
export interface Worth {
  readonly productOf: ProductOf
  /** absent: unless another tile is better */
  readonly isWorthIt?: (dims: Conv2dDims) => boolean
}

export function conv2dVariant<K extends Conv2dKernel>(
  tile: SubgroupTile,
  recipe: MakeRecipe<K>,
  { productOf, isWorthIt = () => true }: Worth,
) {
  return {
    family: 'subgroup' as const,
    name: subgroupTileName(tile),
    recipe,
    fits: subgroupTileFits(tile),
    suits: (dims: Conv2dDims, capacity: number) =>
      isWorthIt(dims) && subgroupTileSuits(tile, productOf(linesOf(dims, capacity), dims, capacity)),
  }
}

/**
 * Kernels whose windows of four outputs are eight floats at most, and overlap enough to do better than lines
 * (conv2d-windows.ts).
 */
export const FEWEST_COLUMNS = 3
const MOST_COLUMNS = 5
/** Subgroups of four wait longer for what is joint: with lines they do as well or better in both gradients. */
export const ENOUGH_LANES = 8
/** Joint rows of the smallest tile. */
const FEWEST_ROWS = 8

export function hasWindows({ stride, kernel, padding }: Conv2dDims): boolean {
  return stride === 1 && kernel >= FEWEST_COLUMNS && kernel <= MOST_COLUMNS && padding < kernel
}

/**
 * Whether the gradient of the input is computed like forward with kernels turned around: where that pads no more than
 * lines do.
 */
export function turnsWell({ lanes }: SubgroupTile, dims: Conv2dDims): boolean {
  const { channels, groups, kernel, width, outWidth } = dims
  const byWindows = roundUp(channels / groups, FEWEST_ROWS) * roundUp(width, 4) * kernel
  const byLines = roundUp((channels / groups) * kernel, FEWEST_ROWS) * roundUp(outWidth, 4)
  return lanes >= ENOUGH_LANES && hasWindows(dims) && byWindows <= byLines
}

export function forwardProduct(
  { outPerGroup, line }: Lines,
  { groups, outHeight }: Conv2dDims,
  samples: number,
): SubgroupProduct {
  return { rows: outPerGroup, columns: samples * outHeight * line, batch: groups }
}

function lineProduct({ seers, line }: Lines, { groups, height }: Conv2dDims, samples: number): SubgroupProduct {
  return { rows: seers, columns: samples * height * line, batch: groups }
}

/** Every sample can be a part of the sum. */
function partialProduct({ outPerGroup, taps }: Lines, { groups }: Conv2dDims, samples: number): SubgroupProduct {
  return { rows: outPerGroup, columns: taps + 1, batch: groups * samples }
}

function forward(tile: SubgroupTile): MakeRecipe<'conv2d.forward'> {
  return (dims, capacity, operands) => {
    const lines = linesOf(dims, capacity)
    return forwardRecipe(
      dims,
      lines,
      overCells(tile, lines, { dims, entryPoint: 'forward_products', productOf: forwardProduct }),
      operands,
    )
  }
}

function inputGradient(tile: SubgroupTile): MakeRecipe<'conv2d.inputGradient'> {
  return (dims, capacity) => {
    const lines = linesOf(dims, capacity)
    return inputGradientRecipe(
      dims,
      lines,
      overCells(tile, lines, { dims, entryPoint: 'line_products', productOf: lineProduct }),
    )
  }
}

function overCells(
  tile: SubgroupTile,
  lines: Lines,
  {
    dims,
    entryPoint,
    productOf,
  }: { readonly dims: Conv2dDims; readonly entryPoint: string; readonly productOf: ProductOf },
): ProductPass {
  const { constants, threads } = cellTiles(tile, productOf(lines, dims, lines.capacity))
  return { ...productPass(tile, entryPoint), threads, constants: { ...lines.constants, ...constants } }
}

/** Tiles are counted along the cells of all samples first; workgroups past the last sample return. */
export function cellTiles(tile: SubgroupTile, { rows, columns, batch }: SubgroupProduct) {
  const tiles = Math.ceil(rows / tile.rows)
  return {
    threads: () => subgroupCount(tile, { rows, columns, batch }) * tile.lanes,
    constants: {
      ...tileConstants(tile),
      OUT_TILES: tiles,
      SEER_TILES: tiles,
      CELL_TILES: Math.ceil(columns / (tile.lanes * tile.columns)),
    },
  }
}

function parameterGradient(tile: SubgroupTile): MakeRecipe<'conv2d.parameterGradient'> {
  return (dims, capacity, { dbias }) => {
    const lines = linesOf(dims, capacity)
    const { rows, columns } = partialProduct(lines, dims, 1)
    const pieces = subgroupCount(tile, { rows, columns, batch: dims.groups })
    const splits = Math.min(capacity, Math.ceil(BUSY_GROUPS / pieces))
    const product: ProductPass = {
      ...productPass(tile, 'partial_products'),
      threads: () => pieces * splits * tile.lanes,
      constants: {
        ...lines.constants,
        ...tileConstants(tile),
        OUT_TILES: Math.ceil(rows / tile.rows),
        TAP_TILES: Math.ceil(columns / (tile.lanes * tile.columns)),
        SPLITS: splits,
        SAMPLES_PER_SPLIT: Math.ceil(capacity / splits),
      },
    }
    return parameterGradientRecipe(dims, lines, product, { splits, dbias })
  }
}

function productPass({ lanes }: SubgroupTile, entryPoint: string) {
  return {
    file: 'conv2d-subgroup',
    uses: ['subgroup-product', 'conv2d-lines'],
    entryPoint,
    workgroup: lanes,
    subgroups: true,
  } as const
}

export function tileConstants({ lanes, rows, columns }: SubgroupTile) {
  return { LANES: lanes, JOINT_ROWS: rows, OWN_COLUMNS: columns }
}
