// Encodings of a gradient before it is read back. No model calls these kernels, so no table of a model lists them.
// Their reference is the CPU encoder in volunteer/src/codec, and the runner decides when they pay.

import { array, STREAM_WORKGROUP, type Binding, type Pass } from '../recipe.ts'

/** Floats that one invocation encodes, and that share a scale of eight bits. */
export const ENCODE_BLOCK = 256
/** Words of the table for each block (encode.wgsl). */
export const ENCODE_TABLE_WORDS = 8

/** What the buffers hold at most. `samples` of a run are blocks. */
export interface EncodeDims {
  readonly floats: number
  readonly blocks: number
  readonly words: number
}

// x, residual (floats,) → next (floats,), words
export function encodePasses(encoding: 'f16' | 'int8', { floats, blocks, words }: EncodeDims): readonly Pass[] {
  const table = array('table', 'read', ENCODE_TABLE_WORDS * blocks, 'vec4u')
  const sums = [array('x', 'read', floats, 'i32'), array('residual', 'read', floats, 'i32')]
  const next = array('next', 'update', floats, 'i32')
  const [parts, codes] = [array('parts', 'update', blocks, 'i32'), array('words', 'update', words, 'i32')]
  if (encoding === 'int8') return [pass('encode_int8', [table, ...sums, next, codes])]
  return [
    pass('sum_f16', [table, ...sums, next, parts]),
    pass('powers_f16', [table, parts, codes]),
    pass('encode_f16', [table, next, codes]),
  ]
}

function pass(entryPoint: string, bindings: readonly Binding[]): Pass {
  return {
    file: 'encode',
    entryPoint,
    constants: {},
    bindings,
    workgroup: STREAM_WORKGROUP,
    threads: (blocks) => blocks,
  }
}
