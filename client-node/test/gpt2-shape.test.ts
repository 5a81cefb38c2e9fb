// GPT-2's real widths (768 channels, 12 heads, 50,257 classes) under the limits that every WebGPU device has: its
// tables are above a binding and its vectors above a buffer. Fewer blocks and tokens than GPT-2 has, for the
// reference's sake.
import { after, test } from 'node:test'
import { initialParameters, parameterCount, parseModelSpec, randomWords } from '@starling-grid/model'
import { createReferenceExecutor, type Executor } from '@starling-grid/volunteer'
import { type AdapterLimits, expectClose } from '@starling-grid/volunteer/testing'
import { openPlaces } from './places.ts'

const DEFAULT_LIMITS: AdapterLimits = {
  maxStorageBufferBindingSize: 2 ** 27,
  maxBufferSize: 2 ** 28,
  maxStorageBuffersPerShaderStage: 8,
}
const VOCAB = 50_257
const TOKENS = 32
const spec = parseModelSpec({
  input: [TOKENS],
  layers: [{ type: 'gpt', vocab: VOCAB, context: 1024, blocks: 2, heads: 12, channels: 768 }],
})
const TOLERANCE = 2e-5

const { places, gpu } = await openPlaces()
after(() => gpu?.close())

const word = randomWords(3, 11)
const batch = {
  samples: 1,
  x: Int32Array.from({ length: TOKENS }, (_, i) => word(i) % VOCAB),
  y: Int32Array.from({ length: TOKENS }, (_, i) => word(i + 1) % VOCAB),
}
const parameters = initialParameters(spec, 2)

async function stepOf(executor: Executor) {
  const gradient = new Float32Array(parameterCount(spec))
  executor.loadParameters(parameters)
  const { lossSum, targets } = await executor.gradient(batch, gradient)
  executor.destroy()
  return { gradient, loss: lossSum / targets }
}

let reference: ReturnType<typeof stepOf> | undefined

for (const place of places)
  test(
    `${place.name} computes a step of GPT-2's shape under WebGPU's default limits as the reference`,
    { skip: place.skip },
    async () => {
      reference ??= stepOf(createReferenceExecutor(spec))
      const [ours, wanted] = [await stepOf(await place.executor(spec, DEFAULT_LIMITS)), await reference]
      expectClose([ours.loss], [wanted.loss], TOLERANCE, 'loss')
      expectClose(ours.gradient, wanted.gradient, TOLERANCE, 'gradient')
    },
  )
