// Convolution in workgroup memory, for GPUs: implicit matrix products in all three directions
// (kernels/conv2d-shared.wgsl).

import type { Conv2dDims } from '../kernels.ts'
import { array, matrix, optional, roundUp, type Pass } from '../recipe.ts'
import type { MakeRecipe, Variant } from '../variants.ts'
import { sumPartialsPass } from './conv2d-lines.ts'
import { finishedMatrix, gradientMatrix, withFinish } from './finish.ts'
import { sharedRows } from './row-sharing.ts'
import {
  SHARED_TILES,
  sharedBlocks,
  sharedConstants,
  sharedGroups,
  sharedVariant,
  sharedWorkgroup,
  splitSum,
  wantedGroups,
  type ProductSize,
  type SharedTile,
} from './tiles.ts'

export const CONV2D_FORWARD_SHARED: readonly Variant<'conv2d.forward'>[] = variants(forward, outputProduct)
export const CONV2D_INPUT_GRADIENT_SHARED: readonly Variant<'conv2d.inputGradient'>[] = variants(
  inputGradient,
  inputProduct,
)
export const CONV2D_PARAMETER_GRADIENT_SHARED: readonly Variant<'conv2d.parameterGradient'>[] = variants(
  parameterGradient,
  (dims, capacity, tile) => ({ ...tapProduct(dims), batch: dims.groups * splitOf(tile, dims, capacity).splits }),
)

function variants<K extends 'conv2d.forward' | 'conv2d.inputGradient' | 'conv2d.parameterGradient'>(
  make: (tile: SharedTile) => MakeRecipe<K>,
  sizeOf: (dims: Conv2dDims, capacity: number, tile: SharedTile) => ProductSize,
) {
  return SHARED_TILES.map((tile) => sharedVariant<K>({ tile, make, sizeOf }))
}

function outputProduct({ out, groups, outHeight, outWidth }: Conv2dDims, samples: number): ProductSize {
  return { m: out / groups, n: samples * roundUp(outHeight * outWidth, 4), batch: groups }
}

function inputProduct({ channels, groups, height, width }: Conv2dDims, samples: number): ProductSize {
  return { m: channels / groups, n: samples * roundUp(height * width, 4), batch: groups }
}

function tapProduct(dims: Conv2dDims): ProductSize {
  return { m: dims.out / dims.groups, n: tapsOf(dims) + 1, batch: dims.groups }
}

function splitOf(tile: SharedTile, dims: Conv2dDims, capacity: number) {
  return splitSum(capacity * roundUp(dims.outHeight * dims.outWidth, 4), {
    pieces: sharedGroups(tile, tapProduct(dims)),
    wanted: wantedGroups(tile),
    slab: tile.slab,
  })
}

// x (B, C, H, W), weight (O, C/g, K, K), bias (O,), residual (B, O, H', W') → y (B, O, H', W')
function forward(tile: SharedTile): MakeRecipe<'conv2d.forward'> {
  return (dims, capacity, operands) => {
    const pass = productPass(tile, dims, outputProduct(dims, capacity), {
      steps: tapsOf(dims),
      a: 4,
      b: 16,
      bAlongK: false,
    })
    return {
      scratch: {},
      passes: [
        withFinish(
          {
            ...pass,
            entryPoint: 'forward',
            bindings: [
              array('x', 'read', capacity * dims.channels * dims.height * dims.width),
              matrix('weight', 'read', dims.out, tapsOf(dims)),
              optional('bias', 'read', dims.out, operands.bias),
              ...finishedMatrix('y', {
                rows: capacity * dims.out,
                columns: dims.outHeight * dims.outWidth,
                operands,
                activation: dims.activation,
              }),
            ],
            threads: (samples) => sharedGroups(tile, outputProduct(dims, samples)) * pass.workgroup,
          },
          dims,
        ),
      ],
    }
  }
}

