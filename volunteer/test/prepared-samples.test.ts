// Samples of imported datasets as the model takes them: types of inputs and targets, normalisation, augmentation.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseModelSpec } from '@starling-grid/model'
import {
  type Augment,
  type BlockId,
  type DatasetManifest,
  isGridError,
  type JobTerms,
  requirePossible,
  sha256Name,
  type ShardRef,
  type StoredTensor,
  trainingBlock,
  validationBlock,
  writeSafetensors,
  sha256Of,
} from '@starling-grid/protocol'
import { Batches } from '../src/data/batch.ts'
import { Shards } from '../src/data/shards.ts'

const SAMPLES = 40
const IMAGE = [3, 6, 8]
const PIXELS = 48

/** Every pixel of an image tells where it was. */
const images = Uint8Array.from({ length: SAMPLES * 3 * PIXELS }, (_, i) => 1 + ((i * 7) % 251))
const imageTensor: StoredTensor = { dtype: 'U8', shape: [SAMPLES, ...IMAGE], data: images }

function classesTensor(): StoredTensor {
  const data = new Uint8Array(Int32Array.from({ length: SAMPLES }, (_, i) => i % 2).buffer)
  return { dtype: 'I32', shape: [SAMPLES], data }
}

async function batchesOf(
  tensors: { readonly x: StoredTensor; readonly y: StoredTensor },
  form: Partial<DatasetManifest>,
  { loss = 'cross_entropy', out = 2, seed = 7 } = {},
): Promise<Batches> {
  const bytes = writeSafetensors(new Map(Object.entries(tensors)))
  const shard: ShardRef = { sha256: await sha256Of(bytes), bytes: bytes.length, samples: SAMPLES }
  const dataset: DatasetManifest = {
    name: 'made',
    source: 'a test',
    inputShape: IMAGE,
    classes: 2,
    inputScale: 1 / 255,
    train: [shard],
    validation: [shard],
    ...form,
  }
  requirePossible(dataset, 10)
  const spec = parseModelSpec({
    input: dataset.inputShape,
    loss,
    layers: [{ type: 'flatten' }, { type: 'linear', name: 'head', out }],
  })
  const terms = { dataset, blockSamples: 10, seed } as unknown as JobTerms
  const cache = { get: async () => undefined, put: async () => undefined }
  return new Batches(terms, new Shards(dataset, async () => bytes, cache), spec)
}

const augmented = async (augment: Augment, options: { form?: Partial<DatasetManifest>; seed?: number } = {}) =>
  batchesOf({ x: imageTensor, y: classesTensor() }, { augment, ...options.form }, options)

const FIRST = [trainingBlock(0, 0)]

function f32(values: Float32Array, shape: number[]): StoredTensor {
  return { dtype: 'F32', shape, data: new Uint8Array(values.buffer) }
}

test('numbers are normalised column by column, and values are their targets', async () => {
  const x = Float32Array.from({ length: SAMPLES * 3 }, (_, i) => (i % 3) * 100 + Math.floor(i / 3))
  const y = Float32Array.from({ length: SAMPLES * 2 }, (_, i) => i / 4)
  const batches = await batchesOf(
    { x: f32(x, [SAMPLES, 3]), y: f32(y, [SAMPLES, 2]) },
    {
      inputShape: [3],
      inputType: 'F32',
      target: 'values',
      inputScale: 1,
      normalize: { mean: [0, 100, 200], deviation: [1, 2, 4] },
    },
    { loss: 'mse' },
  )
  const batch = await batches.of([trainingBlock(0, 1)])
  assert.deepEqual([...batch.x.subarray(0, 6)], [10, 5, 2.5, 11, 5.5, 2.75])
  assert.deepEqual([...batch.y], [...y.subarray(20, 40)])
})

test('labels are a 0 or 1 for each output', async () => {
  const labels = Uint8Array.from({ length: SAMPLES * 3 }, (_, i) => Number(i % 4 === 0))
  const batches = await batchesOf(
    { x: imageTensor, y: { dtype: 'U8', shape: [SAMPLES, 3], data: labels } },
    { target: 'labels', classes: 3 },
    { loss: 'bce_with_logits', out: 3 },
  )
  const { y } = await batches.of(FIRST)
  assert.ok(y instanceof Float32Array)
  assert.deepEqual([...y], [...labels.subarray(0, 30)])
})

test('a shard of other types than the manifest says is refused by name', async () => {
  const batches = await batchesOf(
    { x: imageTensor, y: classesTensor() },
    { target: 'labels', classes: 1 },
    { out: 1, loss: 'mse' },
  )
  await assert.rejects(
    batches.of(FIRST),
    (error) =>
      isGridError(error) && error.code === 'shard-corrupt' && /expected y of 40 U8.*got 40 I32/.test(error.message),
  )
})

test('an augmented block is the same for every member and beside any blocks, and another in each epoch', async () => {
  const augment: Augment = { shift: 2, flip: 'both', color: 0.4 }
  const of = async (blocks: readonly BlockId[], seed = 7) => (await (await augmented(augment, { seed })).of(blocks)).x
  const alone = await of(FIRST)
  const beside = await of([trainingBlock(0, 3), ...FIRST])
  assert.deepEqual(beside.subarray(10 * 3 * PIXELS), alone)
  assert.notDeepEqual(await of([trainingBlock(1, 0)]), alone)
  assert.notDeepEqual(await of(FIRST, 8), alone)
})

