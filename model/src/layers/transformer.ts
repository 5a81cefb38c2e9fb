// The blocks of transformers, unfolded into operators. Source of the form: GPT-2 (Radford et al., 2019), names as in
// nanoGPT.

import type { Shape } from '@starling-grid/shaders'
import { invalid } from '../fields.ts'
import type { GptLayer, LinearLayer, MultiheadAttentionLayer, OperatorLayer } from '../spec.ts'
import { requireSequence } from './sequence.ts'

/** Number of a value: 0 is the model's input, i + 1 what operator i makes. */
export type Value = number

/** The operators that a model becomes, in the order of computation. */
export interface ExpandedOperators {
  shapeOf(value: Value): Shape
  /** Adds an operator; the value that it makes. @throws GridError('model-invalid') naming `place` */
  operator(layer: OperatorLayer, inputs: readonly [Value, ...Value[]], place: string): Value
}

/**
 * Initial weights of GPT-2; those that end a residual branch are divided by √(2 · blocks), so that the sum keeps its
 * size.
 */
const DEVIATION = 0.02

interface AttentionParts {
  /** `h.0.attn` */
  readonly name: string
  readonly heads: number
  readonly causal: boolean
  readonly bias: boolean
  readonly deviation?: number
  readonly projectionDeviation?: number
}

// x (T, channels) → (T, channels)
export function expandMultiheadAttention(
  to: ExpandedOperators,
  layer: MultiheadAttentionLayer,
  x: Value,
  place: string,
): Value {
  return expandAttention(to, layer, x, place)
}

export function expandAttention(
  to: ExpandedOperators,
  { name, heads, causal, bias, deviation, projectionDeviation }: AttentionParts,
  x: Value,
  place: string,
): Value {
  const { channels } = requireSequence(place, to.shapeOf(x))
  if (channels % heads !== 0) throw invalid(place, `channels divisible by its ${heads} heads`, String(channels))
  const qkv = to.operator(linear(`${name}.qkv`, 3 * channels, { bias, deviation }), [x], place)
  const mixed = to.operator({ type: 'attention', heads, causal }, [qkv], place)
  return to.operator(linear(`${name}.proj`, channels, { bias, deviation: projectionDeviation }), [mixed], place)
}

// ids (T,) → logits (T, vocab)
export function expandGpt(to: ExpandedOperators, layer: GptLayer, ids: Value, place: string): Value {
  const { names, vocab, channels, context, blocks, tied_head: tied } = layer
  const tokens = to.operator(
    { type: 'embedding', name: names.tokens, vocab, channels, parameter: names.tokens },
    [ids],
    place,
  )
  const placed = to.operator(
    { type: 'positions', name: names.positions, context, parameter: names.positions },
    [tokens],
    place,
  )
  let x = drop(to, layer, placed, place)
  for (let i = 0; i < blocks; i++) x = expandBlock(to, layer, { x, name: names.block.replace('{i}', String(i)), place })
  const normed = to.operator(norm(layer, names.final_norm), [x], place)
  const head = linear('head', vocab, { bias: false, deviation: DEVIATION })
  return to.operator(tied ? { ...head, tied: names.tokens } : head, [normed], place)
}

function expandBlock(
  to: ExpandedOperators,
  layer: GptLayer,
  { x, name, place }: { x: Value; name: string; place: string },
): Value {
  const { heads, attention_bias: bias, blocks, mlp, channels } = layer
  const projectionDeviation = DEVIATION / Math.sqrt(2 * blocks)
  const attended = expandAttention(
    to,
    { name: `${name}.attn`, heads, causal: true, bias, deviation: DEVIATION, projectionDeviation },
    to.operator(norm(layer, `${name}.ln1`), [x], place),
    place,
  )
  const middle = to.operator({ type: 'add' }, [x, drop(to, layer, attended, place)], place)
  const hidden = to.operator(
    linear(`${name}.mlp.fc`, mlp, { bias, deviation: DEVIATION }),
    [to.operator(norm(layer, `${name}.ln2`), [middle], place)],
    place,
  )
  const active = to.operator({ type: layer.activation }, [hidden], place)
  const out = to.operator(
    linear(`${name}.mlp.proj`, channels, { bias, deviation: projectionDeviation }),
    [active],
    place,
  )
  return to.operator({ type: 'add' }, [middle, drop(to, layer, out, place)], place)
}

function drop(to: ExpandedOperators, { dropout: p }: GptLayer, x: Value, place: string): Value {
  return p === 0 ? x : to.operator({ type: 'dropout', p }, [x], place)
}

function norm({ norm: type, eps, attention_bias: bias }: GptLayer, name: string): OperatorLayer {
  return type === 'rmsnorm' ? { type, name, eps } : { type, name, eps, bias }
}

export function linear(
  name: string,
  out: number,
  { bias, deviation }: { bias: boolean; deviation: number | undefined },
): LinearLayer {
  return { type: 'linear', name, out, bias, ...(deviation === undefined ? {} : { deviation }) }
}
