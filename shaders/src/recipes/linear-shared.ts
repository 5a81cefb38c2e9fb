// Linear layer in workgroup memory, for GPUs (kernels/linear-shared.wgsl), and on their matrix units
// (kernels/linear-matrix.wgsl).

import type { DerivativeDims, FinishDims, LinearDims } from '../kernels.ts'
import {
  matrix,
  ofOperand,
  optional,
  roundUp,
  STREAM_WORKGROUP,
  type Binding,
  type Pass,
  type Recipe,
} from '../recipe.ts'
import type { MakeRecipe, Variant } from '../variants.ts'
import { finishedMatrix, gradientMatrix, withFinish } from './finish.ts'
import { biasPasses, weightGradientTarget } from './linear.ts'
import { MATRIX_TILES, matrixConstants, matrixVariant } from './matrix-tiles.ts'
import { sharedRows } from './row-sharing.ts'
import {
  FEW_INVOCATIONS,
  lastQuad,
  SHARED_TILES,
  sharedBlocks,
  sharedConstants,
  sharedGroups,
  sharedVariant,
  sharedWorkgroup,
  splitSum,
  wantedGroups,
  type ProductSize,
  type ProductTile,
  type Split,
} from './tiles.ts'

/** What is known of a direction, whatever multiplies. */
const FORWARD = {
  make: forward,
  sizeOf: ({ rows, in: k, out }: LinearDims, capacity: number, tile: ProductTile) =>
    splitSize(tile, { m: capacity * rows, n: out, k }),
}
const INPUT_GRADIENT = {
  make: inputGradient,
  sizeOf: (dims: LinearDims, capacity: number, tile: ProductTile) =>
    splitSize(tile, { m: capacity * dims.rows, n: dims.in, k: dims.out }),
}
const PARAMETER_GRADIENT = {
  make: parameterGradient,
  suffix: ' split',
  sizeOf: (dims: LinearDims, capacity: number, tile: ProductTile) => gradientSize(dims, splitOf(tile, dims, capacity)),
}

export const LINEAR_FORWARD_SHARED: readonly Variant<'linear.forward'>[] = SHARED_TILES.map((tile) =>
  sharedVariant({ tile, ...FORWARD }),
)
export const LINEAR_INPUT_GRADIENT_SHARED: readonly Variant<'linear.inputGradient'>[] = SHARED_TILES.map((tile) =>
  sharedVariant({ tile, ...INPUT_GRADIENT }),
)
export const LINEAR_PARAMETER_GRADIENT_SHARED: readonly Variant<'linear.parameterGradient'>[] = SHARED_TILES.map(
  (tile) => sharedVariant({ tile, ...PARAMETER_GRADIENT }),
)
export const LINEAR_FORWARD_MATRIX: readonly Variant<'linear.forward'>[] = MATRIX_TILES.map((tile) =>
  matrixVariant({ tile, ...FORWARD }),
)
export const LINEAR_INPUT_GRADIENT_MATRIX: readonly Variant<'linear.inputGradient'>[] = MATRIX_TILES.map((tile) =>
  matrixVariant({ tile, ...INPUT_GRADIENT }),
)
export const LINEAR_PARAMETER_GRADIENT_MATRIX: readonly Variant<'linear.parameterGradient'>[] = MATRIX_TILES.map(
  (tile) => matrixVariant({ tile, ...PARAMETER_GRADIENT }),
)

function gradientSize(dims: LinearDims, { splits }: Split): ProductSize {
  return { m: dims.out, n: dims.in, batch: splits }
}

function splitOf(tile: ProductTile, dims: LinearDims, capacity: number): Split {
  return splitSum(capacity * dims.rows, {
    pieces: sharedGroups(tile, { m: dims.out, n: dims.in, batch: 1 }),
    wanted: wantedGroups(tile),
    slab: tile.slab,
  })
}

/** Steps of a sum over features from which its splits are worth a pass that adds them up. */
const LONG_SUM = 256

interface RowProduct {
  readonly m: number
  readonly n: number
  readonly k: number
}

/** Of a product with few results and many steps for each: a head of few classes, the narrow side of an adapter. */
function splitOfSteps(tile: ProductTile, { m, n, k }: RowProduct): Split {
  if (k < LONG_SUM) return { splits: 1, stepsPerSplit: k }
  return splitSum(k, {
    pieces: sharedGroups(tile, { m, n, batch: 1 }),
    wanted: FEW_INVOCATIONS / sharedWorkgroup(tile),
    slab: tile.slab,
  })
}

function splitSize(tile: ProductTile, product: RowProduct): ProductSize {
  return { m: product.m, n: product.n, batch: splitOfSteps(tile, product).splits }
}

function forward(tile: ProductTile): MakeRecipe<'linear.forward'> {
  return (dims, capacity, operands) => {
    const rows = capacity * dims.rows
    return rowProduct(tile, dims, capacity, {
      n: dims.out,
      k: dims.in,
      left: matrix('x', 'read', rows, dims.in),
      right: matrix('weight', 'read', dims.out, dims.in),
      bias: optional('bias', 'read', dims.out, operands.bias),
      result: finishedMatrix('result', { rows, columns: dims.out, activation: dims.activation, operands }),
    })
  }
}

function inputGradient(tile: ProductTile): MakeRecipe<'linear.inputGradient'> {
  return (dims, capacity) => {
    const rows = capacity * dims.rows
    return rowProduct(tile, dims, capacity, {
      n: dims.in,
      k: dims.out,
      bRowsK: true,
      left: matrix('dy', 'read', rows, dims.out),
      right: matrix('weight', 'read', dims.out, dims.in),
      bias: optional('bias', 'read', 1, undefined),
      result: gradientMatrix('result', { rows, columns: dims.in, derivative: dims.derivative }),
    })
  }
}

