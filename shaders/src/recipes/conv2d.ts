// Convolution for software adapters: lines spread to scratch, register-tile matrix products, no barriers (kernels/conv2d.wgsl).

import type { Conv2dDims, KernelOperands } from '../kernels.ts'
import {
  array, matrix, ofOperand, optional, roundUp, STREAM_WORKGROUP, TILE, TILE_WORKGROUP, tiles, type Pass, type Recipe,
} from '../recipe.ts'

/** Invocations that keep every core of a software adapter busy: 16 workgroups. The weight gradient is split into so many. */
const BUSY_THREADS = 16 * TILE_WORKGROUP

const tilePass = { file: 'conv2d', workgroup: TILE_WORKGROUP } as const
const streamPass = { file: 'conv2d', workgroup: STREAM_WORKGROUP } as const

// x (B, C, H, W), weight (O, C/g, K, K), bias (O,) → y (B, O, H', W')
export function conv2dForward(dims: Conv2dDims, capacity: number, { bias }: KernelOperands<'conv2d.forward', unknown>): Recipe {
  const sizes = sizesOf(dims, capacity)
  const packed = dims.groups * sizes.outPadded * sizes.tapQuads * 4
  const taps = sizes.tapQuads * 4
  const pack: Pass = {
    ...streamPass, entryPoint: 'pack_taps', constants: sizes.constants,
    bindings: [array('weight', 'read', dims.out * sizes.taps), array('packed', 'write', packed, 'vec4f'), array('taps', 'write', taps, 'vec4u')],
    threads: () => packed / 4,
  }
  const forward: Pass = {
    ...tilePass, entryPoint: 'forward', constants: sizes.constants,
    bindings: [
      array('packed', 'read', packed, 'vec4f'), array('taps', 'read', taps, 'vec4u'), array('lines', 'read', sizes.lines, 'vec4f'),
      optional('bias', 'read', dims.out, bias),
      matrix('y', 'write', capacity * dims.out * dims.outHeight, dims.outWidth),
    ],
    threads: samples => samples * dims.groups * sizes.outTiles * sizes.outPairs,
  }
  return { scratch: { packed, taps, lines: sizes.lines }, passes: [pack, spreadPass(dims, sizes, capacity), forward] }
}

// weight, dy (B, O, H', W') → dx (B, C, H, W)
export function conv2dInputGradient(dims: Conv2dDims, capacity: number): Recipe {
  const sizes = sizesOf(dims, capacity)
  const { constants } = sizes
  const packed = dims.groups * sizes.seersPadded * dims.kernel * sizes.out4
  const dlines = capacity * dims.groups * sizes.seers * dims.height * sizes.line
  const pack: Pass = {
    ...streamPass, entryPoint: 'pack_seers', constants,
    bindings: [array('weight', 'read', dims.out * sizes.taps), array('packed', 'write', packed)],
    threads: () => packed,
  }
  const lineGradient: Pass = {
    ...tilePass, entryPoint: 'line_gradient', constants,
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
export function conv2dParameterGradient(dims: Conv2dDims, capacity: number, { dbias }: KernelOperands<'conv2d.parameterGradient', unknown>): Recipe {
  const sizes = sizesOf(dims, capacity)
  const { constants } = sizes
  const partials: Pass = {
    ...tilePass, entryPoint: 'partial_gradient', constants,
    bindings: [sizes.dy, array('lines', 'read', sizes.lines, 'vec4f'), matrix('partials', 'write', sizes.splits * dims.out, sizes.tapsPadded)],
    threads: () => sizes.splits * dims.groups * sizes.outTiles * sizes.tapTiles,
  }
  const sum: Pass = {
    ...streamPass, entryPoint: 'sum_partials', constants,
    bindings: [
      array('partials', 'read', sizes.partials, 'vec4f'), array('dweight', 'update', dims.out * sizes.taps),
      optional('dbias', 'update', dims.out, dbias),
    ],
    threads: () => (dims.out * sizes.tapsPadded) / 4,
  }
  return {
    scratch: { lines: sizes.lines, partials: sizes.partials, ...sizes.alignedScratch },
    passes: [spreadPass(dims, sizes, capacity), ...alignPasses(dims, sizes, capacity), partials, sum],
  }
}

function spreadPass(dims: Conv2dDims, sizes: Sizes, capacity: number): Pass {
  const plane = sizes.rows * sizes.quads
  return {
    ...streamPass, entryPoint: 'spread', constants: sizes.constants,
    bindings: [array('x', 'read', capacity * dims.channels * dims.height * dims.width), array('lines', 'write', sizes.lines, 'vec4f')],
    threads: samples => (samples * dims.channels + 1) * plane,
  }
}

/** dy as quads: directly where its lines are whole quads, else through a copy. */
function alignPasses(dims: Conv2dDims, sizes: Sizes, capacity: number): Pass[] {
  if (!('aligned' in sizes.alignedScratch)) return []
  return [{
    ...streamPass, entryPoint: 'align', constants: sizes.constants,
    bindings: [
      ofOperand('dy', matrix('ragged', 'read', capacity * dims.out * dims.outHeight, dims.outWidth)),
      array('aligned', 'write', sizes.alignedScratch.aligned, 'vec4f'),
    ],
    threads: samples => samples * dims.out * dims.outHeight * sizes.quads,
  }]
}

type Sizes = ReturnType<typeof sizesOf>

function sizesOf(dims: Conv2dDims, capacity: number) {
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
  const [outTiles, tapTiles, seerTiles] = [tiles(outPerGroup), tiles(taps + 1), tiles(seers)]
  const outPairs = Math.ceil((dims.outHeight * quads) / 2)
  const inPairs = Math.ceil((dims.height * quads) / 2)
  const splits = Math.min(capacity, Math.ceil(BUSY_THREADS / (groups * outTiles * tapTiles)))
  const lineElements = dims.channels * kernel * rows * line
  const dyElements = capacity * dims.out * dims.outHeight * line
  const isAligned = dims.outWidth === line
  const dy = ofOperand(isAligned ? 'dy' : 'aligned', array('dy', 'read', dyElements, 'vec4f'))
  return {
    taps, tapsPadded, tapQuads, seers, seersPadded, outPadded, out4, outTiles, tapTiles, seerTiles, outPairs, inPairs, splits, quads, line, rows, dy,
    lines: capacity * lineElements + rows * line,
    partials: splits * dims.out * tapsPadded,
    alignedScratch: isAligned ? {} : { aligned: dyElements },
    constants: {
      CHANNELS: dims.channels, HEIGHT: dims.height, WIDTH: dims.width, OUT: dims.out, OUT_HEIGHT: dims.outHeight, OUT_WIDTH: dims.outWidth,
      KERNEL: kernel, STRIDE: stride, PADDING: dims.padding, GROUPS: groups,
      CHANNELS_PER_GROUP: channelsPerGroup, OUT_PER_GROUP: outPerGroup, OUT_PADDED: outPadded, OUT4: out4, OUT_TILES: outTiles,
      TAPS: taps, TAPS_PADDED: tapsPadded, TAP_QUADS: tapQuads, TAP_TILES: tapTiles, SEERS: seers, SEERS_PADDED: seersPadded, SEER_TILES: seerTiles,
      QUADS: quads, IN_QUADS: Math.ceil(dims.width / 4), ROWS: rows, OUT_QUADS: dims.outHeight * quads, OUT_PAIRS: outPairs, IN_PAIRS: inPairs,
      ONES: (capacity * lineElements) / 4, SPLITS: splits, SAMPLES_PER_SPLIT: Math.ceil(capacity / splits),
    },
  }
}
