// Linear layer in workgroup memory, for GPUs (kernels/linear-shared.wgsl).

import type { LinearDims } from '../kernels.ts'
import { matrix, optional, type Binding, type Pass } from '../recipe.ts'
import type { MakeRecipe, Variant } from '../variants.ts'
import { finishedMatrix, gradientMatrix, withFinish } from './finish.ts'
import { biasPasses, weightGradientTarget } from './linear.ts'
import {
  lastQuad,
  SHARED_TILES,
  sharedConstants,
  sharedGroups,
  sharedVariant,
  sharedWorkgroup,
  splitSum,
  type ProductSize,
  type SharedTile,
  type Split,
} from './tiles.ts'

/** Workgroups that fill a GPU of 100 and more cores. */
const BUSY_GROUPS = 256

export const LINEAR_FORWARD_SHARED: readonly Variant<'linear.forward'>[] = SHARED_TILES.map((tile) =>
  sharedVariant({
    tile,
    make: forward,
    sizeOf: ({ rows, out }, capacity) => ({ m: capacity * rows, n: out, batch: 1 }),
  }),
)

export const LINEAR_INPUT_GRADIENT_SHARED: readonly Variant<'linear.inputGradient'>[] = SHARED_TILES.map((tile) =>
  sharedVariant({
    tile,
    make: inputGradient,
    sizeOf: (dims, capacity) => ({ m: capacity * dims.rows, n: dims.in, batch: 1 }),
  }),
)

export const LINEAR_PARAMETER_GRADIENT_SHARED: readonly Variant<'linear.parameterGradient'>[] = SHARED_TILES.map(
  (tile) =>
    sharedVariant({
      tile,
      make: parameterGradient,
      suffix: ' split',
      sizeOf: (dims, capacity, other) => gradientSize(dims, splitOf(other, dims, capacity)),
    }),
)

function gradientSize(dims: LinearDims, { splits }: Split): ProductSize {
  return { m: dims.out, n: dims.in, batch: splits }
}

function splitOf(tile: SharedTile, dims: LinearDims, capacity: number): Split {
  return splitSum(capacity * dims.rows, {
    pieces: sharedGroups(tile, { m: dims.out, n: dims.in, batch: 1 }),
    wanted: BUSY_GROUPS,
    slab: tile.slab,
  })
}

function forward(tile: SharedTile): MakeRecipe<'linear.forward'> {
  return (dims, capacity, { bias, residual }) => {
    const rows = capacity * dims.rows
    const product = productPass(tile, {
      m: rows,
      n: dims.out,
      k: dims.in,
      rowsM: dims.rows,
      bindings: [
        named('left', matrix('x', 'read', rows, dims.in)),
        named('right', matrix('weight', 'read', dims.out, dims.in)),
        optional('bias', 'read', dims.out, bias),
        ...finishedMatrix('result', { rows, columns: dims.out, residual, activation: dims.activation }),
      ],
      threads: (samples) => sharedGroups(tile, { m: samples * dims.rows, n: dims.out, batch: 1 }),
    })
    return { scratch: {}, passes: [withFinish(product, dims)] }
  }
}

function inputGradient(tile: SharedTile): MakeRecipe<'linear.inputGradient'> {
  return (dims, capacity) => {
    const rows = capacity * dims.rows
    const product = productPass(tile, {
      m: rows,
      n: dims.in,
      k: dims.out,
      rowsM: dims.rows,
      bRowsK: true,
      bindings: [
        named('left', matrix('dy', 'read', rows, dims.out)),
        named('right', matrix('weight', 'read', dims.out, dims.in)),
        optional('bias', 'read', 1, undefined),
        ...gradientMatrix('result', { rows, columns: dims.in, derivative: dims.derivative }),
      ],
      threads: (samples) => sharedGroups(tile, { m: samples * dims.rows, n: dims.in, batch: 1 }),
    })
    return { scratch: {}, passes: [withFinish(product, dims)] }
  }
}

function parameterGradient(tile: SharedTile): MakeRecipe<'linear.parameterGradient'> {
  return (dims, capacity, operands) => {
    const rows = capacity * dims.rows
    const split = splitOf(tile, dims, capacity)
    const { target, scratch, sumPasses } = weightGradientTarget(dims, split, 'result')
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
    return { scratch, passes: [product, ...sumPasses, ...biasPasses(dims, capacity, operands)] }
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
  tile: SharedTile,
  { m, n, k, rowsM = 0, rowsK = 0, aRowsK = false, bRowsK = false, split, bindings, threads }: SharedProduct,
): Pass {
  const { splits, stepsPerSplit } = split ?? { splits: 1, stepsPerSplit: k }
  const workgroup = sharedWorkgroup(tile)
  return {
    file: 'linear-shared',
    uses: ['tile-product'],
    entryPoint: 'product',
    workgroup,
    bindings,
    constants: {
      ...sharedConstants(tile),
      M: m,
      N: n,
      K: k,
      ROWS_M: rowsM,
      ROWS_K: rowsK,
      A_ROWS_K: Number(aRowsK),
      B_ROWS_K: Number(bRowsK),
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

/** The shader names its matrices left, right and result. */
function named(name: string, binding: Binding): Binding {
  return { ...binding, name }
}
