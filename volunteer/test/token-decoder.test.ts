// Text gone on with by kept keys and values: the same logits as the whole context gives.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, initialParameters, type ModelSpec, parseModelSpec } from '@starling-grid/model'
import { createReferenceExecutor, openReferenceDecoder } from '../src/cpu/executor.ts'
import { decodes } from '../src/graph/decoder-graph.ts'
import { noise } from '../testing/executor-suite.ts'

const CONTEXT = 12
const VOCAB = 17
const llama = parseModelSpec({
  input: [CONTEXT],
  layers: [
    {
      type: 'causal_lm',
      config: {
        model_type: 'qwen3',
        vocab_size: VOCAB,
        hidden_size: 12,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 6,
        intermediate_size: 10,
      },
    },
  ],
})
const MODELS: Readonly<Record<string, ModelSpec>> = {
  'a published model': llama,
  'a decoder of learned positions': gpt({ blocks: 2, heads: 2, channels: 8, context: CONTEXT, vocab: VOCAB }),
}

for (const [name, spec] of Object.entries(MODELS))
  test(`token by token, in pieces or at once, ${name} says what it says of the whole`, async () => {
    const parameters = initialParameters(spec, 3).map((value, i) => value + 0.1 * (noise(1, i)[0] ?? 0))
    const executor = createReferenceExecutor(spec)
    const decoder = await openReferenceDecoder(spec, { context: CONTEXT })
    for (const one of [executor, decoder]) one.loadParameters(parameters)
    const text = Array.from({ length: CONTEXT }, (_, i) => (5 * i + 3) % VOCAB)
    const whole = await executor.predict(Int32Array.from(text), 1)
    for (const length of [1, 4, 5, 6, CONTEXT, 3]) {
      const logits = await decoder.logitsAfter(text.slice(0, length))
      const wanted = whole.subarray((length - 1) * VOCAB, length * VOCAB)
      for (const [i, value] of logits.entries()) assert.ok(Math.abs(value - (wanted[i] ?? NaN)) < 1e-5, `${length}`)
    }
  })

test('of a text beyond the context its last part is seen', async () => {
  const decoder = await openReferenceDecoder(llama, { context: CONTEXT })
  const again = await openReferenceDecoder(llama, { context: CONTEXT })
  const parameters = initialParameters(llama, 3)
  for (const one of [decoder, again]) one.loadParameters(parameters)
  const text = Array.from({ length: CONTEXT + 3 }, (_, i) => (7 * i) % VOCAB)
  assert.deepEqual(await decoder.logitsAfter(text), await again.logitsAfter(text.slice(CONTEXT / 2)))
})

test('models whose layers mix tokens in other ways are not gone on with token by token', () => {
  assert.ok(decodes(llama))
  const attention = { type: 'multihead_attention', name: 'a', heads: 2 }
  const both = parseModelSpec({
    input: [4],
    layers: [{ type: 'embedding', name: 'e', vocab: 5, channels: 4 }, attention],
  })
  assert.equal(decodes(both), false)
})
