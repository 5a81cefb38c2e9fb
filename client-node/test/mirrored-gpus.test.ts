// Several adapters of this machine as one executor: threads, and memory that they share.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import {
  fixedEntries,
  initialParameters,
  lenet5,
  type ModelSpec,
  parameterCount,
  parseModelSpec,
} from '@starling-grid/model'
import { type Clock, GridError, systemClock } from '@starling-grid/protocol'
import { createReferenceExecutor, type Executor, type ExecutorBounds } from '@starling-grid/volunteer'
import { openReferenceExecutor } from '@starling-grid/volunteer/language'
import { executorCases, expectClose, noise } from '@starling-grid/volunteer/testing'
import { findSeats, OpeningTurns } from '../src/gpu-seats.ts'
import { openGpuThread } from '../src/gpu-thread.ts'
import { gpuWishIn } from '../src/gpu-wish.ts'
import { MirroredGpus } from '../src/mirrored-gpus.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `no adapter: ${description}`
/** On this clock all devices are as fast as their slices are large: shares stay as they are. */
const still: Clock = { ...systemClock, now: () => 0 }

/** Two threads on the adapter that tests compute on, twice. */
async function twoThreads() {
  const [seat] = await findSeats(gpuWishIn(description.includes('SwiftShader') ? 'swiftshader' : '1'))
  assert.ok(seat)
  const [said, workers]: [string[], Worker[]] = [[], []]
  const spawn = (): Worker => {
    const worker = new Worker(new URL('../src/gpu-bootstrap.mjs', import.meta.url))
    workers.push(worker)
    return worker
  }
  const gpus = new MirroredGpus([seat, seat], { say: (text) => void said.push(text), spawn, clock: still })
  const open = (
    spec: ModelSpec,
    options: { maxMicroBatch?: number; bounds?: ExecutorBounds } = {},
  ): Promise<Executor> => gpus.open({ spec, bounds: undefined, ...options })
  return { open, said, workers }
}

test('two threads give the loss and the gradient of LeNet-5, and end when they are released', { skip }, async () => {
  const spec = lenet5()
  const batch = { samples: 10, x: noise(10 * 784, 1), y: Int32Array.from({ length: 10 }, (_, i) => i) }
  const [{ open, workers }, reference] = [await twoThreads(), createReferenceExecutor(spec)]
  const two = await open(spec)
  const gradients = [two, reference].map(async (executor) => {
    executor.loadParameters(initialParameters(spec, 1))
    const gradient = new Float32Array(parameterCount(spec))
    return { gradient, sums: await executor.gradient(batch, gradient) }
  })
  const [ours, wanted] = await Promise.all(gradients)
  assert.ok(ours && wanted)
  expectClose(ours.gradient, wanted.gradient, 1e-5, 'gradient')
  expectClose([ours.sums.lossSum], [wanted.sums.lossSum], 1e-5, 'loss')
  assert.match(two.adapter.name, /^2 .*\(50 %\), .*\(50 %\)$/)
  const ended = workers.map((worker) => once(worker, 'exit'))
  two.destroy()
  for (const worker of workers) worker.ref() // this process would not wait for them
  assert.deepEqual(await Promise.all(ended), [[0], [0]])
})

test('a thread that dies in the midst of a step leaves its samples to the other', { skip }, async () => {
  const spec = lenet5()
  const batch = { samples: 64, x: noise(64 * 784, 1), y: Int32Array.from({ length: 64 }, (_, i) => i % 10) }
  const { open, workers, said } = await twoThreads()
  const executor = await open(spec)
  executor.loadParameters(initialParameters(spec, 1))
  const [whole, again] = [0, 1].map(() => new Float32Array(parameterCount(spec)))
  assert.ok(whole && again)
  const sums = await executor.gradient(batch, whole)
  const under = executor.gradient(batch, again)
  await workers[1]?.terminate()
  const after = await under
  expectClose(again, whole, 1e-5, 'gradient')
  expectClose([after.lossSum], [sums.lossSum], 1e-5, 'loss')
  assert.equal(after.targets, 64)
  assert.match(said.join('\n'), /is left out from now on: The thread of .* is gone/)
  await workers[0]?.terminate()
  await assert.rejects(executor.gradient(batch, again), { code: 'device-lost' })
})