interface RowProductParts {
  readonly n: number
  readonly k: number
  readonly bRowsK?: boolean
  readonly left: Binding
  readonly right: Binding
  readonly bias: Binding
  /** with its epilogue */
  readonly result: readonly Binding[]
}

/** A product whose rows follow the samples. Where its sum is split, another pass adds the parts up and finishes. */
function rowProduct(
  tile: ProductTile,
  dims: LinearDims & FinishDims & DerivativeDims,
  capacity: number,
  { n, k, bRowsK = false, left, right, bias, result }: RowProductParts,
): Recipe {
  const m = capacity * dims.rows
  const split = splitOfSteps(tile, { m, n, k })
  const columns = roundUp(n, 4)
  const isSplit = split.splits > 1
  const target = ofOperand('parts', matrix('result', 'write', split.splits * m, columns))
  const product = productPass(tile, {
    m,
    n,
    k,
    rowsM: dims.rows,
    bRowsK,
    split,
    bindings: [
      named('left', left),
      named('right', right),
      ...(isSplit ? [optional('bias', 'read', 1, undefined), target] : [bias, ...result]),
    ],
    // splits are counted outermost, so that those of a run with fewer samples keep their places
    threads: (samples) => sharedGroups(tile, { m: isSplit ? m : samples * dims.rows, n, batch: split.splits }),
  })
  if (!isSplit) return { scratch: {}, passes: [withFinish(product, dims)] }
  const finish: Pass = {
    file: 'linear',
    workgroup: STREAM_WORKGROUP,
    entryPoint: 'finish_parts',
    constants: { ROWS: dims.rows, ALL_ROWS: m, QUADS: columns / 4, SPLITS: split.splits },
    bindings: [matrix('parts', 'read', split.splits * m, columns), bias, ...result],
    threads: (samples) => (samples * dims.rows * columns) / 4,
  }
  return { scratch: { parts: split.splits * m * columns + 4 }, passes: [product, withFinish(finish, dims)] }
}

function parameterGradient(tile: ProductTile): MakeRecipe<'linear.parameterGradient'> {
  return (dims, capacity, operands) => {
    const rows = capacity * dims.rows
    const split = splitOf(tile, dims, capacity)
    const { target, scratch, sumPasses } = weightGradientTarget(dims, split, { name: 'result', share: sharedRows })
    const product = productPass(tile, {
      m: dims.out,
      n: dims.in,
      k: rows,
      rowsK: dims.rows,
      aRowsK: true,
      bRowsK: true,
      split,
      bindings: [
        named('left', matrix('dy', 'read', rows, dims.out)),
        named('right', matrix('x', 'read', rows, dims.in)),
        optional('bias', 'read', 1, undefined),
        target,
      ],
      threads: () => sharedGroups(tile, gradientSize(dims, split)),
    })
    return { scratch, passes: [product, ...sumPasses, ...biasPasses(dims, capacity, operands, sharedRows)] }
  }
}

/** C (m, n) = A (m, k) · B (k, n); rowsM, rowsK: of one sample, where m or k follows the number of samples. */
interface SharedProduct {
  readonly m: number
  readonly n: number
  readonly k: number
  readonly rowsM?: number
  readonly rowsK?: number
  readonly aRowsK?: boolean
  readonly bRowsK?: boolean
  readonly split?: Split
  readonly bindings: readonly Binding[]
  /** workgroups */
  threads(samples: number): number
}

function productPass(
  tile: ProductTile,
  { m, n, k, rowsM = 0, rowsK = 0, aRowsK = false, bRowsK = false, split, bindings, threads }: SharedProduct,
): Pass {
  const { splits, stepsPerSplit } = split ?? { splits: 1, stepsPerSplit: k }
  const workgroup = sharedWorkgroup(tile)
  const blocks = sharedBlocks(tile, stepsPerSplit)
  const core = coreOf(tile, { k, rowsK, isGradient: aRowsK })
  return {
    ...core,
    loads: 4 * (blocks.a + blocks.b),
    entryPoint: 'product',
    workgroup,
    bindings,
    constants: {
      ...core.constants,
      M: m,
      N: n,
      K: k,
      ROWS_M: rowsM,
      ROWS_K: rowsK,
      A_ALONG_K: Number(!aRowsK),
      B_ALONG_K: Number(!bRowsK),
      TILES_M: Math.ceil(m / tile.m),
      TILES_N: Math.ceil(n / tile.n),
      LAST_QUAD_M: lastQuad(m),
      LAST_QUAD_N: lastQuad(n),
      SPLITS: splits,
      K_PER_SPLIT: stepsPerSplit,
      ADDS: Number(aRowsK && splits === 1),
    },
    threads: (samples) => threads(samples) * workgroup,
  }
}

/** The texts that multiply, and the constants that are theirs alone. */
function coreOf(
  tile: ProductTile,
  product: { readonly k: number; readonly rowsK: number; readonly isGradient: boolean },
): Pick<Pass, 'file' | 'uses' | 'matrixUnits'> & { readonly constants: Readonly<Record<string, number>> } {
  if (!('ownM' in tile)) return { file: 'linear-shared', uses: ['tile-product'], constants: sharedConstants(tile) }
  const constants = matrixConstants(tile, product)
  return { file: 'linear-matrix', uses: ['matrix-product'], matrixUnits: true, constants }
}

/** The shader names its matrices left, right and result. */
function named(name: string, binding: Binding): Binding {
  return { ...binding, name }
}
