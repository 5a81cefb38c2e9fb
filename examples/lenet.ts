// LeNet-5 learns MNIST's digits in a loop of its own, in several processes:
//   node bin/starling.mjs launch -n 4 examples/lenet.ts --data FOLDER
// Five lines make it distributed: those with `group` and `distributedOptimizer`.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { gunzipSync } from 'node:zlib'
import {
  type Batch,
  broadcastParameters,
  distributedOptimizer,
  init,
  lenet5,
  type LoopModel,
  openModel,
} from '@starling-grid/client'

const PIXELS = 28 * 28
/** bytes before the first image, and before the first label */
const [IMAGES_AT, LABELS_AT] = [16, 8]

interface Digits {
  readonly images: Uint8Array
  readonly labels: Uint8Array
}

async function readDigits(folder: string, name: 'train' | 't10k'): Promise<Digits> {
  const read = async (file: string): Promise<Uint8Array> => gunzipSync(await readFile(join(folder, file)))
  const images = (await read(`${name}-images-idx3-ubyte.gz`)).subarray(IMAGES_AT)
  return { images, labels: (await read(`${name}-labels-idx1-ubyte.gz`)).subarray(LABELS_AT) }
}

function batchOf({ images, labels }: Digits, samples: readonly number[]): Batch {
  const x = new Float32Array(samples.length * PIXELS)
  for (const [i, sample] of samples.entries())
    for (let p = 0; p < PIXELS; p++) x[i * PIXELS + p] = (images[sample * PIXELS + p] ?? 0) / 255
  return { samples: samples.length, x, y: Int32Array.from(samples, (sample) => labels[sample] ?? 0) }
}

/** The accuracy on all test digits, a thousand at a time. */
async function accuracyOf(model: LoopModel, test: Digits): Promise<number> {
  let right = 0
  for (let start = 0; start < test.labels.length; start += 1000) {
    const samples = Array.from({ length: 1000 }, (_, i) => start + i)
    right += 1000 * (await model.evaluate(batchOf(test, samples))).accuracy
  }
  return right / test.labels.length
}

const { values } = parseArgs({
  options: {
    data: { type: 'string', default: '../shared/data/mnist' },
    steps: { type: 'string', default: '600' },
    batch: { type: 'string', default: '64' },
    executor: { type: 'string', default: 'webgpu' },
  },
})
const [steps, batch] = [Number(values.steps), Number(values.batch)]
const executor = values.executor === 'reference' ? 'reference' : 'webgpu'

const group = await init()
const train = await readDigits(values.data, 'train')
const model = await openModel(lenet5(), { seed: group.rank, executor })
await broadcastParameters(group, model.parameters)
const optimizer = distributedOptimizer(group, model.optimizer({ type: 'adam', lr: 1e-3 }))

if (group.rank === 0) console.log(`${group.size} ranks on ${model.adapter.name}, ${batch} digits each`)
for (let step = 0; step < steps; step++) {
  const first = (step * group.size + group.rank) * batch // each rank its own digits
  const samples = Array.from({ length: batch }, (_, i) => (first + i) % train.labels.length)
  const { loss, gradient } = await model.gradient(batchOf(train, samples))
  await optimizer.step(gradient)
  if (group.rank === 0 && (step + 1) % 50 === 0) console.log(`step ${step + 1}: loss ${loss.toFixed(4)}`)
}
if (group.rank === 0) {
  const accuracy = await accuracyOf(model, await readDigits(values.data, 't10k'))
  console.log(`accuracy ${(100 * accuracy).toFixed(2)} %`)
}
await group.barrier()
await group.close()
model.close()
