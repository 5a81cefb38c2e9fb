// Several adapters of this machine as one executor: threads, and memory that they share.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { initialParameters, lenet5, type ModelSpec, parameterCount } from '@starling-grid/model'
import { type Clock, systemClock } from '@starling-grid/protocol'
import { createReferenceExecutor, type Executor } from '@starling-grid/volunteer'
import { executorCases, expectClose, noise } from '@starling-grid/volunteer/testing'
import { findSeats } from '../src/gpu-seats.ts'
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
  const open = (spec: ModelSpec, options: { maxMicroBatch?: number } = {}): Promise<Executor> =>
    gpus.open({ spec, ...options, bounds: undefined })
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

for (const { name, run } of executorCases)
  test(`two threads on ${description}: ${name}`, { skip }, async () => run((await twoThreads()).open))