/** A thread that asks what others measured, and says what came; what it asks for when it tunes, which takes a GPU. */
const ASKING = `
  const { parentPort } = require('node:worker_threads')
  parentPort.on('message', ({ type, sharesVariants, answer }) => {
    const adapterClass = '${'a'.repeat(64)}'
    if (type === 'open' && sharesVariants) parentPort.postMessage({ type: 'shares-variants', call: 1, adapterClass })
    if (type !== 'variants') return
    parentPort.postMessage({ type: 'say', text: answer.code ?? new TextDecoder().decode(answer) })
    parentPort.postMessage({ type: 'refused', error: { message: 'enough', code: 'no-adapter' } })
    parentPort.close()
  })
`

test('a thread gets what others measured on such an adapter, or why it cannot have it', async () => {
  const adapter = { name: 'a GPU', device: '', driver: '', vendor: 'tests', software: false, backend: 'vulkan' }
  const spec = parseModelSpec({ input: [8], layers: [{ type: 'linear', name: 'fc', out: 4 }] })
  const answers: NonNullable<ExecutorBounds['variants']>[] = [
    async (adapterClass) => new TextEncoder().encode(adapterClass),
    async () => Promise.reject(new GridError('rate-exceeded', 'ask again later')),
  ]
  for (const [i, variants] of answers.entries()) {
    const said: string[] = []
    const parts = {
      seat: { adapter },
      turns: new OpeningTurns(),
      say: (text: string) => void said.push(text),
      spawn: () => new Worker(ASKING, { eval: true }),
    }
    const bounds = { maxBytes: 1e9, variants, onDeviceLost: () => undefined }
    await assert.rejects(openGpuThread({ spec, bounds }, parts), /enough/)
    assert.deepEqual(said, [`a GPU: ${i === 0 ? 'a'.repeat(64) : 'rate-exceeded'}`])
  }
})

test('threads ask for the frozen parameters of a model, and tune what one device tunes', { skip }, async () => {
  const config = {
    model_type: 'qwen3',
    vocab_size: 13,
    hidden_size: 8,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 4,
    intermediate_size: 9,
  }
  const spec = parseModelSpec({ input: [5], layers: [{ type: 'causal_lm', config, lora: { rank: 2, alpha: 4 } }] })
  const lengths = new Map(fixedEntries(spec).map(({ name, length }, i) => [name, { length, i }]))
  const read = async (name: string) => noise(lengths.get(name)?.length ?? 0, lengths.get(name)?.i ?? 0)
  const ids = Int32Array.from({ length: 4 * 5 }, (_, i) => (5 * i + 1) % 13)
  const { open } = await twoThreads()
  const bounds = { maxBytes: 1e9, frozen: { read }, onDeviceLost: () => undefined }
  const executors = [await open(spec, { bounds }), await openReferenceExecutor(spec, { frozen: { read } })]
  const [ours, wanted] = executors.map(() => new Float32Array(parameterCount(spec)))
  assert.ok(ours && wanted)
  for (const [executor, into] of [
    [executors[0], ours],
    [executors[1], wanted],
  ] as const) {
    executor?.loadParameters(noise(parameterCount(spec), 99))
    await executor?.gradient({ samples: 4, x: ids, y: ids }, into)
    executor?.destroy()
  }
  expectClose(ours, wanted, 2e-5, 'gradient')
})

test('what its owner allows is of all devices together', { skip }, async () => {
  const { open, workers } = await twoThreads()
  const spec = lenet5()
  const bounds = { maxBytes: 4 * 4 * parameterCount(spec), onDeviceLost: () => undefined }
  await assert.rejects(open(spec, { bounds }), { code: 'own-limit', message: /raise --max-memory/ })
  assert.equal(workers.length, 0)
})

/**
 * What threads carry: batches, gradients in pieces, predictions, refusals. `mirrored-executor.test.ts` runs the whole
 * suite without them; each case compiles on two devices.
 */
const CARRIED = /however the batch is cut|predictions agree|pieces of a gradient|does not have is refused/
const carried = executorCases.filter(({ name }) => CARRIED.test(name))

test('the cases that threads run are there', () => assert.equal(carried.length, 4))

for (const { name, run } of carried)
  test(`two threads on ${description}: ${name}`, { skip }, async () => run((await twoThreads()).open))
