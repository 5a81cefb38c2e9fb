// Embedding and learned positions: four channels per invocation.

import type { EmbeddingDims, PositionsDims } from '../kernels.ts'
import { array, matrix, ofOperand, STREAM_WORKGROUP, type Pass, type Recipe } from '../recipe.ts'
import type { MakeRecipe } from '../variants.ts'
import type { RowSharing, ShareRows } from './row-sharing.ts'

// ids (R,), weight (vocab, channels) → y (R, channels)
export function embeddingForward(dims: EmbeddingDims, capacity: number): Recipe {
  const { rows, channels, pass } = embedding(dims, capacity)
  const bindings = [
    array('ids', 'read', rows, 'i32'),
    matrix('weight', 'read', dims.vocab, channels),
    matrix('y', 'write', rows, channels),
  ]
  return { scratch: {}, passes: [{ ...inTable(pass, dims), entryPoint: 'forward', bindings }] }
}

// ids (R,), dy (R, channels) → dweight (vocab, channels)
export function embeddingParameterGradient(share: ShareRows): MakeRecipe<'embedding.parameterGradient'> {
  return (dims, capacity) => sumOfTokens(share, dims, capacity)
}

function sumOfTokens(share: ShareRows, dims: EmbeddingDims, capacity: number): Recipe {
  const { rows, channels, pass } = embedding(dims, capacity)
  const { sharing, invocations } = share({ steps: Math.ceil(rows / 4), reads: 2, workgroup: STREAM_WORKGROUP })
  const chain: Pass = {
    ...pass,
    ...sharing,
    entryPoint: 'chain',
    threads: (samples) => invocations(samples * dims.tokens),
    bindings: [ofOperand('ids', array('quads', 'read', rows, 'vec4u')), array('links', 'write', rows, 'i32')],
  }
  const sum: Pass = {
    ...inTable(pass, dims),
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

/** The chains of tokens are the same whatever piece of the table is looked at. */
function inTable<P extends Pick<Pass, 'constants'>>(pass: P, { vocab, first = 0 }: EmbeddingDims): P {
  return { ...pass, constants: { ...pass.constants, VOCAB: vocab, FIRST: first } }
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
export function positionsParameterGradient(share: ShareRows): MakeRecipe<'positions.parameterGradient'> {
  return ({ size }, capacity) =>
    sumOfSamples(
      share({ steps: capacity, reads: 1, workgroup: STREAM_WORKGROUP, rows: Math.ceil(size / 4) }),
      size,
      capacity,
    )
}

function sumOfSamples({ sharing, invocations }: RowSharing, size: number, capacity: number): Recipe {
  const bindings = [matrix('dy', 'read', capacity, size), matrix('dweight', 'update', 1, size)]
  return {
    scratch: {},
    passes: [
      {
        file: 'positions',
        entryPoint: 'parameter_gradient',
        constants: { SIZE: size },
        bindings,
        ...sharing,
        threads: () => invocations(Math.ceil(size / 4)),
      },
    ],
  }
}
