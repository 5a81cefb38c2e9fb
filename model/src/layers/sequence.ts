// Layers over sequences: token ids or vectors, (T,) or (T, channels).

import { elementCount, lastSize, type Shape } from '@starling-grid/shaders'
import { invalid } from '../fields.ts'
import type { AttentionLayer, EmbeddingLayer, PositionsLayer, RotaryLayer } from '../spec.ts'
import { frozenIf, type LayerRule, NO_PARAMETERS, SIZE } from './rule.ts'

/** Standard deviation of initial embeddings in GPT-2. */
const EMBEDDING_DEVIATION = 0.02

// ids (…) → (…, channels)
export const embedding: LayerRule<EmbeddingLayer> = {
  read: (fields) => ({
    type: 'embedding',
    name: fields.name('name'),
    vocab: fields.integer('vocab', SIZE),
    channels: fields.integer('channels', SIZE),
  }),
  shape: ({ channels }, [x]) => [...x, channels],
  parameters: ({ name, vocab, channels, parameter, frozen }) =>
    frozenIf(frozen, [
      {
        role: 'weight',
        name: parameter ?? `${name}.weight`,
        shape: [vocab, channels],
        kind: 'trained',
        initial: { type: 'normal', deviation: EMBEDDING_DEVIATION },
      },
    ]),
  multiplyAdds: (_, __, y) => elementCount(y),
}

// x (T, channels) + weight (context, channels), the first T rows
export const positions: LayerRule<PositionsLayer> = {
  read: (fields) => ({ type: 'positions', name: fields.name('name'), context: fields.integer('context', SIZE) }),
  shape({ context }, [x], place) {
    const { length } = requireSequence(place, x)
    if (length > context) throw invalid(place, `a sequence of at most its ${context} positions`, String(length))
    return x
  },
  parameters: ({ name, context, parameter, leading, frozen }, x) =>
    frozenIf(frozen, [
      {
        role: 'weight',
        name: parameter ?? `${name}.weight`,
        shape: [...(leading ? [1] : []), context, lastSize(x)],
        kind: 'trained',
        initial: { type: 'normal', deviation: EMBEDDING_DEVIATION },
      },
    ]),
  multiplyAdds: (_, __, y) => elementCount(y),
}

/** One table for the whole model: all its layers turn alike. */
export const ANGLES = 'rotary.angles'

// queries (T, heads · D), keys and values (T, kv_heads · D) → (T, 3 · heads · D). Comes out of blocks only.
export const rotary: LayerRule<RotaryLayer> = {
  read: () => {
    throw new Error('internal: a rotary layer comes out of blocks')
  },
  shape({ heads, kv_heads: kvHeads }, inputs, place) {
    const [queries, ...keysAndValues] = inputs.map((x) => requireSequence(place, x))
    const headSize = (queries?.channels ?? 0) / heads
    if (!Number.isInteger(headSize) || headSize % 2 !== 0)
      throw invalid(place, `${heads} heads of an even size`, `${queries?.channels} channels`)
    if (heads % kvHeads !== 0)
      throw invalid(place, `heads divisible by its ${kvHeads} heads of keys and values`, String(heads))
    for (const { channels } of keysAndValues)
      if (channels !== kvHeads * headSize)
        throw invalid(place, `${kvHeads * headSize} channels of keys and values`, String(channels))
    return [queries?.length ?? 0, 3 * heads * headSize]
  },
  parameters: ({ heads, rope, tied }, [length = 1, channels = 0]) => [
    {
      role: 'angles',
      name: ANGLES,
      shape: [length, channels / heads],
      kind: 'constant',
      initial: { type: 'angles', rope },
      ...(tied ? { tied } : {}),
    },
  ],
  multiplyAdds: (_, __, y) => 2 * elementCount(y),
}

// x (T, 3 · channels): queries, keys and values of all heads side by side → (T, channels)
export const attention: LayerRule<AttentionLayer> = {
  read: (fields) => ({
    type: 'attention',
    heads: fields.integer('heads', SIZE),
    causal: fields.boolean('causal', false),
  }),
  shape({ heads }, [x], place) {
    const { length, channels } = requireSequence(place, x)
    if (channels % (3 * heads) !== 0)
      throw invalid(
        place,
        `queries, keys and values for ${heads} heads, a last dimension divisible by ${3 * heads},`,
        String(channels),
      )
    return [length, channels / 3]
  },
  parameters: NO_PARAMETERS,
  multiplyAdds: (_, __, y) => 2 * elementCount(y) * (y[0] ?? 1),
}

export function requireSequence(place: string, x: Shape): { length: number; channels: number } {
  const [length, channels] = x
  if (x.length !== 2 || length === undefined || channels === undefined)
    throw invalid(place, 'a sequence of vectors (T, channels)', `the shape [${x.join(', ')}]`)
  return { length, channels }
}
