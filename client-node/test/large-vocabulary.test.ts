// Models whose vectors fit no buffer and whose tables fit no binding: with limits so low that a small model meets them,
// plans in many segments, chunks and pieces give what the plain reference gives.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import {
  gpt,
  initialParameters,
  outputShape,
  type ModelSpec,
  parameterCount,
  parameterLayout,
  parseModelSpec,
  randomWords,
} from '@starling-grid/model'
import { lastSize } from '@starling-grid/shaders'
import { createReferenceExecutor } from '@starling-grid/volunteer'
import { type AdapterLimits, type Batch, expectClose, noise } from '@starling-grid/volunteer/testing'
import { openPlaces } from './places.ts'

const { places: plain, gpu } = await openPlaces()
/** What a GPU would be given, too: sums over rows by workgroups, which take a software adapter long to compile. */
const places = [...plain, ...plain.flatMap((place) => place.asGpu ?? [])]
after(() => gpu?.close())

const TOLERANCE = 1e-5
const SAMPLES = 5
const LOW: AdapterLimits = {
  maxStorageBufferBindingSize: 8 * 1024,
  maxBufferSize: 16 * 1024,
  maxStorageBuffersPerShaderStage: 8,
}
/** A large gradient is written and not added to in runs that begin a sum: each piece of the classes by itself. */
const HIGHER: AdapterLimits = { ...LOW, maxStorageBufferBindingSize: 320 * 1024, maxBufferSize: 400 * 1024 }

const tied = gpt({ blocks: 1, heads: 2, channels: 20, context: 6, vocab: 301 })
const apart = (more: object): ModelSpec =>
  parseModelSpec({
    input: [4],
    layers: [
      { type: 'embedding', name: 'tokens', vocab: 203, channels: 12 },
      { type: 'dropout', p: 0.3 },
      { type: 'layernorm', name: 'norm' },
      { type: 'linear', name: 'head', out: 203 },
    ],
    ...more,
  })
const MODELS: readonly (readonly [string, ModelSpec, AdapterLimits])[] = [
  ['a head tied to its table', tied, LOW],
  ['a head with a bias after dropout', apart({}), LOW],
  ['labels smoothed and ignored', apart({ label_smoothing: 0.2, ignore_index: -100 }), LOW],
  ['a piece that writes its gradient', gpt({ blocks: 1, heads: 2, channels: 64, context: 6, vocab: 1300 }), HIGHER],
]

function batchOf(spec: ModelSpec, vocab: number): Batch {
  const word = randomWords(5, 7)
  const tokens = spec.input[0] ?? 1
  const id = (i: number) => (word(i) % 3 === 0 ? word(i + 1) % vocab : word(i) % 4)
  const x = Int32Array.from({ length: SAMPLES * tokens }, (_, i) => id(2 * i))
  const y = Int32Array.from(x, (_, i) => (spec.ignore_index !== undefined && i % 3 === 1 ? -100 : id(2 * i + 1)))
  return { samples: SAMPLES, x, y }
}

/** Every fourth label is what the model says, so that right answers lie in pieces behind the first. */
function partlyRight(y: ArrayLike<number>, output: Float32Array, vocab: number): Int32Array {
  return Int32Array.from(y, (label, i) => {
    const row = output.subarray(i * vocab, (i + 1) * vocab)
    return label < 0 || i % 4 > 0 ? label : row.indexOf(Math.max(...row))
  })
}

/** The last parameters first, as backward finishes them. */
function twoRanges(spec: ModelSpec): readonly { readonly start: number; readonly end: number }[] {
  const { entries, total } = parameterLayout(spec)
  const middle = entries[1]?.offset ?? 0
  return [
    { start: middle, end: total },
    { start: 0, end: middle },
  ]
}

for (const [what, spec, limits] of MODELS)
  for (const place of spec === tied || limits === HIGHER ? plain : places)
    test(
      `${place.name} trains, evaluates and predicts in pieces of the classes as the reference: ${what}`,
      {
        skip: place.skip,
      },
      async () => {
        const [ours, reference] = [await place.executor(spec, limits), createReferenceExecutor(spec)]
        const vocab = lastSize(outputShape(spec))
        const parameters = initialParameters(spec, 4).map((value, i) => 5 * value + (noise(1, i)[0] ?? 0) / 50)
        reference.loadParameters(parameters)
        const batch = batchOf(spec, vocab)
        const judged = { ...batch, y: partlyRight(batch.y, await reference.predict(batch.x, SAMPLES), vocab) }
        const found = []
        for (const executor of [ours, reference]) {
          executor.loadParameters(parameters)
          const gradient = new Float32Array(parameterCount(spec)).fill(7)
          const sums = await executor.gradient(batch, gradient)
          const evaluated = await executor.evaluate(judged)
          found.push({ gradient, sums, evaluated, output: await executor.predict(batch.x, SAMPLES) })
        }
        const [own, wanted] = found
        assert.ok(own && wanted)
        expectClose([own.sums.lossSum], [wanted.sums.lossSum], TOLERANCE, 'loss')
        expectClose([own.evaluated.lossSum], [wanted.evaluated.lossSum], TOLERANCE, 'loss without dropout')
        assert.deepEqual(
          [own.sums.correct, own.sums.targets, own.evaluated.correct],
          [wanted.sums.correct, wanted.sums.targets, wanted.evaluated.correct],
        )
        assert.ok(wanted.evaluated.correct >= 3, 'some answers are right')
        expectClose(own.gradient, wanted.gradient, TOLERANCE, 'gradient')
        expectClose(own.output, wanted.output, TOLERANCE, 'output')
        const again = new Float32Array(own.gradient.length)
        const told: number[] = []
        await ours.gradient(batch, again, { ranges: twoRanges(spec), onFinal: (index) => void told.push(index) })
        assert.deepEqual(again, own.gradient, 'the same batch gives the same bits, also in early pieces')
        assert.deepEqual(told, [0, 1])
        ours.destroy()
      },
    )
