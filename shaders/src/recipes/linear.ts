// Linear layer for software adapters: register tiles without barriers.

import type { KernelOperands, LinearDims } from '../kernels.ts'
import { matrix, optional, TILE_WORKGROUP, tiles, type Pass, type Recipe } from '../recipe.ts'

const tilePass = { file: 'linear', workgroup: TILE_WORKGROUP } as const

// x (R, in), weight (out, in), bias (out,) → y (R, out)
export function linearForward(dims: LinearDims, capacity: number, { bias }: KernelOperands<'linear.forward', unknown>): Recipe {
  const rows = capacity * dims.rows
  return only({
    ...tilePass, entryPoint: 'forward', constants: constantsOf(dims),
    bindings: [
      matrix('x', 'read', rows, dims.in), matrix('weight', 'read', dims.out, dims.in), optional('bias', 'read', dims.out, bias),
      matrix('y', 'write', rows, dims.out),
    ],
    threads: samples => tiles(samples * dims.rows) * tiles(dims.out),
  })
}

// dy (R, out), weight (out, in) → dx (R, in)
export function linearInputGradient(dims: LinearDims, capacity: number): Recipe {
  const rows = capacity * dims.rows
  return only({
    ...tilePass, entryPoint: 'input_gradient', constants: constantsOf(dims),
    bindings: [matrix('weight', 'read', dims.out, dims.in), matrix('dy', 'read', rows, dims.out), matrix('dx', 'write', rows, dims.in)],
    threads: samples => tiles(samples * dims.rows) * tiles(dims.in),
  })
}

// x (R, in), dy (R, out) → dweight (out, in), dbias (out,)
export function linearParameterGradient(dims: LinearDims, capacity: number, { dbias }: KernelOperands<'linear.parameterGradient', unknown>): Recipe {
  const rows = capacity * dims.rows
  const constants = constantsOf(dims)
  const dy = matrix('dy', 'read', rows, dims.out)
  const weightPass: Pass = {
    ...tilePass, entryPoint: 'weight_gradient', constants,
    bindings: [matrix('x', 'read', rows, dims.in), dy, matrix('dweight', 'update', dims.out, dims.in)],
    threads: () => tiles(dims.out) * tiles(dims.in),
  }
  const biasPass: Pass = {
    ...tilePass, entryPoint: 'bias_gradient', constants,
    bindings: [dy, optional('dbias', 'update', dims.out, dbias)],
    threads: () => Math.ceil(dims.out / 4),
  }
  return { scratch: {}, passes: dbias === undefined ? [weightPass] : [weightPass, biasPass] }
}

function constantsOf(dims: LinearDims) {
  return { ROWS: dims.rows, IN: dims.in, OUT: dims.out, IN_TILES: tiles(dims.in), OUT_TILES: tiles(dims.out) }
}

function only(pass: Pass): Recipe {
  return { scratch: {}, passes: [pass] }
}
