// The executor on whatever adapter this machine has, against the suite, the plain reference, and its promise to create
// nothing once it runs.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, test } from 'node:test'
import {
  gpt,
  initialParameters,
  lenet5,
  mlp,
  parameterCount,
  parseModelSpec,
  type ModelSpec,
} from '@starling-grid/model'
import { isGridError } from '@starling-grid/protocol'
import {
  buildGraph,
  createGpuExecutor,
  createGpuRunner,
  createReferenceExecutor,
  type GpuExecutorOptions,
  traitsOf,
} from '@starling-grid/volunteer'
import {
  AWKWARD_MODEL,
  awkwardBatch,
  type Batch,
  executorCases,
  expectClose,
  forceVariant,
  noise,
  residentCases,
} from '@starling-grid/volunteer/testing'
import { openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `no adapter: ${description}`
const gpu = skip ? undefined : await openGpu()
after(() => gpu?.close())

const readText = (url: URL) => readFile(url, 'utf8')

function theGpu() {
  assert.ok(gpu)
  return gpu
}

function openExecutor(
  spec: ModelSpec,
  options: Partial<Pick<GpuExecutorOptions, 'maxMicroBatch' | 'asGpu' | 'say' | 'maxBytes' | 'choose'>> = {},
) {
  const { device, description: adapter } = theGpu()
  return createGpuExecutor({ device, adapter, spec, readText, ...options })
}

for (const { name, run } of executorCases)
  test(`on ${gpu?.description.name}: ${name}`, { skip }, () => run(openExecutor))

/** A software adapter compiles tiles of GPUs for seconds; what is tested are kernels of the optimizer. */
function quickAsGpu(spec: ModelSpec, options: Parameters<typeof openExecutor>[1] = {}) {
  const choose = forceVariant({ family: 'register' }, traitsOf(theGpu().device, true))
  return openExecutor(spec, { ...options, choose, asGpu: true })
}

for (const { name, run } of residentCases)
  test(`on ${gpu?.description.name}, as a GPU: ${name}`, { skip }, () => run(quickAsGpu))

test('a software adapter leaves the state of inner steps to the host', { skip }, async () => {
  const executor = await openExecutor(AWKWARD_MODEL)
  const { software } = theGpu().description
  assert.equal((await executor.resident?.({ type: 'sgd', lr: 1 })) === undefined, software)
  executor.destroy()
})

test('a device without memory for the state of inner steps says so, and leaves it to the host', { skip }, async () => {
  const said: string[] = []
  const options = { say: (text: string) => void said.push(text), maxBytes: 2.4e6 }
  const small = mlp({ input: [20], hidden: [300, 300], classes: 3 }) // twice 390 kB, and three times staging
  const executor = await quickAsGpu(small, { ...options, maxMicroBatch: 1 })
  assert.equal(await executor.resident?.({ type: 'adamw', lr: 1 }), undefined)
  assert.match(said.join(' '), /Inner steps go over the processor: The model needs 2 MiB of device memory/)
  executor.destroy()
})

/** Layers at sizes that meet no tile, no group of four, and no other layer's size. */
const MODELS: readonly (readonly [string, ModelSpec])[] = [
  ['awkward sizes', AWKWARD_MODEL],
  ['one channel, one cell kernels', model([1, 5, 5], [conv(1, 1), { type: 'relu' }, conv(3, 5), { type: 'flatten' }])],
  [
    'a stride beyond the kernel',
    model([2, 13, 10], [{ ...conv(4, 2), stride: 3 }, { type: 'tanh' }, { type: 'flatten' }]),
  ],
  [
    'depthwise and wide padding',
    model(
      [4, 6, 7],
      [
        { ...conv(4, 3), groups: 4, padding: 3 },
        { type: 'maxpool2d', kernel: 3, stride: 2, padding: 1 },
        { type: 'flatten' },
      ],
    ),
  ],
  [
    'pools that leave cells out',
    model(
      [2, 9, 11],
      [conv(3, 1), { type: 'avgpool2d', kernel: 2, stride: 3 }, { type: 'sigmoid' }, { type: 'flatten' }],
    ),
  ],
  ['one output, one input', model([1], [{ type: 'linear', name: 'a', out: 1 }, { type: 'tanh' }])],
  [
    'leading dimensions without bias',
    model([5, 3], [{ type: 'linear', name: 'a', out: 6, bias: false }, { type: 'relu' }]),
  ],
  [
    'flattened twice',
    model(
      [2, 4, 4],
      [{ type: 'flatten' }, { type: 'flatten' }, { type: 'linear', name: 'a', out: 3 }, { type: 'flatten' }],
    ),
  ],
]

function conv(out: number, kernel: number) {
  return { type: 'conv2d', name: `conv_${out}_${kernel}`, out, kernel }
}

function model(input: number[], layers: object[]): ModelSpec {
  return parseModelSpec({ input, layers: [...layers, { type: 'linear', name: 'head', out: 3 }], loss: 'mse' })
}

function batchFor(spec: ModelSpec, samples: number): Batch {
  const { input, output } = buildGraph(spec)
  if (spec === AWKWARD_MODEL) return awkwardBatch(samples)
  return { samples, x: noise(samples * input.size, 1), y: noise(samples * output.size, 2) }
}

for (const [name, spec] of MODELS)
  for (const samples of [1, 6])
    test(`the GPU agrees with the reference: ${name}, batch ${samples}`, { skip }, async () => {
      const batch = batchFor(spec, samples)
      const [ours, reference] = [await openExecutor(spec), createReferenceExecutor(spec)]
      const [gradient, wanted] = [new Float32Array(parameterCount(spec)), new Float32Array(parameterCount(spec))]
      for (const executor of [ours, reference]) executor.loadParameters(initialParameters(spec, 4))
      const sums = await ours.gradient(batch, gradient)
      const wantedSums = await reference.gradient(batch, wanted)
      expectClose([sums.lossSum], [wantedSums.lossSum], 1e-5, 'loss')
      expectClose(gradient, wanted, 1e-5, 'gradient')
      expectClose(await ours.predict(batch.x, samples), await reference.predict(batch.x, samples), 1e-5, 'output')
      ours.destroy()
    })

/**
 * Weights large enough that their gradients are written, not added to zeros; the second one has two layers that come to
 * it.
 */
const LARGE_MODELS: readonly (readonly [string, ModelSpec])[] = [
  [
    'two matrices',
    model(
      [260],
      [{ type: 'linear', name: 'a', out: 263 }, { type: 'tanh' }, { type: 'linear', name: 'b', out: 264, bias: false }],
    ),
  ],
  ['a tied head', gpt({ blocks: 1, heads: 2, channels: 128, context: 8, vocab: 516 })],
]

for (const [name, spec] of LARGE_MODELS)
  test(
    `gradients of large weights begin anew with each batch and add up over its pieces: ${name}`,
    { skip },
    async () => {
      const [ours, reference] = [await openExecutor(spec, { maxMicroBatch: 3 }), createReferenceExecutor(spec)]
      const [gradient, wanted] = [new Float32Array(parameterCount(spec)), new Float32Array(parameterCount(spec))]
      for (const executor of [ours, reference]) executor.loadParameters(initialParameters(spec, 4))
      for (const samples of [2, 8, 3]) {
        const batch = spec.loss === 'mse' ? batchFor(spec, samples) : tokens(samples, 8)
        await ours.gradient(batch, gradient)
        await reference.gradient(batch, wanted)
        expectClose(gradient, wanted, 1e-5, `gradient of ${samples}`)
      }
      ours.destroy()
    },
  )

function tokens(samples: number, context: number): Batch {
  const at = (step: number) => Int32Array.from({ length: samples * context }, (_, i) => (i * step) % 516)
  return { samples, x: at(7), y: at(11) }
}

const STEADY_STEPS = 1000

test(`${STEADY_STEPS} steps create nothing on the device and keep the number of buffers`, { skip }, async () => {
  const { device } = theGpu()
  const created: string[] = []
  const watched = new Proxy(device, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property)
      if (typeof value !== 'function') return value
      if (String(property).startsWith('create') && property !== 'createCommandEncoder') created.push(String(property))
      return value.bind(target)
    },
  })
  const runner = await createGpuRunner({
    device: watched,
    graph: buildGraph(AWKWARD_MODEL),
    readText,
    maxMicroBatch: 4,
  })
  const { graph } = runner
  runner.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const gradient = new Float32Array(graph.parameterCount)
  assert.ok(graph.lossTensors)
  const { target, loss, correct } = graph.lossTensors
  const step = (samples: number) => {
    const { x, y } = awkwardBatch(samples)
    const write = [
      [graph.input, x],
      [target, y],
    ] as const
    return runner.run({
      samples,
      write,
      parts: ['forward', 'loss', 'backward'],
      read: [loss, correct],
      clearGradient: true,
      gradientInto: gradient,
    })
  }
  await step(4)
  const [createdAtStart, buffersAtStart] = [created.length, runner.liveBuffers]
  assert.ok(createdAtStart > 0)
  for (let i = 0; i < STEADY_STEPS; i++) await step(1 + (i % 4))
  assert.deepEqual(created.slice(createdAtStart), [])
  assert.equal(runner.liveBuffers, buffersAtStart)
  runner.destroy()
  assert.equal(runner.liveBuffers, 0)
})

