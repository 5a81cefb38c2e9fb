// Losses: one row per invocation. `target` is a reserved word of WGSL.

import type { CrossEntropyDims, ElementwiseDims } from '../kernels.ts'
import { array, ofOperand, TILE_WORKGROUP, type Recipe } from '../recipe.ts'

const rowPass = { entryPoint: 'loss_and_gradient', workgroup: TILE_WORKGROUP } as const

// x (R, classes), target (R,) → loss (R,), correct (R,), dx (R, classes)
export function crossEntropyLoss(dims: CrossEntropyDims, capacity: number): Recipe {
  const rows = capacity * dims.rows
  return {
    scratch: {},
    passes: [{
      ...rowPass, file: 'cross-entropy', constants: { ROWS: dims.rows, CLASSES: dims.classes },
      bindings: [
        array('x', 'read', rows * dims.classes), ofOperand('target', array('labels', 'read', rows, 'i32')),
        array('loss', 'write', rows), array('correct', 'write', rows), array('dx', 'write', rows * dims.classes),
      ],
      threads: samples => samples * dims.rows,
    }],
  }
}

// x, target (B, size) → loss (B,), dx (B, size)
export function mseLoss({ size }: ElementwiseDims, capacity: number): Recipe {
  return {
    scratch: {},
    passes: [{
      ...rowPass, file: 'mse', constants: { SIZE: size },
      bindings: [
        array('x', 'read', capacity * size), ofOperand('target', array('wanted', 'read', capacity * size)),
        array('loss', 'write', capacity), array('dx', 'write', capacity * size),
      ],
      threads: samples => samples,
    }],
  }
}
