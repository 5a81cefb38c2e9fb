// Several devices as one executor: the same sums as one device, devices that fail, and what people see of them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialParameters, lenet5, type ModelSpec, parameterCount, parseModelSpec } from '@starling-grid/model'
import { type Clock, GridError, systemClock } from '@starling-grid/protocol'
import { createReferenceExecutor } from '../src/cpu/executor.ts'
import type { Batch, EarlyRanges, Executor } from '../src/graph/executor.ts'
import { mirroredExecutor } from '../src/graph/mirrored-executor.ts'
import { toldAdapter } from '../src/told-adapter.ts'
import { awkwardBatch, AWKWARD_MODEL, executorCases, expectClose, noise } from '../testing/executor-suite.ts'

/** Shares follow measured speed: on this clock all devices are as fast as their slices are large. */
const still: Clock = { ...systemClock, now: () => 0 }

function mirrored(executors: readonly Executor[], spec: ModelSpec = AWKWARD_MODEL, clock: Clock = still) {
  const said: string[] = []
  const options = { spec, say: (text: string) => void said.push(text), clock }
  return { executor: mirroredExecutor(executors, options), said }
}

for (const { name, run } of executorCases)
  test(`three devices as one: ${name}`, () =>
    run(
      async (spec, options) =>
        mirrored(
          [0, 1, 2].map(() => createReferenceExecutor(spec, options)),
          spec,
        ).executor,
    ))

/** A device that notes its batches, and one of whose calls fails. */
function device(name: string, spec: ModelSpec, fails: (call: number) => GridError | undefined = () => undefined) {
  const reference = createReferenceExecutor(spec)
  const state = { batches: [] as Batch[], destroyed: false }
  const executor: Executor = {
    adapter: { name, vendor: name, software: false, executor: 'webgpu' },
    loadParameters: (flat) => reference.loadParameters(flat),
    async gradient(batch, into, early) {
      const error = fails(state.batches.push(batch))
      if (error === undefined) return reference.gradient(batch, into, early)
      await reference.gradient(batch, into, early && { ...early, onFinal: (index) => index === 0 && early.onFinal(0) })
      // what it has not said to be final is worth nothing
      for (const { start, end } of early?.ranges.slice(1) ?? [{ start: 0, end: into.length }])
        into.fill(NaN, start, end)
      throw error
    },
    evaluate: (batch) => reference.evaluate(batch),
    predict: (x, samples) => reference.predict(x, samples),
    destroy: () => {
      state.destroyed = true
      reference.destroy()
    },
  }
  return { executor, state }
}

const LOST = new GridError('device-lost', 'The device was lost.')

async function gradientOf(executor: Executor, spec: ModelSpec, batch: Batch, early?: EarlyRanges) {
  const gradient = new Float32Array(parameterCount(spec)).fill(NaN)
  return { gradient, sums: await executor.gradient(batch, gradient, early) }
}

test('two devices give the loss and the gradient of LeNet-5 that one gives', async () => {
  const spec = lenet5()
  const batch = { samples: 9, x: noise(9 * 784, 1), y: Int32Array.from({ length: 9 }, (_, i) => i) }
  const [one, two] = [
    createReferenceExecutor(spec),
    mirrored(
      [0, 1].map(() => createReferenceExecutor(spec)),
      spec,
    ),
  ]
  for (const executor of [one, two.executor]) executor.loadParameters(initialParameters(spec, 1))
  const [alone, together] = [await gradientOf(one, spec, batch), await gradientOf(two.executor, spec, batch)]
  expectClose(together.gradient, alone.gradient, 1e-5, 'gradient')
  expectClose([together.sums.lossSum], [alone.sums.lossSum], 1e-5, 'loss')
  assert.deepEqual([together.sums.targets, together.sums.correct], [alone.sums.targets, alone.sums.correct])
  const [evaluated, wanted] = [await two.executor.evaluate(batch), await one.evaluate(batch)]
  assert.deepEqual(evaluated.tally, wanted.tally, 'what metrics follow from')
  expectClose(await two.executor.predict(batch.x, 9), await one.predict(batch.x, 9), 1e-6, 'predictions')
})