test('parameters that are loaded while a run waits for its turn reach the next run alone', { skip }, async () => {
  const { device } = theGpu()
  const runner = await createGpuRunner({ device, graph: buildGraph(AWKWARD_MODEL), readText, maxMicroBatch: 4 })
  const { graph } = runner
  const { target, loss } = graph.lossTensors ?? assert.fail()
  const { x, y } = awkwardBatch(4)
  const write = [
    [graph.input, x],
    [target, y],
  ] as const
  const losses = async (): Promise<number[]> =>
    (await runner.run({ samples: 4, write, parts: ['forward', 'loss'], read: [loss] })).flatMap((read) => [...read])
  const other = initialParameters(AWKWARD_MODEL, 2)
  runner.loadParameters(other)
  const ofOther = await losses()
  runner.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const alone = await losses()
  assert.notDeepEqual(ofOther, alone)
  const waiting = losses()
  runner.loadParameters(other)
  other.fill(0) // the caller's memory is its own again
  const next = losses()
  assert.deepEqual(await waiting, alone)
  assert.deepEqual(await next, ofOther)
  runner.destroy()
})

test('large parameters arrive whole, also while those before them are still copied', { skip }, async () => {
  const writes: number[] = []
  const side = 1500 // 9 MB
  const layer = { type: 'linear', name: 'product', out: side, bias: false }
  const spec = parseModelSpec({ input: [side], layers: [layer] })
  const device = withQueue(theGpu().device, (queue) => ({
    writeBuffer: (...args: Parameters<GPUQueue['writeBuffer']>) => {
      writes.push(args[4] ?? 0)
      queue.writeBuffer(...args)
    },
  }))
  const options = { device, graph: buildGraph(spec, { keepInputs: true }), readText, maxMicroBatch: 1, software: false }
  const runner = await createGpuRunner(options)
  const { input, output } = runner.graph
  const ones = new Float32Array(side).fill(1)
  /** the sums of the rows of a matrix that is `value` times its row's number */
  const expected = (value: number) => Float32Array.from({ length: side }, (_, row) => side * row * value)
  const load = (value: number) =>
    runner.loadParameters(Float32Array.from({ length: side * side }, (_, i) => Math.floor(i / side) * value))
  const sums = async () => {
    const run = { samples: 1, write: [[input, ones]] as const, parts: ['forward'] as const, read: [output] }
    return (await runner.run(run))[0]
  }
  const largeWrites = () => writes.filter((floats) => floats === side * side).length
  load(1)
  assert.equal(largeWrites(), 0)
  load(2)
  load(3)
  assert.equal(largeWrites(), 2)
  assert.deepEqual(await sums(), expected(3))
  let before: number
  do {
    before = largeWrites()
    load(4)
    assert.deepEqual(await sums(), expected(4))
  } while (largeWrites() > before) // until the memory for uploads is free again
  runner.destroy()
  assert.equal(runner.liveBuffers, 0)
})

