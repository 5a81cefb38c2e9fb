// Activations, norms, dropout and branches on whatever adapter this machine has and on WebAssembly, against the plain
// reference.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { initialParameters, parseModelSpec, type ModelSpec } from '@starling-grid/model'
import type { KernelFamily } from '@starling-grid/shaders'
import {
  buildGraph,
  createGpuExecutor,
  createReferenceExecutor,
  ReferenceRunner,
  traitsOf,
} from '@starling-grid/volunteer'
import { type Batch, expectClose, forceVariant, noise } from '@starling-grid/volunteer/testing'
import { openPlaces, readText, type TestPlace } from './places.ts'

const { places, gpu } = await openPlaces()
after(() => gpu?.close())

let named = 0
const learned = (type: string, more: object = {}) => ({ type, name: `${type}_${named++}`, ...more })
const linear = (out: number) => learned('linear', { out })
const conv = (out: number, kernel: number, stride = 1) =>
  learned('conv2d', { out, kernel, stride, padding: (kernel - 1) / 2, bias: false })
const plain = (type: string, more: object = {}) => ({ type, ...more })

function model(input: number[], layers: object[]): ModelSpec {
  return parseModelSpec({ input, layers: [...layers, linear(3)], loss: 'mse' })
}

/** Sizes that meet no group of four, single channels and single cells among them. */
const MODELS: readonly (readonly [string, ModelSpec])[] = [
  [
    'every activation',
    model(
      [3, 5],
      [
        linear(7),
        plain('gelu'),
        linear(9),
        plain('gelu_tanh'),
        linear(5),
        plain('silu'),
        plain('leaky_relu', { negative_slope: 0.2 }),
        linear(11),
        plain('softmax'),
      ],
    ),
  ],
  ['activations of one element', model([1], [plain('gelu'), plain('softmax'), plain('silu')])],
  [
    'norms of rows',
    model(
      [3, 7],
      [
        linear(5),
        learned('layernorm'),
        linear(8),
        learned('rmsnorm', { eps: 1e-3 }),
        plain('tanh'),
        learned('layernorm', { bias: false }),
      ],
    ),
  ],
  [
    'norms of images',
    model(
      [2, 7, 5],
      [
        conv(6, 3),
        learned('groupnorm', { groups: 3 }),
        plain('relu'),
        conv(5, 1),
        learned('batchnorm2d'),
        plain('gelu'),
        learned('groupnorm', { groups: 1 }),
        plain('globalavgpool'),
      ],
    ),
  ],
  [
    'one channel, many cells',
    model(
      [1, 33, 31],
      [conv(1, 3), learned('batchnorm2d'), plain('silu'), learned('groupnorm', { groups: 1 }), plain('globalavgpool')],
    ),
  ],
  [
    'whole quads',
    model(
      [4, 4, 8],
      [
        conv(8, 3),
        learned('batchnorm2d', { eps: 0.1 }),
        plain('relu'),
        conv(8, 1),
        learned('groupnorm', { groups: 2 }),
        plain('globalavgpool'),
        learned('layernorm'),
      ],
    ),
  ],
  [
    'averages of pairs, of odd sizes',
    model(
      [2, 23, 13],
      [
        conv(3, 3),
        plain('avgpool2d', { kernel: 2 }),
        plain('tanh'),
        plain('avgpool2d', { kernel: 2 }),
        plain('avgpool2d', { kernel: 3, stride: 2, padding: 1 }),
        plain('flatten'),
      ],
    ),
  ],
  [
    'residual blocks',
    model(
      [2, 6, 5],
      [
        plain('residual', {
          layers: [conv(2, 3), learned('batchnorm2d'), plain('relu'), conv(2, 3), learned('batchnorm2d')],
        }),
        plain('relu'),
        plain('residual', {
          layers: [conv(5, 3, 2), learned('batchnorm2d')],
          shortcut: [conv(5, 1, 2), learned('batchnorm2d')],
        }),
        plain('relu'),
        plain('globalavgpool'),
      ],
    ),
  ],
  [
    'parallel branches',
    model(
      [3, 5, 4],
      [
        plain('parallel', { combine: 'concat', branches: [[conv(2, 1)], [], [conv(3, 3), plain('silu')]] }),
        plain('parallel', { branches: [[conv(8, 3), learned('groupnorm', { groups: 4 })], [], [plain('gelu')]] }),
        plain('flatten'),
        plain('parallel', { combine: 'concat', branches: [[], []] }),
      ],
    ),
  ],
  [
    'gated branches, scaled',
    model(
      [3, 7],
      [
        plain('parallel', { combine: 'swiglu', branches: [[linear(10)], [linear(10)]] }),
        learned('rmsnorm', { size: 5 }),
        plain('scale', { factor: 1.5 }),
        plain('parallel', { combine: 'swiglu', branches: [[], [plain('tanh')]] }),
      ],
    ),
  ],
  [
    'tokens of an image, the first one kept',
    model(
      [3, 6, 9],
      [
        conv(7, 3),
        plain('transpose'),
        learned('class_token'),
        learned('positions', { context: 60 }),
        linear(9),
        plain('tanh'),
        plain('first_token'),
      ],
    ),
  ],
  [
    'tokens of an image, their mean',
    model(
      [8, 4, 5],
      [plain('transpose'), linear(12), learned('class_token'), plain('transpose'), plain('globalavgpool')],
    ),
  ],
  [
    'up and down again',
    model(
      [3, 5, 4],
      [
        plain('parallel', { combine: 'concat', branches: [[], [plain('upsample', { scale: 3 }), conv(4, 3, 3)]] }),
        plain('upsample'),
        conv(2, 3),
      ],
    ),
  ],
  [
    'dropout twice',
    model(
      [3, 5],
      [
        linear(9),
        plain('dropout', { p: 0.3 }),
        plain('residual', { layers: [linear(9), plain('dropout', { p: 0.5 })] }),
      ],
    ),
  ],
]

