// Embedding and learned positions: four channels per invocation.

import type { EmbeddingDims, PositionsDims } from '../kernels.ts'
import { array, matrix, ofOperand, STREAM_WORKGROUP, type Pass, type Recipe } from '../recipe.ts'

// ids (R,), weight (vocab, channels) → y (R, channels)
export function embeddingForward(dims: EmbeddingDims, capacity: number): Recipe {
  const { rows, channels, pass } = embedding(dims, capacity)
  const bindings = [
    array('ids', 'read', rows, 'i32'),
    matrix('weight', 'read', dims.vocab, channels),
    matrix('y', 'write', rows, channels),
  ]
  return { scratch: {}, passes: [{ ...pass, entryPoint: 'forward', bindings }] }
}

// ids (R,), dy (R, channels) → dweight (vocab, channels)
export function embeddingParameterGradient(dims: EmbeddingDims, capacity: number): Recipe {
  const { rows, channels, pass } = embedding(dims, capacity)
  const chain: Pass = {
    ...pass,
    entryPoint: 'chain',
    threads: (samples) => samples * dims.tokens,
    bindings: [ofOperand('ids', array('quads', 'read', rows, 'vec4u')), array('links', 'write', rows, 'i32')],
  }
  const sum: Pass = {
    ...pass,
    entryPoint: 'parameter_gradient',
    bindings: [
      array('ids', 'read', rows, 'i32'),
      array('links', 'read', rows, 'i32'),
      matrix('dy', 'read', rows, channels),
      matrix('dweight', 'update', dims.vocab, channels),
    ],
  }
  return { scratch: { links: rows }, passes: [chain, sum] }
}

function embedding({ tokens, channels }: EmbeddingDims, capacity: number) {
  const quads = Math.ceil(channels / 4)
  const threads = (samples: number) => samples * tokens * quads
  const pass = {
    file: 'embedding',
    constants: { TOKENS: tokens, QUADS: quads },
    workgroup: STREAM_WORKGROUP,
    threads,
  } as const
  return { rows: capacity * tokens, channels, pass }
}

// x (B, size), weight (size,) → y (B, size)
export function positionsForward({ size }: PositionsDims, capacity: number): Recipe {
  const quads = Math.ceil(size / 4)
  const bindings = [
    matrix('x', 'read', capacity, size),
    matrix('weight', 'read', 1, size),
    matrix('y', 'write', capacity, size),
  ]
  const threads = (samples: number) => samples * quads
  return {
    scratch: {},
    passes: [
      {
        file: 'positions',
        entryPoint: 'forward',
        constants: { QUADS: quads },
        bindings,
        workgroup: STREAM_WORKGROUP,
        threads,
      },
    ],
  }
}

// dy (B, size) → dweight (size,)
export function positionsParameterGradient({ size }: PositionsDims, capacity: number): Recipe {
  const bindings = [matrix('dy', 'read', capacity, size), matrix('dweight', 'update', 1, size)]
  const threads = () => Math.ceil(size / 4)
  return {
    scratch: {},
    passes: [
      {
        file: 'positions',
        entryPoint: 'parameter_gradient',
        constants: { SIZE: size },
        bindings,
        workgroup: STREAM_WORKGROUP,
        threads,
      },
    ],
  }
}
