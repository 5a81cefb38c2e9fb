// A published language model with adapters on the GPU and on WebAssembly against the plain reference: trained for a
// step, and gone on with token by token.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, test } from 'node:test'
import { fixedEntries, parameterCount, parseModelSpec } from '@starling-grid/model'
import { createGpuExecutor } from '@starling-grid/volunteer'
import { createGpuDecoder, openReferenceDecoder, openReferenceExecutor } from '@starling-grid/volunteer/language'
import { expectClose, noise } from '@starling-grid/volunteer/testing'
import { createWasmDecoder, createWasmExecutor } from '@starling-grid/volunteer/wasm'
import { openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `no adapter: ${description}`
const gpu = skip ? undefined : await openGpu()
after(() => gpu?.close())

const CONTEXT = 7
const VOCAB = 13
const spec = parseModelSpec({
  input: [CONTEXT],
  layers: [
    {
      type: 'causal_lm',
      config: {
        model_type: 'qwen3',
        vocab_size: VOCAB,
        hidden_size: 10,
        num_hidden_layers: 2,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        head_dim: 6,
        intermediate_size: 9,
      },
      lora: { rank: 3, alpha: 4 },
    },
  ],
  ignore_index: -100,
})
const lengths = new Map(fixedEntries(spec).map(({ name, length }, i) => [name, { length, i }]))
const frozen = {
  read: async (name: string) => noise(lengths.get(name)?.length ?? 0, lengths.get(name)?.i ?? 0),
}
const parameters = noise(parameterCount(spec), 99)
const ids = Int32Array.from({ length: 2 * CONTEXT }, (_, i) => (5 * i + 1) % VOCAB)

test('the GPU tunes adapters and goes on with a text as the reference does', { skip }, async () => {
  assert.ok(gpu)
  const device = { device: gpu.device, adapter: gpu.description, readText: (url: URL) => readFile(url, 'utf8') }
  const [ours, reference] = [
    await createGpuExecutor({ ...device, spec, frozen }),
    await openReferenceExecutor(spec, { frozen }),
  ]
  const y = ids.map((id, i) => (i % 3 === 0 ? -100 : (id + 2) % VOCAB))
  const [gradient, wanted] = [new Float32Array(parameters.length), new Float32Array(parameters.length)]
  for (const one of [ours, reference]) one.loadParameters(parameters)
  const sums = await ours.gradient({ samples: 2, x: ids, y }, gradient)
  const wantedSums = await reference.gradient({ samples: 2, x: ids, y }, wanted)
  ours.destroy()
  expectClose([sums.lossSum], [wantedSums.lossSum], 1e-5, 'loss')
  expectClose(gradient, wanted, 1e-4, 'gradient')

  const decoder = await createGpuDecoder({ ...device, spec, context: CONTEXT, frozen })
  const plain = await openReferenceDecoder(spec, { context: CONTEXT, frozen })
  for (const one of [decoder, plain]) one.loadParameters(parameters)
  const text = [...ids.subarray(0, CONTEXT)]
  for (const length of [3, 4, CONTEXT, 2])
    expectClose(
      await decoder.logitsAfter(text.slice(0, length)),
      await plain.logitsAfter(text.slice(0, length)),
      1e-5,
      `logits after ${length}`,
    )
  decoder.destroy()
})

test('WebAssembly tunes adapters and goes on with a text as the reference does', async () => {
  const [ours, reference] = [await createWasmExecutor(spec, { frozen }), await openReferenceExecutor(spec, { frozen })]
  const y = ids.map((id, i) => (i % 3 === 0 ? -100 : (id + 2) % VOCAB))
  const [gradient, wanted] = [new Float32Array(parameters.length), new Float32Array(parameters.length)]
  for (const one of [ours, reference]) one.loadParameters(parameters)
  const sums = await ours.gradient({ samples: 2, x: ids, y }, gradient)
  const wantedSums = await reference.gradient({ samples: 2, x: ids, y }, wanted)
  ours.destroy()
  expectClose([sums.lossSum], [wantedSums.lossSum], 1e-5, 'loss')
  expectClose(gradient, wanted, 1e-4, 'gradient')
  const decoder = await createWasmDecoder(spec, { context: CONTEXT, frozen })
  const plain = await openReferenceDecoder(spec, { context: CONTEXT, frozen })
  for (const one of [decoder, plain]) one.loadParameters(parameters)
  const text = [...ids.subarray(0, CONTEXT)]
  for (const length of [3, 4, CONTEXT, 2])
    expectClose(
      await decoder.logitsAfter(text.slice(0, length)),
      await plain.logitsAfter(text.slice(0, length)),
      1e-5,
      `logits after ${length}`,
    )
  decoder.destroy()
})