function batchFor(spec: ModelSpec, samples: number): Batch {
  const { input, output } = buildGraph(spec)
  const keys = Int32Array.from(noise(samples, 3), (value) => value * 2 ** 31)
  return { samples, x: noise(samples * input.size, 1), y: noise(samples * output.size, 2), keys }
}

/** Scales, shifts and running statistics too are nothing special. */
function parametersFor(spec: ModelSpec): Float32Array {
  const initial = initialParameters(spec, 4)
  const change = noise(initial.length, 5)
  return initial.map((value, i) => value + 0.3 * (change[i] ?? 0))
}

function everywhere<T>(cases: readonly T[]): (readonly [T, TestPlace])[] {
  return places.flatMap((place) => cases.map((one) => [one, place] as const))
}

/** One executor for all batches of a model: to compile its kernels takes longer than to run them. */
for (const [[name, spec], place] of everywhere(MODELS))
  test(`${place.name} agrees with the reference: ${name}`, { skip: place.skip }, async (context) => {
    const [ours, reference] = [await place.executor(spec), createReferenceExecutor(spec)]
    const parameters = parametersFor(spec)
    for (const executor of [ours, reference]) executor.loadParameters(parameters)
    for (const samples of [1, 6])
      await context.test(`batch ${samples}`, async () => {
        const batch = batchFor(spec, samples)
        const [gradient, wanted] = [new Float32Array(parameters.length), new Float32Array(parameters.length)]
        const [sums, wantedSums] = [await ours.gradient(batch, gradient), await reference.gradient(batch, wanted)]
        expectClose([sums.lossSum], [wantedSums.lossSum], 1e-5, 'training loss')
        expectClose(gradient, wanted, 2e-5, 'gradient')
        expectClose(
          [(await ours.evaluate(batch)).lossSum],
          [(await reference.evaluate(batch)).lossSum],
          1e-5,
          'evaluation loss',
        )
        expectClose(await ours.predict(batch.x, samples), await reference.predict(batch.x, samples), 1e-5, 'output')
      })
    ours.destroy()
  })

/**
 * Products with an epilogue, at sizes that meet no tile: `firstGuess` takes one family on each adapter, and others
 * would run on none. The third, `shared`, takes software adapters a minute to compile: kernel-variants.test.ts has it,
 * with every variant.
 */
const PRODUCTS = model(
  [4, 11, 9],
  [
    { type: 'conv2d', name: 'a', out: 12, kernel: 3, padding: 1, groups: 2 },
    plain('relu'),
    plain('residual', { layers: [{ type: 'conv2d', name: 'b', out: 12, kernel: 1 }] }),
    plain('globalavgpool'),
    linear(13),
    plain('tanh'),
    linear(9),
  ],
)

const FAMILIES: readonly KernelFamily[] = ['register', 'subgroup']
for (const family of FAMILIES)
  test(`products of the family ${family} agree with the reference`, { skip: gpu === undefined }, async () => {
    const batch = batchFor(PRODUCTS, 9)
    const { device, description: adapter } = gpu ?? assert.fail()
    const choose = forceVariant({ family }, traitsOf(device, adapter.software))
    const [ours, reference] = [
      await createGpuExecutor({ device, adapter, spec: PRODUCTS, readText, choose }),
      createReferenceExecutor(PRODUCTS),
    ]
    const parameters = parametersFor(PRODUCTS)
    const [gradient, wanted] = [new Float32Array(parameters.length), new Float32Array(parameters.length)]
    for (const executor of [ours, reference]) executor.loadParameters(parameters)
    await ours.gradient(batch, gradient)
    await reference.gradient(batch, wanted)
    expectClose(gradient, wanted, 2e-5, 'gradient')
    expectClose(await ours.predict(batch.x, 9), await reference.predict(batch.x, 9), 1e-5, 'output')
    ours.destroy()
  })

