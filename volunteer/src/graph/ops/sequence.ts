// Operators over sequences of tokens.

import {
  type AttentionDims,
  elementCount,
  type EmbeddingDims,
  type KernelCall,
  lastSize,
  type RotaryDims,
} from '@starling-grid/shaders'
import type { Tensor } from '../tensor.ts'
import { type Node, type NodeGradients, type Op, parameter, savedBy } from './op.ts'

// ids (…), weight (vocab, channels) → y (…, channels)
export const embedding: Op<'embedding'> = {
  forward: (node) => [
    {
      kernel: 'embedding.forward',
      dims: embeddingDims(node),
      operands: { ids: node.inputs[0], weight: parameter(node, 'weight'), y: node.y },
    },
  ],
  backward: (node, gradients) => [
    {
      kernel: 'embedding.parameterGradient',
      dims: embeddingDims(node),
      operands: { ids: node.inputs[0], dy: gradients.dy, dweight: weightGradient(gradients) },
    },
  ],
}

// x (T, channels), weight (context, channels) → y (T, channels)
export const positions: Op<'positions'> = {
  forward: (node) => [
    {
      kernel: 'positions.forward',
      dims: { size: node.y.size },
      operands: { x: node.inputs[0], weight: parameter(node, 'weight'), y: node.y },
    },
  ],
  backward: (node, gradients) => [
    {
      kernel: 'positions.parameterGradient',
      dims: { size: node.y.size },
      operands: { dy: gradients.dy, dweight: weightGradient(gradients) },
    },
  ],
  passesGradient: true,
}

// q (T, heads · D), k and v (T, kv_heads · D), angles (T, D) → y (T, 3 · heads · D)
export const rotary: Op<'rotary'> = {
  forward: (node) => rotaryCalls(node),
  backward: (node, { dy, dinputs }) =>
    PARTS.flatMap((part) => {
      const dx = dinputs[part]
      const operands = { dqkv: dy, angles: parameter(node, 'angles') }
      return dx
        ? [{ kernel: 'rotary.backward', dims: rotaryDims(node, part), operands: { ...operands, dx } } as const]
        : []
    }),
}

/** `placed`: each sample is one token at its place, of so many. */
export function rotaryCalls(
  node: Node<'rotary'>,
  placed?: { readonly places: Tensor; readonly context: number },
): KernelCall<Tensor>[] {
  const [context, places] = placed ? [{ context: placed.context }, { places: placed.places }] : [{}, {}]
  return PARTS.map((part) => ({
    kernel: 'rotary.forward',
    dims: { ...rotaryDims(node, part), ...context },
    operands: { x: partOf(node, part), angles: parameter(node, 'angles'), ...places, qkv: node.y },
  }))
}

/** queries, keys, values */
const PARTS = [0, 1, 2] as const
const VALUES = 2

function partOf({ inputs }: Node<'rotary'>, part: RotaryDims['part']): Tensor {
  const found = inputs[part]
  if (!found) throw new Error('internal: rotary positions take queries, keys and values')
  return found
}

function rotaryDims({ layer, inputs: [queries] }: Node<'rotary'>, part: RotaryDims['part']): RotaryDims {
  const { heads, kv_heads: kvHeads } = layer
  const [length = 1, channels = 1] = queries.shape
  return { length, heads, own: part === 0 ? heads : kvHeads, headSize: channels / heads, part, turns: part !== VALUES }
}

// qkv (T, 3 · channels) → y (T, channels)
export const attention: Op<'attention'> = {
  saved(node) {
    const { heads, length } = attentionDims(node)
    return keepsProbabilities(node)
      ? { probabilities: { shape: [heads, length, length] } }
      : { logSums: { shape: [heads, length] } }
  },
  forward(node) {
    const {
      inputs: [qkv],
      y,
    } = node
    const dims = attentionDims(node)
    if (!keepsProbabilities(node))
      return [{ kernel: 'flash_attention.forward', dims, operands: { qkv, y, logSums: savedBy(node, 'logSums') } }]
    return [{ kernel: 'attention.forward', dims, operands: { qkv, y, probabilities: savedBy(node, 'probabilities') } }]
  },
  backward(node, { dy, dinputs: [dqkv] }) {
    if (!dqkv) return []
    const {
      inputs: [qkv],
      y,
    } = node
    const dims = attentionDims(node)
    if (!keepsProbabilities(node))
      return [
        { kernel: 'flash_attention.backward', dims, operands: { qkv, y, dy, dqkv, logSums: savedBy(node, 'logSums') } },
      ]
    return [
      {
        kernel: 'attention.backward',
        dims,
        operands: { qkv, dy, dqkv, probabilities: savedBy(node, 'probabilities') },
      },
    ]
  },
}

/** Up to this length three batched products are faster than computing every score three times. */
const MAX_KEPT_LENGTH = 256
/** Bytes of probabilities of one sample in one layer: with more, a micro-batch of a deep model no longer fits a tab. */
const MAX_KEPT_BYTES = 4 * 2 ** 20

function keepsProbabilities(node: AttentionNode): boolean {
  const { heads, length } = attentionDims(node)
  return length <= MAX_KEPT_LENGTH && heads * length * length * Float32Array.BYTES_PER_ELEMENT <= MAX_KEPT_BYTES
}

type AttentionNode = Pick<Node<'attention'>, 'layer' | 'y'>

function attentionDims({ layer: { heads, causal }, y: { shape } }: AttentionNode): AttentionDims {
  const [length = 1, channels = 1] = shape
  return { length, heads, headSize: channels / heads, causal }
}

function embeddingDims({ layer: { vocab }, inputs: [ids], y }: Node<'embedding'>): EmbeddingDims {
  return { tokens: elementCount(ids.shape), vocab, channels: lastSize(y.shape) }
}

function weightGradient({ dparameters: { weight } }: NodeGradients) {
  if (!weight) throw new Error('internal: a table without a gradient')
  return weight
}