test('a device that joins computes from the next batch on, and is released with the others', async () => {
  const [one, late, tooLate] = ['A', 'B', 'C'].map((name) => device(name, AWKWARD_MODEL))
  assert.ok(one && late && tooLate)
  const { executor, said } = mirrored([one.executor])
  const alone = createReferenceExecutor(AWKWARD_MODEL)
  const batch = awkwardBatch(4, 1)
  for (const each of [executor, alone]) each.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const first = gradientOf(executor, AWKWARD_MODEL, batch)
  executor.join(late.executor)
  const [wanted, second] = [
    await gradientOf(alone, AWKWARD_MODEL, batch),
    await gradientOf(executor, AWKWARD_MODEL, batch),
  ]
  for (const { gradient } of [await first, second]) expectClose(gradient, wanted.gradient, 1e-5, 'gradient')
  assert.deepEqual(
    [one, late].map(({ state }) => state.batches.map(({ samples }) => samples)),
    [[4, 2], [2]],
  )
  assert.deepEqual(said, ['B computes from now on: 2 GPUs: A (50 %), B (50 %)'])
  executor.destroy()
  executor.join(tooLate.executor)
  await executor.evaluate({ ...batch, samples: 0, x: batch.x.subarray(0, 0), y: batch.y.subarray(0, 0) }).catch(() => 0)
  assert.deepEqual(
    [one, late, tooLate].map(({ state }) => state.destroyed),
    [true, true, true],
  )
})

const RANDOM_MODEL = parseModelSpec({
  input: [6],
  loss: 'mse',
  layers: [
    { type: 'linear', name: 'a', out: 8 },
    { type: 'dropout', p: 0.5 },
    { type: 'linear', name: 'b', out: 2 },
  ],
})

for (const keys of [undefined, Int32Array.from({ length: 7 }, (_, i) => 1000 - 7 * i)])
  test(`dropout draws for a sample what one device draws, ${keys ? 'by its key' : 'without keys'}`, async () => {
    const batch = { samples: 7, x: noise(7 * 6, 1), y: noise(7 * 2, 2), ...(keys ? { keys } : {}) }
    const [one, two] = [
      createReferenceExecutor(RANDOM_MODEL),
      mirrored([0, 1].map(() => createReferenceExecutor(RANDOM_MODEL))),
    ]
    for (const executor of [one, two.executor]) executor.loadParameters(initialParameters(RANDOM_MODEL, 1))
    const wanted = await gradientOf(one, RANDOM_MODEL, batch)
    expectClose((await gradientOf(two.executor, RANDOM_MODEL, batch)).gradient, wanted.gradient, 1e-5, 'gradient')
  })

const NORM_MODEL = parseModelSpec({
  input: [2, 4, 4],
  loss: 'mse',
  layers: [
    { type: 'conv2d', name: 'a', out: 3, kernel: 3 },
    { type: 'batchnorm2d', name: 'n' },
    { type: 'flatten' },
    { type: 'linear', name: 'b', out: 2 },
  ],
})

test('a model that normalises over its blocks gets whole blocks on each device', async () => {
  const batch = { samples: 10, x: noise(10 * 32, 1), y: noise(10 * 2, 2), groups: [4, 2, 4] }
  const devices = [device('A', NORM_MODEL), device('B', NORM_MODEL)]
  const { executor } = mirrored(
    devices.map((one) => one.executor),
    NORM_MODEL,
  )
  const one = createReferenceExecutor(NORM_MODEL)
  for (const each of [one, executor]) each.loadParameters(initialParameters(NORM_MODEL, 1))
  const wanted = await gradientOf(one, NORM_MODEL, batch)
  expectClose((await gradientOf(executor, NORM_MODEL, batch)).gradient, wanted.gradient, 1e-5, 'gradient')
  assert.equal(executor.blocksAtOnce, 2, 'a member begins as many blocks as there are devices')
  assert.deepEqual(
    devices.map(({ state }) => state.batches[0]?.groups),
    [[4, 2], [4]],
  )
})

test('a device that is lost in the midst of a step leaves its samples to others, and no piece is lost', async () => {
  const lost = device('B', AWKWARD_MODEL, (call) => (call === 2 ? LOST : undefined))
  const { executor, said } = mirrored([
    device('A', AWKWARD_MODEL).executor,
    lost.executor,
    device('C', AWKWARD_MODEL).executor,
  ])
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const whole = await gradientOf(executor, AWKWARD_MODEL, awkwardBatch(11))
  const total = parameterCount(AWKWARD_MODEL)
  const given: Float32Array[] = []
  const into = new Float32Array(total)
  const early = {
    ranges: [
      { start: 100, end: total },
      { start: 0, end: 100 },
    ],
    onFinal: () => void given.push(into.slice(100)),
  }
  const sums = await executor.gradient(awkwardBatch(11), into, early)
  expectClose(into, whole.gradient, 1e-5, 'gradient')
  assert.equal(sums.targets, 11)
  assert.deepEqual(given, [into.slice(100)], 'the one piece that all three had said to be final stays as it left')
  assert.equal(lost.state.destroyed, true)
  assert.match(
    said.join('\n'),
    /B is left out from now on: The device was lost\. What is left: 2 GPUs: A \(50 %\), C \(50 %\)/,
  )
  const after = await gradientOf(executor, AWKWARD_MODEL, awkwardBatch(11))
  expectClose(after.gradient, whole.gradient, 1e-5, 'gradient of those that are left')
  assert.equal(lost.state.batches.length, 2)
})

