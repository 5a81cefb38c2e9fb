// Convolution in registers, for software adapters: lines spread to scratch, register-tile matrix products, no barriers
// (kernels/conv2d.wgsl).

import type { Conv2dDims, FinishDims } from '../kernels.ts'
import { array, matrix, ofOperand, optional, roundUp, STREAM_WORKGROUP, TILE, TILE_WORKGROUP, type Pass, type Recipe } from '../recipe.ts'
import type { AdapterTraits, MakeRecipe, Variant } from '../variants.ts'
import { finishedMatrix, withFinish } from './finish.ts'
import { REGISTER_TILES, registerTileName, registerTileSuits, type ProductSize, type RegisterTile } from './tiles.ts'

/** Invocations that keep every core of a software adapter busy: 16 workgroups. The weight gradient is split into so many. */
const BUSY_THREADS = 16 * TILE_WORKGROUP

export const CONV2D_FORWARD: readonly Variant<'conv2d.forward'>[] = variants(forward, planeProduct)
export const CONV2D_INPUT_GRADIENT: readonly Variant<'conv2d.inputGradient'>[] = variants(inputGradient, planeProduct)
export const CONV2D_PARAMETER_GRADIENT: readonly Variant<'conv2d.parameterGradient'>[] = variants(parameterGradient, splitProduct)

function variants<K extends 'conv2d.forward' | 'conv2d.inputGradient' | 'conv2d.parameterGradient'>(
  make: (tile: RegisterTile) => MakeRecipe<K>, sizeOf: (dims: Conv2dDims, capacity: number) => ProductSize,
) {
  return REGISTER_TILES.map(tile => ({
    family: 'register' as const, name: registerTileName(tile), recipe: make(tile),
    suits: (dims: Conv2dDims, capacity: number, traits: AdapterTraits) => registerTileSuits(tile, sizeOf(dims, capacity), traits),
  }))
}

/** Both planes are near enough alike for a first guess. */
function planeProduct({ out, groups, outHeight, outWidth }: Conv2dDims, capacity: number): ProductSize {
  return { m: out / groups, n: outHeight * roundUp(outWidth, 4), batch: capacity * groups }
}

/** The sum over samples is split until there is enough to do, so every tile has work for all. */
function splitProduct({ out, groups, channels, kernel }: Conv2dDims, capacity: number): ProductSize {
  return { m: out / groups, n: (channels / groups) * kernel * kernel + 1, batch: capacity * groups }
}

const streamPass = { file: 'conv2d', workgroup: STREAM_WORKGROUP } as const

// x (B, C, H, W), weight (O, C/g, K, K), bias (O,), residual (B, O, H', W') → y (B, O, H', W')
function forward(tile: RegisterTile): MakeRecipe<'conv2d.forward'> {
  return (dims, capacity, { bias, residual }) => forwardRecipe(dims, sizesOf(dims, capacity, tile), { capacity, bias, residual })
}

type ForwardOperands = { readonly capacity: number; readonly bias: unknown; readonly residual: unknown }

function forwardRecipe(dims: Conv2dDims & FinishDims, sizes: Sizes, { capacity, bias, residual }: ForwardOperands): Recipe {
  const packed = dims.groups * sizes.outPadded * sizes.tapQuads * 4
  const taps = sizes.tapQuads * 4
  const pack: Pass = {
    ...streamPass, entryPoint: 'pack_taps', constants: sizes.sizes,
    bindings: [array('weight', 'read', dims.out * sizes.taps), array('packed', 'write', packed, 'vec4f'), array('taps', 'write', taps, 'vec4u')],
    threads: () => packed / 4,
  }
  const product: Pass = {
    ...tilePass(sizes), entryPoint: 'forward',
    bindings: [
      array('packed', 'read', packed, 'vec4f'), array('taps', 'read', taps, 'vec4u'), array('lines', 'read', sizes.lines, 'vec4f'),
      optional('bias', 'read', dims.out, bias),
      ...finishedMatrix('y', { rows: capacity * dims.out * dims.outHeight, columns: dims.outWidth, residual, activation: dims.activation }),
    ],
    threads: samples => samples * dims.groups * sizes.outTiles * sizes.outPairs,
  }
  return { scratch: { packed, taps, lines: sizes.lines }, passes: [pack, spreadPass(dims, sizes, capacity), withFinish(product, dims)] }
}

