// Every variant of the matrix kernels on whatever adapter this machine has, at sizes that meet no tile, against the
// reference.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, test } from 'node:test'
import { initialParameters, parameterCount, parseModelSpec, type ModelSpec } from '@starling-grid/model'
import { candidatesFor, type KernelCall, type KernelFamily } from '@starling-grid/shaders'
import { buildGraph, createGpuExecutor, createReferenceExecutor, traitsOf } from '@starling-grid/volunteer'
import { expectClose, forceVariant, noise } from '@starling-grid/volunteer/testing'
import { openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `no adapter: ${description}`
const gpu = skip ? undefined : await openGpu()
after(() => gpu?.close())

const readText = (url: URL) => readFile(url, 'utf8')

function model(input: number[], layers: object[]): ModelSpec {
  return parseModelSpec({ input, layers, loss: 'mse' })
}

/**
 * With epilogues in both directions, groups, strides, no bias, sizes beyond one tile and below one quad; few layers,
 * since software adapters compile slowly.
 */
const LINEAR = model(
  [2, 70],
  [
    { type: 'linear', name: 'a', out: 67, bias: false },
    { type: 'tanh' },
    { type: 'residual', layers: [{ type: 'linear', name: 'c', out: 67 }] },
    { type: 'relu' },
    { type: 'linear', name: 'd', out: 3 },
  ],
)
const CONV = model(
  [4, 11, 9],
  [
    { type: 'conv2d', name: 'a', out: 6, kernel: 3, stride: 2, padding: 1, groups: 2, bias: false },
    { type: 'leaky_relu', negative_slope: 0.1 },
    { type: 'residual', layers: [{ type: 'conv2d', name: 'c', out: 6, kernel: 1 }] },
    { type: 'tanh' },
    { type: 'conv2d', name: 'd', out: 2, kernel: 2 },
  ],
)

/**
 * Stride 1, with every size of kernel that has windows, padding from none to all, groups, no bias, and an epilogue in
 * backward.
 */
const WINDOWS = model(
  [4, 11, 9],
  [
    { type: 'conv2d', name: 'a', out: 18, kernel: 5, padding: 4, groups: 2, bias: false },
    { type: 'tanh' },
    { type: 'conv2d', name: 'c', out: 7, kernel: 3, padding: 1 },
    { type: 'leaky_relu', negative_slope: 0.1 },
    { type: 'residual', layers: [{ type: 'conv2d', name: 'd', out: 7, kernel: 3, padding: 1 }] },
    { type: 'conv2d', name: 'e', out: 2, kernel: 4 },
  ],
)

const CALLS: readonly KernelCall<unknown>[] = [
  { kernel: 'linear.forward', dims: { rows: 1, in: 1, out: 1 }, operands: { x: 1, weight: 1, y: 1 } },
  { kernel: 'linear.parameterGradient', dims: { rows: 1, in: 1, out: 1 }, operands: { x: 1, dy: 1, dweight: 1 } },
  {
    kernel: 'conv2d.forward',
    operands: { x: 1, weight: 1, y: 1 },
    dims: {
      channels: 1,
      height: 1,
      width: 1,
      out: 1,
      outHeight: 1,
      outWidth: 1,
      kernel: 3,
      stride: 1,
      padding: 1,
      groups: 1,
    },
  },
]

/** Family and name of every variant that this adapter can run. */
function variants(): { family: KernelFamily; name: string }[] {
  if (!gpu) return []
  const traits = traitsOf(gpu.device, gpu.description.software)
  const names = CALLS.flatMap((call) => candidatesFor(call, 1, traits).map(({ family, name }) => `${family} ${name}`))
  return [...new Set(names)].map((text) => {
    const [family = 'register', ...name] = text.split(' ')
    return { family: family as KernelFamily, name: name.join(' ') }
  })
}

/** Tiles with more rows than columns, and splits, are those of linear layers; flat ones serve convolutions too. */
function modelsFor({ name }: { readonly name: string }) {
  if (name.endsWith('windows')) return [['convolution', WINDOWS, 5]] as const
  if (name.endsWith('split') || name.startsWith('64×16')) return [['linear', LINEAR, 41]] as const
  if (/^8×(128|32)\/4×4/.test(name)) return [['convolution', CONV, 5]] as const
  return [
    ['linear', LINEAR, 41],
    ['convolution', CONV, 5],
  ] as const
}

for (const wanted of variants())
  for (const [name, spec, samples] of modelsFor(wanted))
    test(
      `${name} by ${wanted.family} ${wanted.name} agrees with the reference, batch ${samples}`,
      { skip },
      async () => {
        assert.ok(gpu)
        const { device, description: adapter } = gpu
        const choose = forceVariant(wanted, traitsOf(device, adapter.software))
        const ours = await createGpuExecutor({ device, adapter, spec, readText, choose, maxMicroBatch: 41 })
        const reference = createReferenceExecutor(spec)
        const { input, output } = buildGraph(spec)
        const batch = { samples, x: noise(samples * input.size, 1), y: noise(samples * output.size, 2) }
        const [gradient, wantedGradient] = [
          new Float32Array(parameterCount(spec)),
          new Float32Array(parameterCount(spec)),
        ]
        for (const executor of [ours, reference]) executor.loadParameters(initialParameters(spec, 4))
        const sums = await ours.gradient(batch, gradient)
        const wantedSums = await reference.gradient(batch, wantedGradient)
        expectClose([sums.lossSum], [wantedSums.lossSum], 1e-5, 'loss')
        expectClose(gradient, wantedGradient, 1e-5, 'gradient')
        ours.destroy()
      },
    )

test('the variants that were tried are many', { skip }, () => {
  assert.ok(variants().length >= 8, JSON.stringify(variants()))
})
