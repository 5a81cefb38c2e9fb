// Convolution for software adapters: patches unfolded to scratch, register-tile matrix products, no barriers (kernels/conv2d.wgsl).

import type { Conv2dDims, KernelOperands } from '../kernels.ts'
import {
  array, matrix, optional, roundUp, STREAM_WORKGROUP, TILE, TILE_WORKGROUP, tiles, type Pass, type Recipe,
} from '../recipe.ts'

/** Invocations that keep every core of a software adapter busy: 16 workgroups. The weight gradient is split into so many. */
const BUSY_THREADS = 16 * TILE_WORKGROUP

const tilePass = { file: 'conv2d', workgroup: TILE_WORKGROUP } as const
const streamPass = { file: 'conv2d', workgroup: STREAM_WORKGROUP } as const

// x (B, C, H, W), weight (O, C/g, K, K), bias (O,) → y (B, O, P)
export function conv2dForward(dims: Conv2dDims, capacity: number, { bias }: KernelOperands<'conv2d.forward', unknown>): Recipe {
  const sizes = sizesOf(dims, capacity)
  const forward: Pass = {
    ...tilePass, entryPoint: 'forward', constants: sizes.constants,
    bindings: [matrix('packed', 'read', ...sizes.packed), matrix('patches', 'read', ...sizes.patches), matrix('y', 'write', ...sizes.y)],
    threads: samples => samples * dims.groups * sizes.outTiles * sizes.positionTiles,
  }
  return {
    scratch: { packed: elements(sizes.packed), patches: elements(sizes.patches) },
    passes: [packPass(dims, sizes, bias), unfoldPass(dims, sizes), forward],
  }
}

// weight, dy (B, O, P) → dx (B, C, H, W)
export function conv2dInputGradient(dims: Conv2dDims, capacity: number): Recipe {
  const sizes = sizesOf(dims, capacity)
  const { constants } = sizes
  const patchGradient: Pass = {
    ...tilePass, entryPoint: 'patch_gradient', constants,
    bindings: [matrix('packed', 'read', ...sizes.packed), matrix('dy', 'read', ...sizes.y), matrix('dpatches', 'write', ...sizes.patches)],
    threads: samples => samples * dims.groups * sizes.tapTiles * sizes.positionTiles,
  }
  const fold: Pass = {
    ...streamPass, entryPoint: 'fold', constants,
    bindings: [array('dpatches', 'read', elements(sizes.patches)), array('dx', 'write', sizes.x)],
    threads: samples => samples * dims.channels * dims.height * dims.width,
  }
  return {
    scratch: { packed: elements(sizes.packed), dpatches: elements(sizes.patches) },
    passes: [packPass(dims, sizes, undefined), patchGradient, fold],
  }
}

// x (B, C, H, W), dy (B, O, P) → dweight (O, C/g, K, K), dbias (O,)
export function conv2dParameterGradient(dims: Conv2dDims, capacity: number, { dbias }: KernelOperands<'conv2d.parameterGradient', unknown>): Recipe {
  const sizes = sizesOf(dims, capacity)
  const { constants } = sizes
  const partials: Pass = {
    ...tilePass, entryPoint: 'partial_gradient', constants,
    bindings: [matrix('dy', 'read', ...sizes.y), matrix('patches', 'read', ...sizes.patches), matrix('partials', 'write', ...sizes.partials)],
    threads: () => sizes.splits * dims.groups * sizes.outTiles * sizes.tapTiles,
  }
  const sum: Pass = {
    ...streamPass, entryPoint: 'sum_partials', constants,
    bindings: [
      array('partials', 'read', elements(sizes.partials), 'vec4f'), array('dweight', 'update', dims.out * sizes.taps),
      optional('dbias', 'update', dims.out, dbias),
    ],
    threads: () => (dims.out * sizes.tapsPadded) / 4,
  }
  return {
    scratch: { patches: elements(sizes.patches), partials: elements(sizes.partials) },
    passes: [unfoldPass(dims, sizes), partials, sum],
  }
}

function packPass(dims: Conv2dDims, sizes: Sizes, bias: unknown): Pass {
  return {
    ...streamPass, entryPoint: 'pack', constants: sizes.constants,
    bindings: [
      array('weight', 'read', dims.out * sizes.taps), optional('bias', 'read', dims.out, bias),
      array('packed', 'write', elements(sizes.packed), 'vec4f'),
    ],
    threads: () => elements(sizes.packed) / 4,
  }
}

function unfoldPass(dims: Conv2dDims, sizes: Sizes): Pass {
  return {
    ...streamPass, entryPoint: 'unfold', constants: sizes.constants,
    bindings: [array('x', 'read', sizes.x), array('patches', 'write', elements(sizes.patches), 'vec4f')],
    threads: samples => (samples * dims.groups * sizes.tapsPadded * sizes.patches[1]) / 4,
  }
}

type Sizes = ReturnType<typeof sizesOf>
type MatrixSize = readonly [rows: number, columns: number]

function sizesOf(dims: Conv2dDims, capacity: number) {
  const positions = dims.outHeight * dims.outWidth
  const channelsPerGroup = dims.channels / dims.groups
  const outPerGroup = dims.out / dims.groups
  const taps = channelsPerGroup * dims.kernel * dims.kernel
  const tapsPadded = roundUp(taps + 1, 4) // one more for the bias
  const positionsPadded = roundUp(positions, TILE)
  const outPadded = roundUp(outPerGroup, TILE)
  const [outTiles, tapTiles] = [tiles(outPerGroup), tiles(tapsPadded)]
  const splits = Math.min(capacity, Math.ceil(BUSY_THREADS / (dims.groups * outTiles * tapTiles)))
  return {
    taps, tapsPadded, outTiles, tapTiles, splits, positionTiles: tiles(positions),
    x: capacity * dims.channels * dims.height * dims.width,
    y: [capacity * dims.out, positions] as MatrixSize,
    packed: [dims.groups * outPadded, tapsPadded] as MatrixSize,
    patches: [capacity * dims.groups * tapsPadded, positionsPadded] as MatrixSize,
    partials: [splits * dims.out, tapsPadded] as MatrixSize,
    constants: {
      CHANNELS: dims.channels, HEIGHT: dims.height, WIDTH: dims.width, OUT_HEIGHT: dims.outHeight, OUT_WIDTH: dims.outWidth,
      KERNEL: dims.kernel, STRIDE: dims.stride, PADDING: dims.padding, GROUPS: dims.groups,
      CHANNELS_PER_GROUP: channelsPerGroup, OUT_PER_GROUP: outPerGroup, OUT_PADDED: outPadded, OUT_TILES: outTiles,
      TAPS: taps, TAPS_PADDED: tapsPadded, TAP_TILES: tapTiles, P: positions, P_PADDED: positionsPadded, P_TILES: tiles(positions),
      LAST_PACKED_ROW: dims.groups * outPadded - 1, SPLITS: splits, SAMPLES_PER_SPLIT: Math.ceil(capacity / splits),
    },
  }
}

function elements([rows, columns]: MatrixSize): number {
  return rows * columns
}