const layerAlone = (input: number[], layer: object) =>
  buildGraph(parseModelSpec({ input, layers: [layer] }), { outputGradient: 'given', inputGradient: true })

/** y and ∂x of one layer, at a place and by the reference. */
async function both(
  place: TestPlace,
  graph: ReturnType<typeof layerAlone>,
  { samples, x, keys = new Int32Array(samples) }: { samples: number; x: Float32Array; keys?: Int32Array },
) {
  const { inputGradient } = graph
  assert.ok(inputGradient)
  const write = [
    [graph.input, x],
    [graph.outputGradient, noise(samples * graph.output.size, 8)],
    ...(graph.keys ? [[graph.keys, keys] as const] : []),
  ] as const
  const run = {
    samples,
    write,
    parts: ['forward', 'backward'],
    read: [graph.output, inputGradient],
    clearGradient: true,
  } as const
  const ours = await place.runner(graph, samples)
  const results = [await ours.run(run), await new ReferenceRunner(graph, samples).run(run)] as const
  ours.destroy()
  return results
}

for (const [[p, size], place] of everywhere([
  [0.3, 37],
  [0.5, 64],
  [0, 5],
  [0.999, 101],
] as const))
  test(
    `dropout with p ${p} drops the same elements on ${place.name}, bit for bit, in both directions`,
    { skip: place.skip },
    async () => {
      const samples = 5
      const keys = Int32Array.of(0, 1, -1, 123_456_789, -2_147_483_648)
      const [ours, wanted] = await both(place, layerAlone([size], { type: 'dropout', p }), {
        samples,
        x: noise(samples * size, 6),
        keys,
      })
      assert.deepEqual(ours, wanted)
    },
  )

for (const place of places) {
  test(`activations of huge numbers are finite and right on ${place.name}`, { skip: place.skip }, async () => {
    const x = Float32Array.of(-1e20, -1e4, -90, -20, -1e-20, 0, 1e-20, 20, 90, 1e4, 1e20)
    for (const type of ['gelu', 'gelu_tanh', 'silu', 'leaky_relu', 'softmax']) {
      const [ours, wanted] = await both(place, layerAlone([x.length], { type }), { samples: 1, x })
      for (const [i, values] of ours.entries()) {
        assert.ok(values.every(Number.isFinite), `${type} ${i}: ${values.join()}`)
        expectClose(values, wanted[i] ?? [], 1e-5, `${type} ${i}`)
      }
    }
  })

  test(
    `gelu_tanh has the constants of GPT-2 to all their digits: small results show them, on ${place.name}`,
    { skip: place.skip },
    async () => {
      const x = Float32Array.from({ length: 32 }, (_, i) => -3 + i / 16)
      const [[y = []], [wanted = []]] = await both(place, layerAlone([x.length], { type: 'gelu_tanh' }), {
        samples: 1,
        x,
      })
      for (const [i, value] of [...wanted].entries())
        assert.ok(Math.abs((y[i] ?? NaN) / value - 1) < 1e-5, `gelu_tanh(${x[i]}) is ${value}, got ${y[i]}`)
    },
  )

  test(
    `of equal cells of a window the first wins, and gets the whole gradient, on ${place.name}`,
    { skip: place.skip },
    async () => {
      const pool = { type: 'maxpool2d', kernel: 2 }
      // four windows: all equal, two equal, the last the largest, equal negative ones
      const x = Float32Array.of(1, 1, 2, 3, 1, 1, 3, 3, 0, 1, -1, -2, 1, 2, -1, -1)
      const [ours, wanted] = await both(place, layerAlone([1, 4, 4], pool), { samples: 1, x })
      assert.deepEqual(ours, wanted)
      const dy = noise(4, 8)
      const winners = [0, 3, 13, 10]
      const gradient = new Float32Array(16)
      for (const [window, cell] of winners.entries()) gradient[cell] = dy[window] ?? NaN
      assert.deepEqual(ours, [Float32Array.of(1, 3, 2, -1), gradient])
    },
  )

  test(`norms keep their digits far from zero, on ${place.name}`, { skip: place.skip }, async () => {
    const x = noise(6 * 90, 7).map((value) => value + 100)
    for (const [input, layer] of [
      [[2, 5, 9], { type: 'batchnorm2d', name: 'a' }],
      [[2, 5, 9], { type: 'groupnorm', name: 'a', groups: 2 }],
      [[6, 15], { type: 'layernorm', name: 'a' }],
    ] as const) {
      const [[y = []], [wanted = []]] = await both(place, layerAlone([...input], layer), { samples: 6, x })
      expectClose(y, wanted, 1e-4, layer.type)
    }
  })
}
