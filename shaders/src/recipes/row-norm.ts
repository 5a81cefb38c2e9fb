// Layer norm and RMS norm for software adapters: one row per invocation.

import type { KernelOperands, RowNormDims } from '../kernels.ts'
import {
  array,
  BUSY_STREAM,
  matrix,
  optional,
  real,
  STREAM_WORKGROUP,
  TILE_WORKGROUP,
  type Binding,
  type Pass,
  type Recipe,
} from '../recipe.ts'

const rowPass = { file: 'row-norm', workgroup: TILE_WORKGROUP } as const
const streamPass = { file: 'row-norm', workgroup: STREAM_WORKGROUP } as const

// x (R, columns), weight, bias (columns,) → y (R, columns), mean, inverse (R,)
export function layernormForward(
  dims: RowNormDims,
  capacity: number,
  { bias }: KernelOperands<'layernorm.forward', unknown>,
): Recipe {
  const rows = capacity * dims.rows
  return forwardPass('layernorm', dims, capacity, [
    optional('bias', 'read', dims.columns, bias),
    array('mean', 'write', rows),
  ])
}

// x (R, columns), weight (columns,) → y (R, columns), inverse (R,)
export function rmsnormForward(dims: RowNormDims, capacity: number): Recipe {
  return forwardPass('rmsnorm', dims, capacity, [])
}

// x, dy (R, columns), weight (columns,), mean, inverse (R,) → dx (R, columns)
export function rowNormInputGradient(
  dims: RowNormDims,
  capacity: number,
  { mean }: { readonly x: unknown; readonly mean?: unknown },
): Recipe {
  const { columns, rows } = dims
  return {
    scratch: {},
    passes: [
      {
        ...rowPass,
        entryPoint: 'input_gradient',
        constants: { ...constantsOf(dims), CENTERED: mean === undefined ? 0 : 1 },
        bindings: [
          matrix('weight', 'read', 1, columns),
          matrix('dy', 'read', capacity * rows, columns),
          matrix('dx', 'write', capacity * rows, columns),
          ...normalizedBindings(dims, capacity, mean),
        ],
        threads: (samples) => samples * rows,
      },
    ],
  }
}

// x, dy (R, columns), mean, inverse (R,) → dweight, dbias (columns,)
export function rowNormParameterGradient(
  dims: RowNormDims,
  capacity: number,
  { mean, dbias }: { readonly x: unknown; readonly mean?: unknown; readonly dbias?: unknown },
): Recipe {
  const { columns, rows } = dims
  const quads = Math.ceil(columns / 4)
  const splits = Math.min(capacity * rows, Math.ceil(BUSY_STREAM / quads))
  const constants = { ...constantsOf(dims), SPLITS: splits, QUADS: quads }
  const scratch = { partials: splits * quads * 8 }
  const partials: Pass = {
    ...streamPass,
    entryPoint: 'partial_gradient',
    constants,
    bindings: [
      matrix('dy', 'read', capacity * rows, columns),
      ...normalizedBindings(dims, capacity, mean),
      array('partials', 'write', scratch.partials, 'vec4f'),
    ],
    threads: () => splits * quads,
  }
  const sum: Pass = {
    ...streamPass,
    entryPoint: 'sum_partials',
    constants,
    bindings: [
      array('partials', 'read', scratch.partials, 'vec4f'),
      matrix('dweight', 'update', 1, columns),
      optional('dbias', 'update', columns, dbias),
    ],
    threads: () => quads,
  }
  return { scratch, passes: [partials, sum] }
}

function forwardPass(
  entryPoint: 'layernorm' | 'rmsnorm',
  dims: RowNormDims,
  capacity: number,
  more: readonly Binding[],
): Recipe {
  const rows = capacity * dims.rows
  const bindings = [
    matrix('x', 'read', rows, dims.columns),
    matrix('weight', 'read', 1, dims.columns),
    ...more,
    array('inverse', 'write', rows),
    matrix('y', 'write', rows, dims.columns),
  ]
  const constants = { ...constantsOf(dims), EPS: real(dims.eps) }
  return {
    scratch: {},
    passes: [{ ...rowPass, entryPoint, constants, bindings, threads: (samples) => samples * dims.rows }],
  }
}

function normalizedBindings({ rows, columns }: RowNormDims, capacity: number, mean: unknown): Binding[] {
  return [
    matrix('x', 'read', capacity * rows, columns),
    optional('mean', 'read', capacity * rows, mean),
    array('inverse', 'read', capacity * rows),
  ]
}

function constantsOf({ rows, columns }: RowNormDims) {
  return { ROWS: rows, COLUMNS: columns }
}