// weight, dy (B, O, H', W') → dx (B, C, H, W)
function inputGradient(tile: RegisterTile): MakeRecipe<'conv2d.inputGradient'> {
  return (dims, capacity) => inputGradientRecipe(dims, sizesOf(dims, capacity, tile), capacity)
}

function inputGradientRecipe(dims: Conv2dDims, sizes: Sizes, capacity: number): Recipe {
  const constants = sizes.sizes
  const packed = dims.groups * sizes.seersPadded * dims.kernel * sizes.out4
  const dlines = capacity * dims.groups * sizes.seers * dims.height * sizes.line
  const pack: Pass = {
    ...streamPass, entryPoint: 'pack_seers', constants,
    bindings: [array('weight', 'read', dims.out * sizes.taps), array('packed', 'write', packed)],
    threads: () => packed,
  }
  const lineGradient: Pass = {
    ...tilePass(sizes), entryPoint: 'line_gradient',
    bindings: [array('packed', 'read', packed, 'vec4f'), sizes.dy, array('dlines', 'write', dlines, 'vec4f')],
    threads: samples => samples * dims.groups * sizes.seerTiles * sizes.inPairs,
  }
  const gather: Pass = {
    ...streamPass, entryPoint: 'gather_lines', constants,
    bindings: [array('dlines', 'read', dlines), matrix('dx', 'write', capacity * dims.channels * dims.height, dims.width)],
    threads: samples => samples * dims.channels * dims.height * Math.ceil(dims.width / 4),
  }
  return {
    scratch: { packed, dlines, ...sizes.alignedScratch },
    passes: [pack, ...alignPasses(dims, sizes, capacity), lineGradient, gather],
  }
}

// x (B, C, H, W), dy (B, O, H', W') → dweight (O, C/g, K, K), dbias (O,)
function parameterGradient(tile: RegisterTile): MakeRecipe<'conv2d.parameterGradient'> {
  return (dims, capacity, { dbias }) => parameterGradientRecipe(dims, sizesOf(dims, capacity, tile), { capacity, dbias })
}

function parameterGradientRecipe(dims: Conv2dDims, sizes: Sizes, { capacity, dbias }: { readonly capacity: number; readonly dbias: unknown }): Recipe {
  const partials: Pass = {
    ...tilePass(sizes), entryPoint: 'partial_gradient',
    bindings: [sizes.dy, array('lines', 'read', sizes.lines, 'vec4f'), matrix('partials', 'write', sizes.splits * dims.out, sizes.tapsPadded)],
    threads: () => sizes.splits * dims.groups * sizes.outTiles * sizes.tapTiles,
  }
  const sum = sumPartialsPass(dims, sizes, dbias)
  return {
    scratch: { lines: sizes.lines, partials: sizes.partials, ...sizes.alignedScratch },
    passes: [spreadPass(dims, sizes, capacity), ...alignPasses(dims, sizes, capacity), partials, sum],
  }
}

/** dweight and dbias += the sum of partials; `taps` and its padding count the bias. */
export function sumPartialsPass(
  dims: Conv2dDims, { splits, taps, tapsPadded }: Pick<Sizes, 'splits' | 'taps' | 'tapsPadded'>, dbias: unknown,
): Pass {
  return {
    ...streamPass, entryPoint: 'sum_partials',
    constants: { OUT: dims.out, TAPS: taps, TAPS_PADDED: tapsPadded, SPLITS: splits },
    bindings: [
      array('partials', 'read', splits * dims.out * tapsPadded, 'vec4f'), array('dweight', 'update', dims.out * taps),
      optional('dbias', 'update', dims.out, dbias),
    ],
    threads: () => (dims.out * tapsPadded) / 4,
  }
}

function tilePass({ tile, sizes, tileCounts }: Sizes): Pick<Pass, 'file' | 'workgroup' | 'constants'> {
  return { file: 'conv2d', workgroup: tile.workgroup, constants: { ...sizes, ...tileCounts } }
}