test('a lost device is said to be lost', { skip }, async () => {
  const lost = await openGpu()
  const spec = lenet5()
  const executor = await createGpuExecutor({ device: lost.device, adapter: lost.description, spec, readText })
  executor.loadParameters(initialParameters(spec, 1))
  const batch = { samples: 8, x: noise(8 * 784, 1), y: new Int32Array(8) }
  const gradient = new Float32Array(parameterCount(spec))
  await executor.gradient(batch, gradient)
  lost.close()
  await assert.rejects(
    executor.gradient(batch, gradient),
    (error) => isGridError(error) && error.code === 'device-lost',
  )
})

test('the same plan made twice gives the same bits', { skip }, async () => {
  const gradients = await Promise.all(
    [1, 2].map(async () => {
      const executor = await openExecutor(AWKWARD_MODEL, { maxMicroBatch: 5 })
      executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
      const gradient = new Float32Array(parameterCount(AWKWARD_MODEL))
      await executor.gradient(awkwardBatch(13), gradient)
      executor.destroy()
      return gradient
    }),
  )
  assert.deepEqual(gradients[0], gradients[1])
})

/** A device some of whose queue's functions are others. */
function withQueue(device: GPUDevice, others: (queue: GPUQueue) => Partial<GPUQueue>): GPUDevice {
  const queue = bound(device.queue, others(device.queue))
  return bound(device, { queue })
}

