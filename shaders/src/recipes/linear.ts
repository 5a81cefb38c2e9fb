// Linear layer in registers: tiles without barriers, for software adapters (kernels/linear.wgsl).

import type { KernelOperands, LinearDims } from '../kernels.ts'
import { matrix, optional, roundUp, STREAM_WORKGROUP, TILE_WORKGROUP, type Pass, type Recipe } from '../recipe.ts'
import type { MakeRecipe, Variant } from '../variants.ts'
import { finishedMatrix, gradientMatrix, withFinish } from './finish.ts'
import { ownRows, type ShareRows } from './row-sharing.ts'
import {
  REGISTER_TILES,
  registerThreads,
  registerTileName,
  registerTileSuits,
  splitSum,
  type RegisterTile,
  type Split,
} from './tiles.ts'

/** Invocations that keep every core of a software adapter busy: 16 workgroups. */
const BUSY_THREADS = 16 * TILE_WORKGROUP

export const LINEAR_FORWARD: readonly Variant<'linear.forward'>[] = REGISTER_TILES.map((tile) => ({
  family: 'register',
  name: registerTileName(tile),
  recipe: forward(tile),
  suits: ({ rows, out }, capacity, traits) => registerTileSuits(tile, { m: capacity * rows, n: out, batch: 1 }, traits),
}))

export const LINEAR_INPUT_GRADIENT: readonly Variant<'linear.inputGradient'>[] = REGISTER_TILES.map((tile) => ({
  family: 'register',
  name: registerTileName(tile),
  recipe: inputGradient(tile),
  suits: (dims, capacity, traits) => registerTileSuits(tile, { m: capacity * dims.rows, n: dims.in, batch: 1 }, traits),
}))

export const LINEAR_PARAMETER_GRADIENT: readonly Variant<'linear.parameterGradient'>[] = [
  ...REGISTER_TILES.map((tile): Variant<'linear.parameterGradient'> => ({
    family: 'register',
    name: registerTileName(tile),
    recipe: parameterGradient(tile, wholeSum),
    suits: (dims, _, traits) => registerTileSuits(tile, { m: dims.out, n: dims.in, batch: 1 }, traits),
  })),
  ...REGISTER_TILES.slice(0, 1).map((tile): Variant<'linear.parameterGradient'> => ({
    family: 'register',
    name: `${registerTileName(tile)} split`,
    recipe: parameterGradient(tile, busySplit),
    suits: (dims, capacity) => busySplit(tile, dims, capacity).splits > 1,
  })),
]

// x (R, in), weight (out, in), bias (out,), residual (R, out) → y (R, out)
function forward(tile: RegisterTile): MakeRecipe<'linear.forward'> {
  return (dims, capacity, operands) => {
    const rows = capacity * dims.rows
    return only(
      withFinish(
        {
          ...tilePass(dims, tile),
          entryPoint: 'forward',
          bindings: [
            matrix('x', 'read', rows, dims.in),
            matrix('weight', 'read', dims.out, dims.in),
            optional('bias', 'read', dims.out, operands.bias),
            ...finishedMatrix('y', { rows, columns: dims.out, activation: dims.activation, operands }),
          ],
          threads: (samples) => registerThreads(tile, { m: samples * dims.rows, n: dims.out, batch: 1 }),
        },
        dims,
      ),
    )
  }
}

// dy (R, out), weight (out, in), activated (R, in) → dx (R, in)
function inputGradient(tile: RegisterTile): MakeRecipe<'linear.inputGradient'> {
  return (dims, capacity) => {
    const rows = capacity * dims.rows
    return only(
      withFinish(
        {
          ...tilePass(dims, tile),
          entryPoint: 'input_gradient',
          bindings: [
            matrix('weight', 'read', dims.out, dims.in),
            matrix('dy', 'read', rows, dims.out),
            ...gradientMatrix('dx', { rows, columns: dims.in, derivative: dims.derivative }),
          ],
          threads: (samples) => registerThreads(tile, { m: samples * dims.rows, n: dims.in, batch: 1 }),
        },
        dims,
      ),
    )
  }
}

type SplitRule = (tile: RegisterTile, dims: LinearDims, capacity: number) => Split

function wholeSum(_: RegisterTile, { rows }: LinearDims, capacity: number): Split {
  return { splits: 1, stepsPerSplit: capacity * rows }
}