function spreadPass(dims: Conv2dDims, sizes: Sizes, capacity: number): Pass {
  const plane = sizes.rows * sizes.quads
  return {
    ...streamPass, entryPoint: 'spread', constants: sizes.sizes,
    bindings: [array('x', 'read', capacity * dims.channels * dims.height * dims.width), array('lines', 'write', sizes.lines, 'vec4f')],
    threads: samples => (samples * dims.channels + 1) * plane,
  }
}

/** dy as quads: directly where its lines are whole quads, else through a copy. */
function alignPasses(dims: Conv2dDims, sizes: Sizes, capacity: number): Pass[] {
  if (!('aligned' in sizes.alignedScratch)) return []
  return [{
    ...streamPass, entryPoint: 'align', constants: sizes.sizes,
    bindings: [
      ofOperand('dy', matrix('ragged', 'read', capacity * dims.out * dims.outHeight, dims.outWidth)),
      array('aligned', 'write', sizes.alignedScratch.aligned, 'vec4f'),
    ],
    threads: samples => samples * dims.out * dims.outHeight * sizes.quads,
  }]
}

type Sizes = ReturnType<typeof sizesOf>

function sizesOf(dims: Conv2dDims, capacity: number, tile: RegisterTile) {
  const { kernel, stride, groups } = dims
  const channelsPerGroup = dims.channels / groups
  const outPerGroup = dims.out / groups
  const quads = Math.ceil(dims.outWidth / 4)
  const line = quads * 4
  const rows = (dims.outHeight - 1) * stride + kernel
  const taps = channelsPerGroup * kernel * kernel
  const tapsPadded = roundUp(taps + 1, 4) // one more for the bias
  const seers = channelsPerGroup * kernel
  const [outPadded, seersPadded, out4] = [roundUp(outPerGroup, TILE), roundUp(seers, TILE), roundUp(outPerGroup, 4)]
  const tapQuads = Math.ceil(taps / 4)
  const [outTiles, seerTiles] = [Math.ceil(outPerGroup / tile.rows), Math.ceil(seers / tile.rows)]
  const tapTiles = Math.ceil((taps + 1) / tile.columns)
  const outPairs = Math.ceil((dims.outHeight * quads * 4) / tile.columns)
  const inPairs = Math.ceil((dims.height * quads * 4) / tile.columns)
  const splits = Math.min(capacity, Math.ceil(BUSY_THREADS / (groups * outTiles * tapTiles)))
  const lineElements = dims.channels * kernel * rows * line
  const dyElements = capacity * dims.out * dims.outHeight * line
  const isAligned = dims.outWidth === line
  const dy = ofOperand(isAligned ? 'dy' : 'aligned', array('dy', 'read', dyElements, 'vec4f'))
  return {
    taps, tapsPadded, tapQuads, seers, seersPadded, outPadded, out4, outTiles, tapTiles, seerTiles, outPairs, inPairs, splits, quads, line, rows, dy, tile,
    lines: capacity * lineElements + rows * line,
    partials: splits * dims.out * tapsPadded,
    alignedScratch: isAligned ? {} : { aligned: dyElements },
    /** what does not depend on the tile: passes with equal constants prepare the same scratch, which is shared */
    sizes: {
      CHANNELS: dims.channels, HEIGHT: dims.height, WIDTH: dims.width, OUT: dims.out, OUT_HEIGHT: dims.outHeight, OUT_WIDTH: dims.outWidth,
      KERNEL: kernel, STRIDE: stride, PADDING: dims.padding, GROUPS: groups,
      CHANNELS_PER_GROUP: channelsPerGroup, OUT_PER_GROUP: outPerGroup, OUT_PADDED: outPadded, OUT4: out4,
      TAPS: taps, TAPS_PADDED: tapsPadded, TAP_QUADS: tapQuads, SEERS: seers, SEERS_PADDED: seersPadded,
      QUADS: quads, IN_QUADS: Math.ceil(dims.width / 4), ROWS: rows, OUT_QUADS: dims.outHeight * quads, ONES: (capacity * lineElements) / 4,
    },
    tileCounts: {
      TILE_ROWS: tile.rows, TILE_COLUMNS: tile.columns, OUT_TILES: outTiles, TAP_TILES: tapTiles, SEER_TILES: seerTiles,
      OUT_PAIRS: outPairs, IN_PAIRS: inPairs, SPLITS: splits, SAMPLES_PER_SPLIT: Math.ceil(capacity / splits),
    },
  }
}