/** A change of the arithmetic changes these bits, and then volunteers of two versions do not agree on a step. */
test('augmentation computes these bits', async () => {
  const { x } = await (await augmented({ shift: 2, flip: 'both', color: 0.4 })).of(FIRST)
  const digest = await sha256Of(new Uint8Array(x.buffer))
  assert.equal(digest, sha256Name('b3c64d40c253aaeac4523a162dc2a13c39f4c94948b9c2634697db7e766ba8cf'))
})

test('validation is not augmented', async () => {
  const plain = await (await batchesOf({ x: imageTensor, y: classesTensor() }, {})).of([validationBlock(2)])
  const { x } = await (await augmented({ shift: 2, flip: 'both', color: 0.4 })).of([validationBlock(2)])
  assert.deepEqual(x, plain.x)
})

test('a shift moves whole images, and what enters is black', async () => {
  const { x } = await (await augmented({ shift: 2 })).of(FIRST)
  const moves = new Set<string>()
  for (let sample = 0; sample < 10; sample++) {
    const found = everyMove(2).find(([down, right]) => isMoved(x, sample, { down, right }))
    assert.ok(found, `sample ${sample} is no shift of its image`)
    moves.add(found.join())
  }
  assert.ok(moves.size > 4, `${moves.size} different shifts of 10 images`)
})

function everyMove(most: number): [number, number][] {
  const way = Array.from({ length: 2 * most + 1 }, (_, i) => i - most)
  return way.flatMap((down) => way.map((right): [number, number] => [down, right]))
}

function isMoved(x: ArrayLike<number>, sample: number, { down, right }: { down: number; right: number }): boolean {
  for (let channel = 0; channel < 3; channel++)
    for (let row = 0; row < 6; row++)
      for (let column = 0; column < 8; column++) {
        const at = (sample * 3 + channel) * PIXELS
        const [i, j] = [row + down, column + right]
        const wanted = i >= 0 && i < 6 && j >= 0 && j < 8 ? (images[at + i * 8 + j] ?? 0) / 255 : 0
        if (Math.abs((x[at + row * 8 + column] ?? 0) - wanted) > 1e-6) return false
      }
  return true
}

test('a horizontal flip mirrors about half of the images', async () => {
  const { x, samples } = await (
    await augmented({ flip: 'horizontal' })
  ).of([0, 1, 2, 3].map((i) => trainingBlock(0, i)))
  let mirrored = 0
  for (let sample = 0; sample < samples; sample++) {
    const at = sample * 3 * PIXELS
    const [first, last] = [(images[at] ?? 0) / 255, (images[at + 7] ?? 0) / 255]
    const isMirrored = Math.abs((x[at] ?? 0) - last) < 1e-6
    assert.ok(isMirrored || Math.abs((x[at] ?? 0) - first) < 1e-6)
    mirrored += Number(isMirrored)
  }
  assert.ok(mirrored > 10 && mirrored < 30, `${mirrored} of 40`)
})

test('a crop takes a part of the image, and validation the middle', async () => {
  const form = { inputShape: [3, 4, 4], storedShape: IMAGE }
  const batches = await augmented({ crop: [4, 4] }, { form })
  const { x } = await batches.of([validationBlock(0)])
  assert.equal(x.length, 10 * 3 * 16)
  const middle = [0, 1, 2, 3].map((column) => (images[8 + 2 + column] ?? 0) / 255)
  for (const [i, value] of middle.entries()) assert.ok(Math.abs((x[i] ?? 0) - value) < 1e-6)
  assert.notDeepEqual((await batches.of(FIRST)).x, x)
})

test('colours stay within 0 and 1, and change', async () => {
  const { x } = await (await augmented({ color: 1 })).of(FIRST)
  const plain = await (await batchesOf({ x: imageTensor, y: classesTensor() }, {})).of(FIRST)
  assert.ok(x.every((value) => value >= 0 && value <= 1))
  assert.notDeepEqual(x, plain.x)
})

test('a manifest whose augmentation would read outside its images is refused', () => {
  const shard = { sha256: sha256Name('0'.repeat(64)), bytes: 1e6, samples: 1 }
  const manifest = {
    name: '',
    source: '',
    inputShape: IMAGE,
    classes: 2,
    inputScale: 1,
    train: [shard],
    validation: [],
  }
  const refused = (form: Partial<DatasetManifest>, pattern: RegExp) =>
    assert.throws(
      () => requirePossible({ ...manifest, ...form }, 1),
      (error) => isGridError(error) && error.code === 'shard-corrupt' && pattern.test(error.message),
    )
  refused({ augment: { crop: [7, 4] }, storedShape: IMAGE, inputShape: [3, 7, 4] }, /got a crop of 7 × 4/)
  refused({ augment: { crop: [4, 4] } }, /cut to/)
  refused({ storedShape: [3, 9, 9] }, /cut to/)
  refused({ augment: { flip: 'both' }, inputShape: [144] }, /to augment/)
  refused({ normalize: { mean: [0], deviation: [1] } }, /for each of 3 channels/)
  refused({ normalize: { mean: [0, 0, 0], deviation: [1, 0, 1] } }, /above 0/)
})
