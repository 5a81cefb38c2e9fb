// The graph of a language model that goes on with a text: each sample is one token at its place, and attention keeps
// the keys and values of all places before it. The same operators and parameters as in training; only those that know
// of positions are others.

import {
  fixedEntries,
  layerShapes,
  type ModelSpec,
  outputShape,
  parameterLayout,
  tokenVocabulary,
} from '@starling-grid/model'
import type { KernelCall } from '@starling-grid/shaders'
import type { Graph } from './build.ts'
import { buildNodes } from './nodes.ts'
import { type Node, parameter } from './ops/op.ts'
import { rotaryCalls } from './ops/sequence.ts'
import { opOf } from './ops/table.ts'
import { type Tensor, TensorFactory } from './tensor.ts'

export interface DecoderGraph extends Graph {
  /** I32 (1,) per sample: where the token stands */
  readonly places: Tensor
  readonly context: number
}

/** Operators that look at each token by itself, and those that have another form here. */
const PER_TOKEN: ReadonlySet<string> = new Set([
  'embedding',
  'linear',
  'layernorm',
  'rmsnorm',
  'relu',
  'gelu',
  'gelu_tanh',
  'silu',
  'tanh',
  'sigmoid',
  'softmax',
  'leaky_relu',
  'dropout',
  'add',
  'swiglu',
  'scale',
])
const OF_POSITIONS: ReadonlySet<string> = new Set(['positions', 'rotary', 'attention'])

/** Whether a model can go on with a text token by token. */
export function decodes(spec: ModelSpec): boolean {
  return (
    outputShape(spec).length === 2 &&
    layerShapes(spec).every(
      ({ layer }) =>
        PER_TOKEN.has(layer.type) || (OF_POSITIONS.has(layer.type) && !(layer.type === 'attention' && !layer.causal)),
    )
  )
}

/** A published model knows more places than it was tuned with; beyond this its keys and values crowd the memory. */
const MOST_CONTEXT = 1024

/** Places of a text that a model sees while it writes. */
export function writingContext({ input: [trained = 1], layers: [layer] }: ModelSpec): number {
  return layer?.type === 'causal_lm'
    ? Math.max(trained, Math.min(MOST_CONTEXT, layer.config.max_position_embeddings))
    : trained
}

/** `context`: places that there are */
export function buildDecoder(spec: ModelSpec, context: number): DecoderGraph {
  const single: ModelSpec = { ...spec, input: [1] }
  const tensors = new TensorFactory()
  const input = tensors.create('input', 'input', [1])
  const places = tensors.create('keys', 'places', [1])
  const keys = tensors.create('keys', 'keys', [1])
  const { nodes, output } = buildNodes(single, { input, keys }, tensors)
  const form = new DecoderForm({ places, context, tensors })
  const forward = nodes.flatMap((node) => form.callsOf(node))
  const layout = parameterLayout(spec)
  const angles = fixedEntries({ ...spec, input: [context] })
  return {
    spec: single,
    context,
    places,
    input,
    output,
    forward,
    evaluation: forward,
    loss: [],
    backward: [],
    lossTensors: undefined,
    outputGradient: input,
    inputGradient: undefined,
    vocab: tokenVocabulary(spec),
    keys: places,
    parameters: layout.entries,
    parameterCount: layout.total,
    fixed: angles,
    mixesSamples: false,
    resident: form.caches,
  }
}

class DecoderForm {
  readonly caches: Tensor[] = []
  readonly #places: Tensor
  readonly #context: number
  readonly #tensors: TensorFactory

  constructor({ places, context, tensors }: { places: Tensor; context: number; tensors: TensorFactory }) {
    this.#places = places
    this.#context = context
    this.#tensors = tensors
  }

  callsOf(node: Node): KernelCall<Tensor>[] {
    switch (node.layer.type) {
      case 'positions':
        return this.#positions(node)
      case 'rotary':
        return rotaryCalls(node as Node<'rotary'>, { places: this.#places, context: this.#context })
      case 'attention':
        return this.#attention(node as Node<'attention'>)
      default: {
        const op = opOf(node.layer.type)
        return op.evaluate?.(node) ?? op.forward(node)
      }
    }
  }

  /** x plus the learned vector of its place. */
  #positions(node: Node): KernelCall<Tensor>[] {
    const weight = parameter(node, 'weight')
    const [vocab = 1, channels = 1] = weight.shape
    const { inputs, y } = node
    const placed = this.#tensors.create('activation', `${y.name} places`, y.shape)
    return [
      {
        kernel: 'embedding.forward',
        dims: { tokens: 1, vocab, channels },
        operands: { ids: this.#places, weight, y: placed },
      },
      { kernel: 'add.forward', dims: { size: y.size }, operands: { a: inputs[0], b: placed, y } },
    ]
  }

  #attention({ layer: { heads }, inputs: [qkv], y }: Node<'attention'>): KernelCall<Tensor>[] {
    const channels = y.size
    const cache = this.#tensors.createShared('activation', `${y.name} cache`, [this.#context, 2, channels])
    this.caches.push(cache)
    return [
      {
        kernel: 'cached_attention.forward',
        dims: { context: this.#context, heads, headSize: channels / heads },
        operands: { qkv, places: this.#places, cache, y },
      },
    ]
  }
}
