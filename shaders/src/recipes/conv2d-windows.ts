// Convolution of stride 1 through windows by subgroups, for software adapters (kernels/conv2d-windows.wgsl): what
// kernel columns see overlaps and is loaded once. The gradient of x is the same convolution of dy with turned kernels.

import type { Conv2dDims, DerivativeDims, FinishDims } from '../kernels.ts'
import {
  array,
  matrix,
  ofOperand,
  optional,
  STREAM_WORKGROUP,
  type Binding,
  type Pass,
  type Recipe,
} from '../recipe.ts'
import type { AdapterTraits, MakeRecipe, Variant } from '../variants.ts'
import { alignPasses, linesOf } from './conv2d-lines.ts'
import {
  cellTiles,
  conv2dVariant,
  ENOUGH_LANES,
  FEWEST_COLUMNS,
  forwardProduct,
  hasWindows,
  tileConstants,
  turnsWell,
  type Conv2dKernel,
  type Worth,
} from './conv2d-subgroup.ts'
import { finishedMatrix, gradientMatrix, withFinish } from './finish.ts'
import { SUBGROUP_TILES, type SubgroupProduct, type SubgroupTile } from './subgroup-tiles.ts'
import { BUSY_GROUPS } from './tiles.ts'

/** Own columns of tiles whose invocations have one window row. */
const ROW_COLUMNS = 4

export const CONV2D_FORWARD_WINDOWS: readonly Variant<'conv2d.forward'>[] = SUBGROUP_TILES.map((tile) =>
  windowVariant(tile, forward(tile), { productOf: forwardProduct }),
)
export const CONV2D_INPUT_GRADIENT_WINDOWS: readonly Variant<'conv2d.inputGradient'>[] = SUBGROUP_TILES.map((tile) =>
  windowVariant(tile, inputGradient(tile), {
    productOf: (_, dims, samples) => productOf(turned(dims), samples),
    isWorthIt: (dims) => turnsWell(tile, dims),
  }),
)
export const CONV2D_PARAMETER_GRADIENT_WINDOWS: readonly Variant<'conv2d.parameterGradient'>[] = SUBGROUP_TILES.filter(
  ({ columns }) => columns === ROW_COLUMNS,
).map((tile) =>
  windowVariant(tile, parameterGradient(tile), {
    productOf: ({ outPerGroup, seers }, { groups }, samples) => ({
      rows: outPerGroup,
      columns: ROW_COLUMNS * (seers + 1),
      batch: groups * samples,
    }),
    isWorthIt: () => tile.lanes >= ENOUGH_LANES,
  }),
)

function windowVariant<K extends Conv2dKernel>(tile: SubgroupTile, recipe: MakeRecipe<K>, worth: Worth) {
  const variant = conv2dVariant(tile, recipe, worth)
  return {
    ...variant,
    name: `${variant.name} windows`,
    fits: (traits: AdapterTraits, dims: Conv2dDims) => hasWindows(dims) && variant.fits(traits),
  }
}

const streamPass = { file: 'conv2d-windows', workgroup: STREAM_WORKGROUP } as const

/** The convolution of dy that gives the gradient of x. */
function turned<D extends Conv2dDims>(dims: D): D {
  const { channels, height, width, out, outHeight, outWidth, kernel, padding } = dims
  return {
    ...dims,
    channels: out,
    height: outHeight,
    width: outWidth,
    out: channels,
    outHeight: height,
    outWidth: width,
    padding: kernel - 1 - padding,
  }
}

type Windows = ReturnType<typeof windowsOf>

/** Sizes of what is prepared; beyond those of lines, a window row is a channel of the group and a kernel row. */
function windowsOf(dims: Conv2dDims, capacity: number, isTurned = false) {
  const lines = linesOf(dims, capacity)
  const paddedQuads = lines.quads + 1
  const windowRows = (dims.channels / dims.groups) * dims.kernel
  const rowQuads = Math.ceil(dims.kernel / 4)
  const elements = capacity * dims.channels * lines.rows * paddedQuads * 4
  return {
    lines,
    capacity,
    windowRows,
    rowQuads,
    padded: elements + paddedQuads * 4,
    packed: dims.groups * lines.outPadded * windowRows * rowQuads * 4,
    constants: {
      ...lines.constants,
      PADDED_QUADS: paddedQuads,
      WINDOW_ROWS: windowRows,
      ROW_QUADS: rowQuads,
      ONES: elements / 4,
      TURNED: Number(isTurned),
    },
  }
}

/** x (B, C, H, W), weight (O, C/g, K, K), bias (O,), residual (B, O, H', W') → y (B, O, H', W') */
function forward(tile: SubgroupTile): MakeRecipe<'conv2d.forward'> {
  return (dims, capacity, operands) => {
    const windows = windowsOf(dims, capacity)
    const target = finishedMatrix('y', { ...resultSize(dims, windows), activation: dims.activation, operands })
    return convolution('x', { dims, windows, tile, bias: optional('bias', 'read', dims.out, operands.bias), target })
  }
}

