// Dropout: four elements of a sample per invocation.

import type { DropoutDims } from '../kernels.ts'
import { array, matrix, real, STREAM_WORKGROUP, type Recipe } from '../recipe.ts'
import { dropoutRule } from '../reference/dropout.ts'
import { summedMatrix } from './finish.ts'

// x, residual (B, size), keys (B,) → y (B, size)
export function dropoutForward(
  { size, node, p }: DropoutDims,
  capacity: number,
  { residual }: { readonly x: unknown; readonly residual?: unknown },
): Recipe {
  const quads = Math.ceil(size / 4)
  const { threshold, scale } = dropoutRule(p)
  return {
    scratch: {},
    passes: [
      {
        file: 'dropout',
        entryPoint: 'forward',
        constants: { NODE: node, QUADS: quads, THRESHOLD: threshold, SCALE: real(scale) },
        bindings: [
          matrix('x', 'read', capacity, size),
          array('keys', 'read', capacity, 'i32'),
          ...summedMatrix('y', capacity, size, residual),
        ],
        workgroup: STREAM_WORKGROUP,
        threads: (samples) => samples * quads,
      },
    ],
  }
}
