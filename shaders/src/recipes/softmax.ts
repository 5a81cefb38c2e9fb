// Softmax, row by row.

import type { RowDims } from '../kernels.ts'
import { matrix, TILE_WORKGROUP, type Recipe } from '../recipe.ts'
import type { MakeRecipe } from '../variants.ts'
import type { ShareRows } from './row-sharing.ts'

// x (R, columns) → y (R, columns)
export function softmaxForward(share: ShareRows): MakeRecipe<'softmax.forward'> {
  return (dims, capacity) => onePass(share, 'forward', { ...dims, capacity }, { x: 'read', y: 'write' })
}

// y, dy (R, columns) → dx (R, columns)
export function softmaxBackward(share: ShareRows): MakeRecipe<'softmax.backward'> {
  return (dims, capacity) => onePass(share, 'backward', { ...dims, capacity }, { y: 'read', dy: 'read', dx: 'write' })
}

function onePass(
  share: ShareRows,
  entryPoint: string,
  { rows, columns, capacity }: RowDims & { readonly capacity: number },
  access: Record<string, 'read' | 'write'>,
): Recipe {
  const bindings = Object.entries(access).map(([name, how]) => matrix(name, how, capacity * rows, columns))
  const { sharing, invocations } = share({ steps: Math.ceil(columns / 4), reads: 3, workgroup: TILE_WORKGROUP })
  return {
    scratch: {},
    passes: [
      {
        file: 'softmax',
        entryPoint,
        constants: { ROWS: rows, COLUMNS: columns },
        bindings,
        ...sharing,
        threads: (samples) => invocations(samples * rows),
      },
    ],
  }
}
