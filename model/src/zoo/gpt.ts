// A decoder of GPT-2's form that predicts the next token. Source: Radford et al., "Language Models are Unsupervised
// Multitask Learners" (2019); parameters named as in nanoGPT.

import { parseModelSpec } from '../parse.ts'
import type { GptLayer, ModelSpec } from '../spec.ts'

export type GptOptions = Pick<GptLayer, 'blocks' | 'heads' | 'channels' | 'context' | 'vocab'> &
  Partial<Pick<GptLayer, 'mlp' | 'activation' | 'norm' | 'eps' | 'attention_bias' | 'tied_head' | 'dropout'>>

/**
 * ids (context,) → logits (context, vocab). @example gpt({ blocks: 4, heads: 4, channels: 128, context: 64, vocab: 65
 * })
 */
export function gpt(options: GptOptions): ModelSpec {
  return parseModelSpec({
    name: 'gpt',
    input: [options.context],
    layers: [{ type: 'gpt', ...options }],
    loss: 'cross_entropy',
  })
}
