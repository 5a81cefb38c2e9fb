// The executor on WebAssembly with threads of Node, against the suite, and against itself with other numbers of
// threads.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, initialParameters, lenet5, parameterCount, type ModelSpec } from '@starling-grid/model'
import { isGridError } from '@starling-grid/protocol'
import { buildGraph, type Executor } from '@starling-grid/volunteer'
import { AWKWARD_MODEL, awkwardBatch, type Batch, executorCases, noise } from '@starling-grid/volunteer/testing'
import { createWasmExecutor, createWasmRunner } from '@starling-grid/volunteer/wasm'
import { wasmThreads } from '../src/wasm-threads.ts'

const open =
  (count: number) =>
  (spec: ModelSpec, options: { readonly maxMicroBatch?: number } = {}) =>
    createWasmExecutor(spec, { ...options, threads: wasmThreads(count) })

for (const count of [1, 3])
  for (const { name, run } of executorCases)
    test(`WebAssembly executor, threads: ${count}: ${name}`, () => run(open(count)))

async function gradientOf(executor: Executor, spec: ModelSpec, batch: Batch): Promise<Float32Array> {
  const gradient = new Float32Array(parameterCount(spec))
  executor.loadParameters(initialParameters(spec, 1))
  await executor.gradient(batch, gradient)
  executor.destroy()
  return gradient
}

const tokens = (count: number) => Int32Array.from({ length: count }, (_, i) => (i * 7) % 13)
const GPT = gpt({ blocks: 1, heads: 2, channels: 32, context: 16, vocab: 13 })

for (const [name, spec, batch] of [
  ['awkward sizes', AWKWARD_MODEL, awkwardBatch(13)],
  ['lenet5', lenet5(), { samples: 9, x: noise(9 * 784, 1), y: new Int32Array(9) }],
  ['gpt', GPT, { samples: 5, x: tokens(80), y: tokens(80) }],
] as const)
  test(`gradients have the same bits whatever the number of threads: ${name}`, async () => {
    const alone = await gradientOf(await createWasmExecutor(spec), spec, batch)
    for (const count of [1, 2, 4])
      assert.deepEqual(await gradientOf(await open(count)(spec), spec, batch), alone, `${count} threads`)
  })

test('a model that needs more memory than its owner gives is refused by name', async () => {
  await assert.rejects(
    createWasmExecutor(lenet5(), { maxBytes: 300_000, threads: wasmThreads(2) }),
    (error) => isGridError(error) && error.code === 'own-limit' && error.message.includes('--max-memory'),
  )
})

test('a runner that was released fails what waits, and its threads end', async () => {
  const runner = await createWasmRunner(buildGraph(lenet5()), { threads: wasmThreads(2) })
  const { input, output } = runner.graph
  const run = { samples: 4, write: [[input, noise(4 * 784, 1)]], parts: ['evaluation'], read: [output] } as const
  const [values] = await runner.run(run)
  assert.equal(values?.length, 40)
  runner.destroy()
  await assert.rejects(runner.run(run), /released/)
})
