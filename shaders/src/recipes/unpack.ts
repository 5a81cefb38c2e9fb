// Matrices that lie packed, as f32: four columns per invocation.

import type { EmbeddingDims, UnpackDims } from '../kernels.ts'
import { packedRow, SCALE_GROUP, STORED_BITS } from '../packed.ts'
import { array, matrix, STREAM_WORKGROUP, type Recipe } from '../recipe.ts'

// packed (rows, words) → y (rows, columns)
export function unpackForward(dims: UnpackDims): Recipe {
  const { rows, columns } = dims
  const { quads, packed, pass } = packedMatrix(dims)
  return {
    scratch: {},
    passes: [
      {
        ...pass,
        entryPoint: 'forward',
        bindings: [packed, matrix('y', 'write', rows, columns)],
        threads: () => rows * quads,
      },
    ],
  }
}

// ids (R,), packed (vocab, words) → y (R, channels)
export function unpackRows(dims: EmbeddingDims & Pick<UnpackDims, 'storage'>, capacity: number): Recipe {
  const { tokens, vocab, channels, first = 0, storage } = dims
  const { quads, packed, pass } = packedMatrix({ rows: vocab, columns: channels, storage })
  const rows = capacity * tokens
  return {
    scratch: {},
    passes: [
      {
        ...pass,
        entryPoint: 'of_tokens',
        constants: { ...pass.constants, TOKENS: tokens, FIRST: first },
        bindings: [array('ids', 'read', rows, 'i32'), packed, matrix('y', 'write', rows, channels)],
        threads: (samples) => samples * tokens * quads,
      },
    ],
  }
}

function packedMatrix({ rows, columns, storage }: UnpackDims) {
  const { values, words } = packedRow(columns, storage)
  const quads = Math.ceil(columns / 4)
  const sizes = { ROWS: rows, QUADS: quads, STRIDE: words, VALUES: values }
  const pass = {
    file: 'unpack',
    constants: { ...sizes, BITS: STORED_BITS[storage], GROUP: SCALE_GROUP },
    workgroup: STREAM_WORKGROUP,
  } as const
  return { quads, packed: array('packed', 'read', rows * words, 'i32'), pass }
}
