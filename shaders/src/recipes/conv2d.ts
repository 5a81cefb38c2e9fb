// Convolution in registers, for software adapters: lines spread to scratch (conv2d-lines.ts), register-tile matrix
// products, no barriers (kernels/conv2d.wgsl).

import type { Conv2dDims } from '../kernels.ts'
import { TILE_WORKGROUP } from '../recipe.ts'
import type { AdapterTraits, MakeRecipe, Variant } from '../variants.ts'
import {
  forwardRecipe,
  inputGradientRecipe,
  linesOf,
  parameterGradientRecipe,
  type ProductPass,
} from './conv2d-lines.ts'
import { REGISTER_TILES, registerTileName, registerTileSuits, type ProductSize, type RegisterTile } from './tiles.ts'

/**
 * Invocations that keep every core of a software adapter busy: 16 workgroups. The weight gradient is split into so
 * many.
 */
const BUSY_THREADS = 16 * TILE_WORKGROUP

export const CONV2D_FORWARD: readonly Variant<'conv2d.forward'>[] = variants(forward, planeProduct)
export const CONV2D_INPUT_GRADIENT: readonly Variant<'conv2d.inputGradient'>[] = variants(inputGradient, planeProduct)
export const CONV2D_PARAMETER_GRADIENT: readonly Variant<'conv2d.parameterGradient'>[] = variants(
  parameterGradient,
  splitProduct,
)

function variants<K extends 'conv2d.forward' | 'conv2d.inputGradient' | 'conv2d.parameterGradient'>(
  make: (tile: RegisterTile) => MakeRecipe<K>,
  sizeOf: (dims: Conv2dDims, capacity: number) => ProductSize,
) {
  return REGISTER_TILES.map((tile) => ({
    family: 'register' as const,
    name: registerTileName(tile),
    recipe: make(tile),
    suits: (dims: Conv2dDims, capacity: number, traits: AdapterTraits) =>
      registerTileSuits(tile, sizeOf(dims, capacity), traits),
  }))
}

/** Both planes are near enough alike for a first guess. */
function planeProduct({ out, groups, outHeight, outWidth }: Conv2dDims, capacity: number): ProductSize {
  return { m: out / groups, n: outHeight * Math.ceil(outWidth / 4) * 4, batch: capacity * groups }
}

/** The sum over samples is split until there is enough to do, so every tile has work for all. */
function splitProduct({ out, groups, channels, kernel }: Conv2dDims, capacity: number): ProductSize {
  return { m: out / groups, n: (channels / groups) * kernel * kernel + 1, batch: capacity * groups }
}

function forward(tile: RegisterTile): MakeRecipe<'conv2d.forward'> {
  return (dims, capacity, operands) => {
    const sizes = sizesOf(dims, capacity, tile)
    const threads = (samples: number) => samples * dims.groups * sizes.tiles.OUT_TILES * sizes.tiles.OUT_PAIRS
    return forwardRecipe(dims, sizes.lines, product(sizes, 'forward', threads), operands)
  }
}

function inputGradient(tile: RegisterTile): MakeRecipe<'conv2d.inputGradient'> {
  return (dims, capacity) => {
    const sizes = sizesOf(dims, capacity, tile)
    const threads = (samples: number) => samples * dims.groups * sizes.tiles.SEER_TILES * sizes.tiles.IN_PAIRS
    return inputGradientRecipe(dims, sizes.lines, product(sizes, 'line_gradient', threads))
  }
}

function parameterGradient(tile: RegisterTile): MakeRecipe<'conv2d.parameterGradient'> {
  return (dims, capacity, { dbias }) => {
    const sizes = sizesOf(dims, capacity, tile)
    const { SPLITS: splits, OUT_TILES, TAP_TILES } = sizes.tiles
    return parameterGradientRecipe(
      dims,
      sizes.lines,
      product(sizes, 'partial_gradient', () => splits * dims.groups * OUT_TILES * TAP_TILES),
      { splits, dbias },
    )
  }
}

function product(
  { lines, tile, tiles }: Conv2dSizes,
  entryPoint: string,
  threads: ProductPass['threads'],
): ProductPass {
  return {
    file: 'conv2d',
    uses: ['conv2d-lines'],
    workgroup: tile.workgroup,
    entryPoint,
    threads,
    constants: { ...lines.constants, ...tiles },
  }
}

type Conv2dSizes = ReturnType<typeof sizesOf>

function sizesOf(dims: Conv2dDims, capacity: number, tile: RegisterTile) {
  const lines = linesOf(dims, capacity)
  const OUT_TILES = Math.ceil(lines.outPerGroup / tile.rows)
  const TAP_TILES = Math.ceil((lines.taps + 1) / tile.columns)
  const SPLITS = Math.min(capacity, Math.ceil(BUSY_THREADS / (dims.groups * OUT_TILES * TAP_TILES)))
  return {
    lines,
    tile,
    tiles: {
      TILE_ROWS: tile.rows,
      TILE_COLUMNS: tile.columns,
      OUT_TILES,
      TAP_TILES,
      SEER_TILES: Math.ceil(lines.seers / tile.rows),
      OUT_PAIRS: Math.ceil((dims.outHeight * lines.line) / tile.columns),
      IN_PAIRS: Math.ceil((dims.height * lines.line) / tile.columns),
      SPLITS,
      SAMPLES_PER_SPLIT: Math.ceil(capacity / SPLITS),
    },
  }
}