function bound<T extends object>(object: T, others: Partial<T>): T {
  return new Proxy(object, {
    get(target, property) {
      const value: unknown = Reflect.get(property in others ? others : target, property)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** A device that has no memory for its first `times` plans. */
function withoutMemory(device: GPUDevice, times: number): GPUDevice {
  let left = times
  return new Proxy(device, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property)
      if (property === 'popErrorScope')
        return async () => {
          const error = await target.popErrorScope()
          return left-- > 0 ? { message: 'pretended' } : error
        }
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

test(
  'an adapter without memory for a plan gets half the samples again and again, then a refusal by name',
  { skip },
  async () => {
    const said: string[] = []
    const open = (times: number) =>
      createGpuRunner({
        device: withoutMemory(theGpu().device, times),
        graph: buildGraph(AWKWARD_MODEL),
        readText,
        maxMicroBatch: 8,
        say: (text) => said.push(text),
      })
    const smaller = await open(2)
    assert.equal(smaller.capacity, 2)
    smaller.destroy()
    assert.match(said.join(), /no memory for 8 samples.*trying 4.*no memory for 4 samples.*trying 2/)
    await assert.rejects(
      open(Number.POSITIVE_INFINITY),
      (error) => isGridError(error) && error.code === 'adapter-limit' && /device memory/.test(error.message),
    )
  },
)

test(
  'an adapter without memory for a block that is normalised as a whole keeps the block and computes values again',
  { skip },
  async () => {
    const said: string[] = []
    const norms = [1, 2, 3].flatMap((i) => [{ type: 'batchnorm2d', name: `bn${i}` }, { type: 'relu' }])
    const runner = await createGpuRunner({
      device: withoutMemory(theGpu().device, 1),
      graph: buildGraph(parseModelSpec({ input: [2, 3, 3], layers: norms, loss: 'mse' })),
      readText,
      maxMicroBatch: 4,
      say: (text) => said.push(text),
    })
    assert.equal(runner.capacity, 4)
    runner.destroy()
    assert.match(said.join(), /computing some values again/)
  },
)
