// Layer norm and RMS norm, row by row.

import type { RowNormDims } from '../kernels.ts'
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
import type { MakeRecipe } from '../variants.ts'
import { summedMatrix } from './finish.ts'
import { BUSY_SUMS, ownRows, type ShareRows } from './row-sharing.ts'

const file = 'row-norm'

// x (R, columns), weight, bias (columns,) → y (R, columns), mean, inverse (R,)
export function layernormForward(share: ShareRows): MakeRecipe<'layernorm.forward'> {
  return (dims, capacity, { bias }) =>
    forwardPass(share, 'layernorm', { ...dims, capacity }, [
      optional('bias', 'read', dims.columns, bias),
      array('mean', 'write', capacity * dims.rows),
    ])
}

// x (R, columns), weight (columns,) → y (R, columns), inverse (R,)
export function rmsnormForward(share: ShareRows): MakeRecipe<'rmsnorm.forward'> {
  return (dims, capacity) => forwardPass(share, 'rmsnorm', { ...dims, capacity }, [])
}

// x, dy, residual (R, columns), weight (columns,), mean, inverse (R,) → dx (R, columns)
export function rowNormInputGradient(share: ShareRows) {
  return (dims: RowNormDims, capacity: number, operands: InputGradientOperands): Recipe =>
    inputGradient(share, { ...dims, capacity }, operands)
}

interface InputGradientOperands {
  readonly x: unknown
  readonly mean?: unknown
  readonly residual?: unknown
}

function inputGradient(share: ShareRows, dims: SampledDims, { mean, residual }: InputGradientOperands): Recipe {
  const { columns, rows, capacity } = dims
  const { sharing, invocations } = share({ steps: Math.ceil(columns / 4), reads: 6, workgroup: TILE_WORKGROUP })
  return {
    scratch: {},
    passes: [
      {
        file,
        ...sharing,
        entryPoint: 'input_gradient',
        constants: { ...constantsOf(dims), CENTERED: mean === undefined ? 0 : 1 },
        bindings: [
          matrix('weight', 'read', 1, columns),
          matrix('dy', 'read', capacity * rows, columns),
          ...summedMatrix('dx', capacity * rows, columns, residual),
          ...normalizedBindings(dims, mean),
        ],
        threads: (samples) => invocations(samples * rows),
      },
    ],
  }
}

// x, dy (R, columns), mean, inverse (R,) → dweight, dbias (columns,)
export function rowNormParameterGradient(share: ShareRows) {
  return (dims: RowNormDims, capacity: number, operands: ParameterOperands): Recipe =>
    parameterGradient(share, { ...dims, capacity }, operands)
}

interface ParameterOperands {
  readonly x: unknown
  readonly mean?: unknown
  readonly dbias?: unknown
}

function parameterGradient(share: ShareRows, dims: SampledDims, { mean, dbias }: ParameterOperands): Recipe {
  const { columns, rows, capacity } = dims
  const quads = Math.ceil(columns / 4)
  const busy = share === ownRows ? BUSY_STREAM : BUSY_SUMS
  const splits = Math.min(capacity * rows, Math.ceil(busy / quads))
  const { sharing, invocations } = share({ steps: splits, reads: 2, workgroup: STREAM_WORKGROUP })
  const constants = { ...constantsOf(dims), SPLITS: splits, QUADS: quads }
  const scratch = { partials: splits * quads * 8 }
  const partials: Pass = {
    file,
    workgroup: STREAM_WORKGROUP,
    entryPoint: 'partial_gradient',
    constants,
    bindings: [
      matrix('dy', 'read', capacity * rows, columns),
      ...normalizedBindings(dims, mean),
      array('partials', 'write', scratch.partials, 'vec4f'),
    ],
    threads: () => splits * quads,
  }
  const sum: Pass = {
    file,
    ...sharing,
    entryPoint: 'sum_partials',
    constants,
    bindings: [
      array('partials', 'read', scratch.partials, 'vec4f'),
      matrix('dweight', 'update', 1, columns),
      optional('dbias', 'update', columns, dbias),
    ],
    threads: () => invocations(quads),
  }
  return { scratch, passes: [partials, sum] }
}

type SampledDims = RowNormDims & { readonly capacity: number }

function forwardPass(
  share: ShareRows,
  entryPoint: 'layernorm' | 'rmsnorm',
  dims: SampledDims,
  more: readonly Binding[],
): Recipe {
  const rows = dims.capacity * dims.rows
  const { sharing, invocations } = share({ steps: Math.ceil(dims.columns / 4), reads: 7, workgroup: TILE_WORKGROUP })
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
    passes: [
      {
        file,
        ...sharing,
        entryPoint,
        constants,
        bindings,
        threads: (samples) => invocations(samples * dims.rows),
      },
    ],
  }
}

function normalizedBindings({ rows, columns, capacity }: SampledDims, mean: unknown): Binding[] {
  return [
    matrix('x', 'read', capacity * rows, columns),
    optional('mean', 'read', capacity * rows, mean),
    array('inverse', 'read', capacity * rows),
  ]
}

function constantsOf({ rows, columns }: RowNormDims) {
  return { ROWS: rows, COLUMNS: columns }
}
