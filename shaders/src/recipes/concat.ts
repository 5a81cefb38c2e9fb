// Joining several inputs: one of them per call, one element per invocation.

import type { ConcatDims } from '../kernels.ts'
import { array, STREAM_WORKGROUP, type Binding, type Recipe } from '../recipe.ts'

// x (B, size) → part of y (B, total)
export function concatForward(dims: ConcatDims, capacity: number): Recipe {
  return onePass('forward', dims, [
    array('x', 'read', capacity * dims.size),
    array('y', 'write', capacity * dims.total),
  ])
}

// part of dy (B, total) → dx (B, size)
export function concatBackward(dims: ConcatDims, capacity: number): Recipe {
  return onePass('backward', dims, [
    array('dy', 'read', capacity * dims.total),
    array('dx', 'write', capacity * dims.size),
  ])
}

function onePass(
  entryPoint: 'forward' | 'backward',
  { size, offset, total }: ConcatDims,
  bindings: readonly Binding[],
): Recipe {
  const constants = { SIZE: size, OFFSET: offset, TOTAL: total }
  return {
    scratch: {},
    passes: [
      {
        file: 'concat',
        entryPoint,
        constants,
        bindings,
        workgroup: STREAM_WORKGROUP,
        threads: (samples) => samples * size,
      },
    ],
  }
}