/** weight, dy (B, O, H', W'), activated (B, C, H, W) → dx (B, C, H, W) */
function inputGradient(tile: SubgroupTile): MakeRecipe<'conv2d.inputGradient'> {
  return (given, capacity) => {
    const dims = turned(given)
    const windows = windowsOf(dims, capacity, true)
    const target = gradientMatrix('y', { ...resultSize(dims, windows), derivative: dims.derivative })
    return convolution('dy', { dims, windows, tile, bias: optional('bias', 'read', 1, undefined), target })
  }
}

/**
 * Of a window of few kernel columns little is computed. With two of them, what is joint is loaded half as often (1.2
 * times as fast).
 */
function widened(tile: SubgroupTile, { kernel }: Conv2dDims): SubgroupTile {
  return tile.lanes >= ENOUGH_LANES && kernel === FEWEST_COLUMNS ? { ...tile, columns: 8 } : tile
}

interface Convolution {
  readonly dims: Conv2dDims & FinishDims & DerivativeDims
  readonly windows: Windows
  readonly tile: SubgroupTile
  readonly bias: Binding
  readonly target: readonly Binding[]
}

function convolution(operand: 'x' | 'dy', { dims, windows, tile: given, bias, target }: Convolution): Recipe {
  const { packed, padded, lines, constants } = windows
  const tile = widened(given, dims)
  const pack: Pass = {
    ...streamPass,
    entryPoint: 'pack_windows',
    constants,
    threads: () => packed / 4,
    bindings: [array('weight', 'read', dims.out * lines.taps), array('packed', 'write', packed, 'vec4f')],
  }
  const tiles = cellTiles(tile, forwardProduct(lines, dims, lines.capacity))
  const product: Pass = {
    ...productPass(tile, 'forward_windows'),
    threads: tiles.threads,
    constants: { ...constants, ...tiles.constants },
    bindings: [array('packed', 'read', packed, 'vec4f'), array('padded', 'read', padded, 'vec4f'), bias, ...target],
  }
  return { scratch: { packed, padded }, passes: [pack, padPass(operand, dims, windows), withFinish(product, dims)] }
}

/** x (B, C, H, W), dy (B, O, H', W') → dweight (O, C/g, K, K), dbias (O,) */
function parameterGradient(tile: SubgroupTile): MakeRecipe<'conv2d.parameterGradient'> {
  return (dims, capacity, { dbias }) => {
    const wide = widened(tile, dims)
    const windows = windowsOf(dims, capacity)
    const { lines, padded, windowRows, rowQuads, constants } = windows
    const [outTiles, rowTiles] = [
      Math.ceil(lines.outPerGroup / tile.rows),
      Math.ceil((windowRows + 1) / (wide.lanes * (wide.columns / ROW_COLUMNS))),
    ]
    const pieces = outTiles * rowTiles * dims.groups
    const splits = Math.min(capacity, Math.ceil(BUSY_GROUPS / pieces))
    const columns = (windowRows + 1) * rowQuads * 4
    const product: Pass = {
      ...productPass(tile, 'partial_windows'),
      threads: () => pieces * splits * tile.lanes,
      constants: {
        ...constants,
        ...tileConstants(wide),
        OUT_TILES: outTiles,
        ROW_TILES: rowTiles,
        SPLITS: splits,
        SAMPLES_PER_SPLIT: Math.ceil(capacity / splits),
      },
      bindings: [
        lines.dy,
        array('padded', 'read', padded, 'vec4f'),
        matrix('partials', 'write', splits * dims.out, columns),
      ],
    }
    const sum: Pass = {
      ...streamPass,
      entryPoint: 'sum_windows',
      constants: { ...constants, SPLITS: splits },
      threads: () => (dims.out * columns) / 4,
      bindings: [
        array('partials', 'read', splits * dims.out * columns, 'vec4f'),
        array('dweight', 'update', dims.out * lines.taps),
        optional('dbias', 'update', dims.out, dbias),
      ],
    }
    return {
      scratch: { padded, partials: splits * dims.out * columns, ...lines.alignedScratch },
      passes: [padPass('x', dims, windows), ...alignPasses(dims, lines), product, sum],
    }
  }
}

function productPass({ lanes }: SubgroupTile, entryPoint: string) {
  return {
    file: 'conv2d-windows',
    uses: ['conv2d-subgroup', 'subgroup-product', 'conv2d-lines'],
    entryPoint,
    workgroup: lanes,
    subgroups: true,
  } as const
}

function productOf(dims: Conv2dDims, samples: number): SubgroupProduct {
  return forwardProduct(linesOf(dims, samples), dims, samples)
}

function resultSize({ out, outHeight, outWidth }: Conv2dDims, { capacity }: Windows) {
  return { rows: capacity * out * outHeight, columns: outWidth }
}

function padPass(
  operand: 'x' | 'dy',
  { channels, height, width }: Conv2dDims,
  { lines, capacity, padded, constants }: Windows,
): Pass {
  const plane = lines.rows * constants.PADDED_QUADS
  return {
    ...streamPass,
    entryPoint: 'pad',
    constants,
    bindings: [
      ofOperand(operand, array('x', 'read', capacity * channels * height * width)),
      array('padded', 'write', padded, 'vec4f'),
    ],
    threads: (samples) => samples * channels * plane + constants.PADDED_QUADS,
  }
}
