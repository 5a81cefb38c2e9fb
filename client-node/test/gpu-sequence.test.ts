// Embedding, positions, attention and the losses on the GPU and on WebAssembly against the plain reference, at sizes
// that meet no tile and no group of four.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { initialParameters, parameterCount, parseModelSpec, randomWords, type ModelSpec } from '@starling-grid/model'
import { buildGraph, createReferenceExecutor, type Executor } from '@starling-grid/volunteer'
import { type Batch, expectClose, type Graph, noise } from '@starling-grid/volunteer/testing'
import { openPlaces, type TestPlace } from './places.ts'
import { compareRunners, withoutProbabilities } from './single-layers.ts'

const { places, gpu } = await openPlaces()
after(() => gpu?.close())

const TOLERANCE = 1e-5
const SAMPLES = 2

function everywhere<T>(cases: readonly T[]): (readonly [T, TestPlace, TestPlace])[] {
  return places.flatMap((place) => cases.map((one) => [one, place, place] as const))
}

async function compareGraph(place: TestPlace, graph: Graph): Promise<void> {
  await compareRunners(await place.runner(graph, SAMPLES), { samples: SAMPLES, tolerance: TOLERANCE })
}

const ATTENTION = [
  { length: 1, heads: 1, size: 1, causal: true },
  { length: 11, heads: 3, size: 5, causal: true },
  { length: 13, heads: 1, size: 12, causal: false },
  { length: 16, heads: 2, size: 8, causal: true },
] as const

for (const [{ length, heads, size, causal }, { name, skip }, place] of everywhere(ATTENTION)) {
  const what = `${causal ? 'causal' : 'bidirectional'}, ${length} tokens, ${heads} heads of ${size}`
  const build = () =>
    buildGraph(parseModelSpec({ input: [length, 3 * heads * size], layers: [{ type: 'attention', heads, causal }] }), {
      outputGradient: 'given',
      inputGradient: true,
    })
  test(`attention on ${name} agrees with the reference: ${what}`, { skip }, () => compareGraph(place, build()))
  test(`attention on ${name} without kept probabilities agrees with the reference: ${what}`, { skip }, () =>
    compareGraph(place, withoutProbabilities(build())),
  )
}

interface Sizes {
  readonly tokens: number
  readonly channels: number
  readonly vocab: number
  readonly loss?: { readonly label_smoothing?: number; readonly ignore_index?: number }
}

function languageModel({ tokens, channels, vocab, loss = {} }: Sizes, layers: object[] = []): ModelSpec {
  return parseModelSpec({
    input: [tokens],
    layers: [
      { type: 'embedding', name: 'tokens', vocab, channels },
      { type: 'positions', name: 'places', context: tokens + 3 },
      ...layers,
      { type: 'linear', name: 'head', out: vocab, bias: false },
    ],
    ...loss,
  })
}

/** Few distinct tokens often, all of them sometimes. */
function tokenBatch({ tokens, vocab }: Sizes, samples: number, ignored?: number): Batch {
  const word = randomWords(5, 7)
  const id = (i: number) => (word(i) % 3 === 0 ? word(i + 1) % vocab : word(i) % Math.min(4, vocab))
  const x = Int32Array.from({ length: samples * tokens }, (_, i) => id(2 * i))
  return {
    samples,
    x,
    y: Int32Array.from(x, (_, i) => (ignored !== undefined && i % 3 === 1 ? ignored : id(2 * i + 1))),
  }
}

/** All batches with one executor: to compile its kernels takes longer than to run them. */
async function compareTraining(place: TestPlace, spec: ModelSpec, batches: readonly Batch[]): Promise<void> {
  const [ours, reference] = [await place.executor(spec), createReferenceExecutor(spec)]
  for (const executor of [ours, reference])
    executor.loadParameters(initialParameters(spec, 4).map((value) => 10 * value))
  for (const batch of batches) await compareGradients(spec, [ours, reference], batch)
  ours.destroy()
}

async function compareGradients(
  spec: ModelSpec,
  [ours, reference]: readonly [Executor, Executor],
  batch: Batch,
): Promise<void> {
  const [gradient, again, wanted] = [
    new Float32Array(parameterCount(spec)),
    new Float32Array(parameterCount(spec)),
    new Float32Array(parameterCount(spec)),
  ]
  const what = `batch ${batch.samples}`
  const sums = await ours.gradient(batch, gradient)
  const wantedSums = await reference.gradient(batch, wanted)
  await ours.gradient(batch, again)
  expectClose([sums.lossSum], [wantedSums.lossSum], TOLERANCE, `${what}: loss`)
  expectClose(gradient, wanted, TOLERANCE, `${what}: gradient`)
  assert.deepEqual([sums.targets, sums.correct], [wantedSums.targets, wantedSums.correct], what)
  assert.deepEqual(again, gradient, `${what}: the same batch gives the same bits`)
}

const MODELS: readonly Sizes[] = [
  { tokens: 1, channels: 1, vocab: 2 },
  { tokens: 11, channels: 5, vocab: 23 },
  { tokens: 8, channels: 12, vocab: 7, loss: { label_smoothing: 0.2 } },
  { tokens: 9, channels: 6, vocab: 13, loss: { label_smoothing: 0.1, ignore_index: -100 } },
  { tokens: 5, channels: 3, vocab: 2051, loss: { label_smoothing: 0.1, ignore_index: 2 } },
  { tokens: 300, channels: 4, vocab: 5003 },
]

for (const [sizes, { name, skip }, place] of everywhere(MODELS))
  test(`${name} embeds, places and predicts tokens as the reference: ${JSON.stringify(sizes)}`, { skip }, () =>
    compareTraining(
      place,
      languageModel(sizes),
      [1, 5].map((samples) => tokenBatch(sizes, samples, sizes.loss?.ignore_index)),
    ),
  )

for (const place of places) {
  const { name, skip } = place
  test(`a decoder over a long sequence trains on ${name} as by the reference`, { skip }, () => {
    const sizes = { tokens: 261, channels: 8, vocab: 19 }
    const spec = languageModel(sizes, [{ type: 'multihead_attention', name: 'mix', heads: 2, causal: true }])
    return compareTraining(place, spec, [tokenBatch(sizes, 2)])
  })

  test(`binary targets train on ${name} as by the reference, and count outputs on the right side`, { skip }, () => {
    const spec = parseModelSpec({
      input: [7],
      layers: [{ type: 'linear', name: 'a', out: 5 }],
      loss: 'bce_with_logits',
    })
    const x = noise(63, 1).map((value) => 30 * value)
    const y = noise(45, 2).map((value) => Number(value > -0.2) / 2 + Number(value > 0) / 2)
    return compareTraining(place, spec, [{ samples: 9, x, y }])
  })

  for (const vocab of [23, 2051])
    test(`of ${vocab} equal logits the first counts as the answer on ${name}`, { skip }, async () => {
      const sizes = { tokens: 6, channels: 3, vocab }
      const spec = languageModel(sizes)
      const y = Int32Array.from({ length: 12 }, (_, i) => [0, 0, 3, 4, vocab - 1, 512 % vocab][i % 6] ?? 0)
      const batch: Batch = { samples: 2, x: new Int32Array(12), y }
      for (const executor of [await place.executor(spec), createReferenceExecutor(spec)]) {
        executor.loadParameters(new Float32Array(parameterCount(spec)))
        const { correct } = await executor.gradient(batch, new Float32Array(parameterCount(spec)))
        assert.equal(correct, 4)
        executor.destroy()
      }
    })
}
