// Kernels whose invocations share their work through workgroup memory, as GPUs are given them, on whatever adapter this
// machine has, at sizes that meet no tile, against the reference.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { initialParameters, parameterCount, parseModelSpec, randomWords, type ModelSpec } from '@starling-grid/model'
import type { AdapterTraits } from '@starling-grid/shaders'
import {
  buildGraph,
  createGpuExecutor,
  createGpuRunner,
  createReferenceExecutor,
  traitsOf,
} from '@starling-grid/volunteer'
import { type Batch, expectClose, forceVariant, type Graph, noise } from '@starling-grid/volunteer/testing'
import { openPlaces, readText } from './places.ts'
import { compareRunners, withoutProbabilities } from './single-layers.ts'

const { gpu, places } = await openPlaces()
after(() => gpu?.close())
const skip = places[0]?.skip ?? false

const TOLERANCE = 1e-5
const SAMPLES = 2

function layerAlone(input: readonly number[], layer: object): Graph {
  const spec = parseModelSpec({ input, layers: [layer] })
  return buildGraph(spec, { outputGradient: 'given', inputGradient: true })
}

/** Every call of the graph by a kernel of the family, and its results as the reference has them. */
async function compareShared(graph: Graph, given: Partial<AdapterTraits> = {}): Promise<void> {
  const { device, description } = gpu ?? assert.fail()
  const traits = { ...traitsOf(device, description.software), ...given }
  const choose = forceVariant({ family: 'shared' }, traits)
  for (const call of [...graph.forward, ...graph.backward])
    assert.equal(choose(call, SAMPLES).candidate.family, 'shared', call.kernel)
  const runner = await createGpuRunner({ device, graph, readText, maxMicroBatch: SAMPLES, choose })
  await compareRunners(runner, { samples: SAMPLES, tolerance: TOLERANCE })
}

/** Each width of a tile, rows and columns past its edge and past a quad, tiles above, on and below the diagonal. */
const ATTENTION = [
  { length: 70, heads: 2, size: 5, causal: true, fewRegisters: false },
  { length: 37, heads: 1, size: 32, causal: false, fewRegisters: true },
  { length: 131, heads: 1, size: 42, causal: true, fewRegisters: true },
  { length: 66, heads: 2, size: 64, causal: false, fewRegisters: false },
  { length: 133, heads: 1, size: 100, causal: true, fewRegisters: false },
] as const

for (const { length, heads, size, causal, fewRegisters } of ATTENTION) {
  const what = `${causal ? 'causal' : 'bidirectional'}, ${length} tokens, ${heads} heads of ${size}`
  const where = fewRegisters ? ', as where registers are few' : ''
  test(`attention by tiles in workgroup memory agrees with the reference: ${what}${where}`, { skip }, () => {
    const layer = layerAlone([length, 3 * heads * size], { type: 'attention', heads, causal })
    return compareShared(withoutProbabilities(layer), { software: false, fewRegisters })
  })
}

/**
 * What walks rows, with a workgroup for each: rows past its width, rows of a quad and a bit, planes of no whole quad.
 */
const TEXT = parseModelSpec({
  input: [13],
  layers: [
    { type: 'embedding', name: 'tokens', vocab: 531, channels: 35 },
    { type: 'positions', name: 'places', context: 15 },
    { type: 'layernorm', name: 'centred' },
    { type: 'linear', name: 'wide', out: 131 },
    { type: 'softmax' },
    { type: 'rmsnorm', name: 'scaled' },
    { type: 'linear', name: 'head', out: 531 },
  ],
  label_smoothing: 0.1,
  ignore_index: 3,
})
const IMAGES = parseModelSpec({
  input: [3, 13, 11],
  layers: [
    { type: 'conv2d', name: 'a', out: 6, kernel: 3, padding: 1 },
    { type: 'batchnorm2d', name: 'of_channels' },
    { type: 'relu' },
    { type: 'groupnorm', name: 'of_samples', groups: 3 },
    { type: 'transpose' },
    { type: 'class_token', name: 'first' },
    { type: 'transpose' },
    { type: 'globalavgpool' },
    { type: 'linear', name: 'out', out: 9 },
  ],
  loss: 'bce_with_logits',
})
/**
 * Sums over features that are split, with what follows them: a bias, a residual and an activation, or its derivative.
 */