function busySplit(tile: RegisterTile, dims: LinearDims, capacity: number): Split {
  return splitSum(capacity * dims.rows, {
    pieces: registerThreads(tile, { m: dims.out, n: dims.in, batch: 1 }),
    wanted: BUSY_THREADS,
    slab: 4,
  })
}

// x (R, in), dy (R, out) → dweight (out, in), dbias (out,)
function parameterGradient(tile: RegisterTile, splitRule: SplitRule): MakeRecipe<'linear.parameterGradient'> {
  return (dims, capacity, operands) => {
    const rows = capacity * dims.rows
    const split = splitRule(tile, dims, capacity)
    const common = tilePass(dims, tile, split)
    const { target, scratch, sumPasses } = weightGradientTarget(dims, split)
    const weightPass: Pass = {
      ...common,
      entryPoint: 'weight_gradient',
      bindings: [matrix('x', 'read', rows, dims.in), matrix('dy', 'read', rows, dims.out), target],
      threads: () => registerThreads(tile, { m: dims.out, n: dims.in, batch: split.splits }),
    }
    return { scratch, passes: [weightPass, ...sumPasses, ...biasPasses(dims, capacity, operands)] }
  }
}

/** dweight itself or, when the sum is split, parts of it in scratch and the pass that adds them up. */
export function weightGradientTarget(
  dims: LinearDims,
  { splits }: Split,
  { name = 'dweight', share = ownRows }: { readonly name?: string; readonly share?: ShareRows } = {},
) {
  const dweight = { ...matrix('dweight', 'update', dims.out, dims.in), covers: true }
  if (splits === 1) return { target: { ...dweight, name }, scratch: {}, sumPasses: [] }
  const columns = roundUp(dims.in, 4)
  const parts = matrix('parts', 'read', splits * dims.out, columns)
  const { sharing, invocations } = share({
    steps: splits,
    reads: 1,
    workgroup: STREAM_WORKGROUP,
    rows: (dims.out * columns) / 4,
  })
  const sum: Pass = {
    file: 'linear',
    ...sharing,
    entryPoint: 'sum_parts',
    constants: { OUT: dims.out, IN_QUADS: columns / 4, SPLITS: splits },
    bindings: [parts, dweight],
    threads: () => invocations((dims.out * columns) / 4),
  }
  const target = { ...matrix(name, 'write', splits * dims.out, columns), operand: 'parts' }
  return { target, scratch: { parts: splits * dims.out * columns + 4 }, sumPasses: [sum] }
}

/** Its own pass: four outputs at a time, over all rows. */
export function biasPasses(
  dims: LinearDims,
  capacity: number,
  { dbias }: KernelOperands<'linear.parameterGradient', unknown>,
  share: ShareRows = ownRows,
): Pass[] {
  if (dbias === undefined) return []
  const { sharing, invocations } = share({ steps: capacity * dims.rows, reads: 1, workgroup: TILE_WORKGROUP })
  return [
    {
      file: 'linear',
      ...sharing,
      entryPoint: 'bias_gradient',
      constants: { ROWS: dims.rows, OUT: dims.out },
      bindings: [matrix('dy', 'read', capacity * dims.rows, dims.out), optional('dbias', 'update', dims.out, dbias)],
      threads: () => invocations(Math.ceil(dims.out / 4)),
    },
  ]
}

function tilePass(
  dims: LinearDims,
  { rows, columns, workgroup }: RegisterTile,
  split?: Split,
): Pick<Pass, 'file' | 'workgroup' | 'constants'> {
  const inTiles = Math.ceil(dims.in / columns)
  const outTiles = split ? Math.ceil(dims.out / rows) : Math.ceil(dims.out / columns)
  return {
    file: 'linear',
    workgroup,
    constants: {
      ROWS: dims.rows,
      IN: dims.in,
      OUT: dims.out,
      TILE_ROWS: rows,
      TILE_COLUMNS: columns,
      IN_TILES: inTiles,
      OUT_TILES: outTiles,
      ...(split ? { SPLITS: split.splits, ROWS_PER_SPLIT: split.stepsPerSplit } : {}),
    },
  }
}

function only(pass: Pass): Recipe {
  return { scratch: {}, passes: [pass] }
}
