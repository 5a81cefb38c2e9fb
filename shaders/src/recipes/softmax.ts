// Softmax for software adapters: one row per invocation.

import type { RowDims } from '../kernels.ts'
import { matrix, TILE_WORKGROUP, type Recipe } from '../recipe.ts'

// x (R, columns) → y (R, columns)
export function softmaxForward(dims: RowDims, capacity: number): Recipe {
  return onePass('forward', dims, capacity, { x: 'read', y: 'write' })
}

// y, dy (R, columns) → dx (R, columns)
export function softmaxBackward(dims: RowDims, capacity: number): Recipe {
  return onePass('backward', dims, capacity, { y: 'read', dy: 'read', dx: 'write' })
}

function onePass(
  entryPoint: string,
  { rows, columns }: RowDims,
  capacity: number,
  access: Record<string, 'read' | 'write'>,
): Recipe {
  const bindings = Object.entries(access).map(([name, how]) => matrix(name, how, capacity * rows, columns))
  const threads = (samples: number) => samples * rows
  return {
    scratch: {},
    passes: [
      {
        file: 'softmax',
        entryPoint,
        constants: { ROWS: rows, COLUMNS: columns },
        bindings,
        workgroup: TILE_WORKGROUP,
        threads,
      },
    ],
  }
}