const VALUES = parseModelSpec({
  input: [301],
  layers: [
    { type: 'linear', name: 'narrow', out: 18 },
    { type: 'tanh' },
    { type: 'linear', name: 'wide', out: 270, bias: false },
    { type: 'residual', layers: [{ type: 'linear', name: 'same', out: 270 }] },
    { type: 'leaky_relu', negative_slope: 0.1 },
    { type: 'linear', name: 'out', out: 33 },
  ],
  loss: 'mse',
})

const words = randomWords(5, 7)
const tokens = (count: number, vocab: number) => Int32Array.from({ length: count }, (_, i) => words(i) % vocab)
/** Every third is ignored. */
const targets = (count: number) => tokens(count, 531).map((id, i) => (i % 3 === 1 ? 3 : id))

/** The last run of a batch has fewer samples than the others. */
const TRAININGS: readonly (readonly [string, ModelSpec, Batch, number])[] = [
  ['tokens', TEXT, { samples: 17, x: tokens(17 * 13, 50), y: targets(17 * 13) }, 9],
  ['images', IMAGES, { samples: 9, x: noise(9 * 429, 1), y: noise(81, 2).map((value) => Number(value > 0)) }, 9],
  ['values', VALUES, { samples: 11, x: noise(11 * 301, 1), y: noise(363, 2) }, 8],
]
/** Kernels that walk no rows, or whose rows are too short here. */
const OTHERS = new RegExp(
  '^(relu|tanh|leaky_relu|add\\.forward|concat|transpose|class_token\\.forward|embedding\\.forward|' +
    'positions\\.forward|batchnorm2d\\.(evaluate|statistics)|globalavgpool\\.backward)',
)

for (const [name, spec, batch, maxMicroBatch] of TRAININGS)
  test(`rows by workgroups agree with the reference: ${name}`, { skip }, async () => {
    const { device, description: adapter } = gpu ?? assert.fail()
    const force = forceVariant({ family: 'shared' }, traitsOf(device, false))
    const choose: typeof force = (call, capacity) => {
      const choice = force(call, capacity)
      assert.equal(choice.candidate.family === 'shared', !OTHERS.test(call.kernel), call.kernel)
      return choice
    }
    const ours = await createGpuExecutor({ device, adapter, spec, readText, choose, maxMicroBatch })
    const reference = createReferenceExecutor(spec)
    const parameters = initialParameters(spec, 4).map((value) => 3 * value)
    const [gradient, wanted] = [new Float32Array(parameters.length), new Float32Array(parameters.length)]
    for (const executor of [ours, reference]) executor.loadParameters(parameters)
    const sums = await ours.gradient(batch, gradient)
    const wantedSums = await reference.gradient(batch, wanted)
    expectClose([sums.lossSum], [wantedSums.lossSum], TOLERANCE, 'loss')
    expectClose(gradient, wanted, 2 * TOLERANCE, 'gradient')
    assert.deepEqual([sums.targets, sums.correct], [wantedSums.targets, wantedSums.correct])
    ours.destroy()
  })

test('of equal largest logits that different invocations saw, the first counts as the answer', { skip }, async () => {
  const { device, description: adapter } = gpu ?? assert.fail()
  const [classes, first, second] = [531, 300, 401]
  const spec = parseModelSpec({ input: [3], layers: [{ type: 'linear', name: 'head', out: classes }] })
  const ours = await createGpuExecutor({ device, adapter, spec, readText, asGpu: true, maxMicroBatch: 4 })
  const parameters = new Float32Array(parameterCount(spec))
  for (const at of [first, second]) parameters[3 * classes + at] = 1
  ours.loadParameters(parameters)
  const y = Int32Array.of(first, second, first, 0)
  const { correct } = await ours.gradient(
    { samples: 4, x: new Float32Array(12), y },
    new Float32Array(parameters.length),
  )
  assert.equal(correct, 2)
  ours.destroy()
})