test('two devices lost at once leave their samples to the third; the last fails as a device does', async () => {
  const failing = (from: number) => (call: number) => (call >= from ? LOST : undefined)
  const { executor } = mirrored([
    device('A', AWKWARD_MODEL, failing(1)).executor,
    device('B', AWKWARD_MODEL, failing(1)).executor,
    device('C', AWKWARD_MODEL, failing(6)).executor,
  ])
  const reference = createReferenceExecutor(AWKWARD_MODEL)
  for (const each of [reference, executor]) each.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const wanted = await gradientOf(reference, AWKWARD_MODEL, awkwardBatch(9))
  expectClose((await gradientOf(executor, AWKWARD_MODEL, awkwardBatch(9))).gradient, wanted.gradient, 1e-5, 'gradient')
  const outcome = async () => {
    for (let step = 0; step < 6; step++) await gradientOf(executor, AWKWARD_MODEL, awkwardBatch(9))
  }
  await assert.rejects(outcome, { code: 'device-lost' })
})

test('parameters that come while a step is computed count from the next one on', async () => {
  const { executor } = mirrored([0, 1].map((i) => device(`${i}`, AWKWARD_MODEL).executor))
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const first = await gradientOf(executor, AWKWARD_MODEL, awkwardBatch(5))
  const underWay = gradientOf(executor, AWKWARD_MODEL, awkwardBatch(5))
  const others = initialParameters(AWKWARD_MODEL, 2)
  executor.loadParameters(others)
  others.fill(NaN)
  assert.deepEqual(await underWay, first)
  const next = await gradientOf(executor, AWKWARD_MODEL, awkwardBatch(5))
  assert.ok(next.sums.lossSum !== first.sums.lossSum && Number.isFinite(next.sums.lossSum))
})

test('a batch that is at fault costs no device', async () => {
  const { executor, said } = mirrored([device('A', AWKWARD_MODEL).executor, device('B', AWKWARD_MODEL).executor])
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const wrong = { ...awkwardBatch(4), y: Int32Array.of(0, 0, 0, 99) }
  await assert.rejects(gradientOf(executor, AWKWARD_MODEL, wrong), { code: 'dataset-unreadable' })
  assert.deepEqual(said, [])
  assert.equal(executor.adapter.parts?.length, 2)
})

test('a device that is three times as fast gets three quarters, and people see it', async () => {
  const state = { now: 0 }
  const timed = (name: string, msPerSample: number): Executor => {
    const { executor } = device(name, AWKWARD_MODEL)
    return {
      ...executor,
      async gradient(batch, into, early) {
        const start = state.now
        const sums = await executor.gradient(batch, into, early)
        state.now = Math.max(state.now, start + msPerSample * batch.samples)
        return sums
      },
    }
  }
  // one after the other in this order: the second begins when the first has ended
  const { executor, said } = mirrored([timed('Fast', 10), timed('Slow', 30)], AWKWARD_MODEL, {
    ...still,
    now: () => state.now,
  })
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  for (let step = 0; step < 2; step++) await gradientOf(executor, AWKWARD_MODEL, awkwardBatch(16))
  assert.equal(executor.adapter.name, '2 GPUs: Fast (75 %), Slow (25 %)')
  assert.deepEqual(said, ['2 GPUs: Fast (75 %), Slow (25 %); measured 100 and 33.3 samples/s: a step takes 50 % less'])
})

test('others learn how many devices of which maker compute, and their shares; never their names', () => {
  const part = (name: string, vendor: string, share: number, software = false) => ({ name, vendor, software, share })
  const adapter = { vendor: 'x', software: false, executor: 'webgpu' } as const
  const two = [part('NVIDIA GeForce RTX 4090', 'nvidia', 0.6), part('Intel Arc A770', 'intel', 0.4)]
  assert.deepEqual(toldAdapter({ ...adapter, name: '2 GPUs: …', parts: two }), {
    ...adapter,
    name: '2 GPUs: nvidia (60 %), intel (40 %)',
    vendor: 'several vendors',
  })
  const many = Array.from({ length: 16 }, (_, i) => part(`RTX ${i}`, 'nvidia', 1 / 16))
  assert.equal(toldAdapter({ ...adapter, name: '16 GPUs: …', parts: many }).name, '16 GPUs: 16 × nvidia (100 %)')
  const mixed = [two[0], part('llvmpipe (LLVM)', 'mesa', 0.4, true)].filter((one) => one !== undefined)
  assert.equal(
    toldAdapter({ ...adapter, name: '', parts: mixed }).name,
    '2 adapters: nvidia (60 %), mesa, software (40 %)',
  )
})