// weight, dy (B, O, H', W'), activated (B, C, H, W) → dx (B, C, H, W)
function inputGradient(tile: SharedTile): MakeRecipe<'conv2d.inputGradient'> {
  return (dims, capacity) => {
    const pass = productPass(tile, dims, inputProduct(dims, capacity), {
      steps: (dims.out / dims.groups) * dims.kernel ** 2,
      a: 16,
      b: 16,
      bAlongK: false,
    })
    return {
      scratch: {},
      passes: [
        withFinish(
          {
            ...pass,
            entryPoint: 'input_gradient',
            bindings: [
              array('weight', 'read', dims.out * tapsOf(dims)),
              array('dy', 'read', capacity * dims.out * dims.outHeight * dims.outWidth),
              ...gradientMatrix('dx', {
                rows: capacity * dims.channels,
                columns: dims.height * dims.width,
                derivative: dims.derivative,
              }),
            ],
            threads: (samples) => sharedGroups(tile, inputProduct(dims, samples)) * pass.workgroup,
          },
          dims,
        ),
      ],
    }
  }
}

// x (B, C, H, W), dy (B, O, H', W') → dweight (O, C/g, K, K), dbias (O,)
function parameterGradient(tile: SharedTile): MakeRecipe<'conv2d.parameterGradient'> {
  return (dims, capacity, { dbias }) => {
    const { splits, stepsPerSplit } = splitOf(tile, dims, capacity)
    const pass = productPass(tile, dims, tapProduct(dims), { steps: stepsPerSplit, a: 4, b: 16, bAlongK: true })
    const tapsPadded = roundUp(tapsOf(dims) + 1, 4)
    const partials: Pass = {
      ...pass,
      entryPoint: 'partial_gradient',
      constants: { ...pass.constants, SPLITS: splits, POSITIONS_PER_SPLIT: stepsPerSplit },
      bindings: [
        array('x', 'read', capacity * dims.channels * dims.height * dims.width),
        matrix('dy', 'read', capacity * dims.out, dims.outHeight * dims.outWidth),
        matrix('partials', 'write', splits * dims.out, tapsPadded),
      ],
      threads: () => sharedGroups(tile, { ...tapProduct(dims), batch: dims.groups * splits }) * pass.workgroup,
    }
    const sum = sumPartialsPass(dims, { splits, taps: tapsOf(dims), tapsPadded }, dbias, sharedRows)
    return { scratch: { partials: splits * dims.out * tapsPadded }, passes: [partials, sum] }
  }
}

/** What a block of 4 × 4 elements of A or B is read by: four quads, or 16 numbers that lie apart. */
interface BlockReads {
  readonly steps: number
  readonly a: 4 | 16
  readonly b: 4 | 16
  /** blocks of B that lie side by side in memory follow each other along k */
  readonly bAlongK: boolean
}

function productPass(
  tile: SharedTile,
  dims: Conv2dDims,
  { m, n }: ProductSize,
  reads: BlockReads,
): Pick<Pass, 'file' | 'uses' | 'workgroup' | 'constants' | 'loads'> {
  const blocks = sharedBlocks(tile, reads.steps)
  return {
    loads: blocks.a * reads.a + blocks.b * reads.b,
    file: 'conv2d-shared',
    uses: ['tile-product'],
    workgroup: sharedWorkgroup(tile),
    constants: {
      ...sharedConstants(tile),
      A_ALONG_K: 1,
      B_ALONG_K: Number(reads.bAlongK),
      TILES_M: Math.ceil(m / tile.m),
      TILES_N: Math.ceil(n / tile.n),
      CHANNELS: dims.channels,
      HEIGHT: dims.height,
      WIDTH: dims.width,
      OUT: dims.out,
      OUT_HEIGHT: dims.outHeight,
      OUT_WIDTH: dims.outWidth,
      KERNEL: dims.kernel,
      STRIDE: dims.stride,
      PADDING: dims.padding,
      GROUPS: dims.groups,
      TAPS: tapsOf(dims),
      CHANNELS_PER_GROUP: dims.channels / dims.groups,
      OUT_PER_GROUP: dims.out / dims.groups,
    },
  }
}

function tapsOf({ channels, groups, kernel }: Conv2dDims): number {
  return (channels / groups) * kernel * kernel
}
