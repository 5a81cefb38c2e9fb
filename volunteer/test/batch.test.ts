// Batches from blocks, and what normalisation over blocks and dropout promise: results do not depend on who computes
// which block.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialParameters, parameterLayout, parseModelSpec, type ModelSpec } from '@starling-grid/model'
import {
  type BlockId,
  type JobTerms,
  sha256Name,
  trainingBlock,
  validationBlock,
  writeSafetensors,
  type ShardRef,
  isGridError,
  sha256Of,
} from '@starling-grid/protocol'
import { createReferenceExecutor } from '../src/cpu/executor.ts'
import { Batches } from '../src/data/batch.ts'
import { Shards } from '../src/data/shards.ts'
import { microBatchFor } from '../src/graph/batches.ts'
import { expectClose, noise } from '../testing/executor-suite.ts'

const INPUT = [2, 5, 3]
const SIZE = 30
const BLOCK_SAMPLES = 20
const SHARD_SAMPLES = 50 // blocks of 20, 20 and 10 samples

const CLASSES = parseModelSpec({
  input: INPUT,
  layers: [{ type: 'flatten' }, { type: 'linear', name: 'head', out: 3 }],
})

async function batchesOf({ seed = 7, spec = CLASSES } = {}): Promise<Batches> {
  const shards = new Map<string, Uint8Array>()
  const make = async (stream: number): Promise<ShardRef> => {
    const x = Uint8Array.from(noise(SHARD_SAMPLES * SIZE, stream), (value) => 128 * (value + 1))
    const y = Int32Array.from({ length: SHARD_SAMPLES }, (_, i) => i % 3)
    const bytes = writeSafetensors(
      new Map([
        ['x', { dtype: 'U8', shape: [SHARD_SAMPLES, ...INPUT], data: x }],
        ['y', { dtype: 'I32', shape: [SHARD_SAMPLES], data: new Uint8Array(y.buffer) }],
      ]),
    )
    const sha256 = await sha256Of(bytes)
    shards.set(sha256, bytes)
    return { sha256, bytes: bytes.length, samples: SHARD_SAMPLES }
  }
  const dataset = {
    name: 'noise',
    source: 'none',
    inputShape: INPUT,
    classes: 3,
    inputScale: 1 / 255,
    train: [await make(1), await make(2)],
    validation: [await make(3)],
  }
  const terms = {
    name: 'job',
    owner: 'nobody',
    purpose: '',
    model: {},
    modelHash: sha256Name('0'.repeat(64)),
    dataset,
    optimizer: { type: 'sgd', lr: 1 },
    blockSamples: BLOCK_SAMPLES,
    batchBlocks: 2,
    epochs: 2,
    seed,
  } as unknown as JobTerms
  const fetchBytes = async (name: string) => shards.get(name) ?? new Uint8Array()
  const shardsOf = new Shards(dataset, fetchBytes, { get: async () => undefined, put: async () => undefined })
  return new Batches(terms, shardsOf, spec)
}

const BLOCKS = [trainingBlock(0, 4), trainingBlock(0, 0), trainingBlock(0, 2), trainingBlock(0, 5)]

test('a batch says how many samples each block has, the short ones at the end of shards too', async () => {
  const { samples, groups } = await (await batchesOf()).of(BLOCKS)
  assert.deepEqual(groups, [20, 20, 10, 10])
  assert.equal(samples, 60)
})

for (const loss of ['mse', 'bce_with_logits'] as const)
  test(`to ${loss} a class is one value for each output, 1 at its own`, async () => {
    const { samples, y } = await (await batchesOf({ spec: { ...CLASSES, loss } })).of(BLOCKS)
    const classes = (await (await batchesOf()).of(BLOCKS)).y
    assert.ok(y instanceof Float32Array)
    assert.equal(y.length, 3 * samples)
    for (let i = 0; i < y.length; i++) assert.equal(y[i], classes[Math.floor(i / 3)] === i % 3 ? 1 : 0)
  })

test('a class beyond the outputs of the model is refused before anything is computed', async () => {
  const two = parseModelSpec({ input: INPUT, loss: 'mse', layers: [{ type: 'linear', name: 'head', out: 2 }] })
  const narrow = { ...two, layers: [{ type: 'flatten' }, ...two.layers] } as ModelSpec
  await assert.rejects(
    (await batchesOf({ spec: narrow })).of(BLOCKS),
    (error) =>
      isGridError(error) && error.code === 'dataset-unreadable' && /expected classes 0 to 1/.test(error.message),
  )
})

test('the dropout seeds of a block belong to the block, whichever member computes it', async () => {
  const batches = await batchesOf()
  const keysOf = async (...blocks: BlockId[]) => [...((await batches.of(blocks)).keys ?? [])]
  const alone = await keysOf(trainingBlock(0, 0))
  assert.deepEqual((await keysOf(...BLOCKS)).slice(20, 40), alone)
  assert.deepEqual([...((await (await batchesOf()).of([trainingBlock(0, 0)])).keys ?? [])], alone)
  assert.equal((await keysOf(validationBlock(0))).length, 20)
})

test('no two samples share a key, nor one sample in two epochs, nor one sample under two seeds', async () => {
  const batches = await batchesOf()
  const keys = [0, 1].flatMap((epoch) => [0, 1, 2, 3, 4, 5].map((index) => trainingBlock(epoch, index)))
  const drawn = [
    ...((await batches.of(keys)).keys ?? []),
    ...((await (await batchesOf({ seed: 8 })).of(BLOCKS)).keys ?? []),
  ]
  assert.equal(drawn.length, 200 + 60)
  assert.equal(new Set(drawn).size, drawn.length)
})

const MODEL = parseModelSpec({
  input: INPUT,
  layers: [
    { type: 'conv2d', name: 'conv', out: 4, kernel: 3, padding: 1, bias: false },
    { type: 'batchnorm2d', name: 'bn' },
    { type: 'relu' },
    { type: 'dropout', p: 0.25 },
    { type: 'globalavgpool' },
    { type: 'linear', name: 'head', out: 3 },
  ],
})

async function gradientOf(spec: ModelSpec, batches: Batches, blocks: readonly BlockId[]) {
  const executor = createReferenceExecutor(spec, microBatchFor(spec, BLOCK_SAMPLES))
  executor.loadParameters(initialParameters(spec, 3))
  const gradient = new Float32Array(parameterLayout(spec).total)
  return { gradient, sums: await executor.gradient(await batches.of(blocks), gradient) }
}

test('two assignments add up to the gradient of one, with batch norm and dropout too', async () => {
  const batches = await batchesOf()
  const whole = await gradientOf(MODEL, batches, BLOCKS)
  const assignments = [
    await gradientOf(MODEL, batches, BLOCKS.slice(0, 1)),
    await gradientOf(MODEL, batches, BLOCKS.slice(1).reverse()),
  ]
  const sum = whole.gradient.map((_, i) => assignments.reduce((total, { gradient }) => total + (gradient[i] ?? 0), 0))
  expectClose(sum, whole.gradient, 1e-6, 'gradient')
  expectClose([assignments.reduce((total, { sums }) => total + sums.lossSum, 0)], [whole.sums.lossSum], 1e-6, 'loss')
})

test('a block that does not fit at once is refused by a model that normalises over it', async () => {
  const executor = createReferenceExecutor(MODEL, { maxMicroBatch: BLOCK_SAMPLES - 1 })
  const batch = await (await batchesOf()).of([trainingBlock(0, 0)])
  await assert.rejects(
    executor.gradient(batch, new Float32Array(parameterLayout(MODEL).total)),
    /expected room for blocks of 20 samples.*got 19/,
  )
  assert.deepEqual(microBatchFor(MODEL, 64), { maxMicroBatch: 64 })
  assert.deepEqual(microBatchFor(parseModelSpec({ input: [1], layers: [{ type: 'relu' }] }), 64), {})
})

/** A norm alone: its input is what it measures. */
const NORM = parseModelSpec({ input: INPUT, loss: 'mse', layers: [{ type: 'batchnorm2d', name: 'bn', eps: 1e-3 }] })

test("running statistics are given each block's mean and unbiased variance, once for each target", async () => {
  const batches = await batchesOf()
  const { x, samples } = await batches.of(BLOCKS.slice(0, 1))
  const executor = createReferenceExecutor(NORM, { maxMicroBatch: samples })
  executor.loadParameters(initialParameters(NORM, 1))
  const { total, trained } = parameterLayout(NORM)
  const gradient = new Float32Array(total)
  const { targets } = await executor.gradient({ samples, x, y: new Float32Array(x.length) }, gradient)
  const measured = [0, 1].map((channel) => [...x].filter((_, i) => Math.floor(i / 15) % 2 === channel))
  const means = measured.map((values) => values.reduce((sum, value) => sum + value, 0) / values.length)
  const variances = measured.map(
    (values, c) => values.reduce((sum, value) => sum + (value - (means[c] ?? 0)) ** 2, 0) / (values.length - 1),
  )
  expectClose(
    gradient.subarray(trained).map((value) => value / targets),
    [...means, ...variances],
    1e-5,
    'statistics',
  )
})

test('one element has no variance, and its norm is the shift', async () => {
  const spec = parseModelSpec({ input: [1, 1, 1], loss: 'mse', layers: [{ type: 'batchnorm2d', name: 'bn' }] })
  const executor = createReferenceExecutor(spec)
  executor.loadParameters(initialParameters(spec, 1))
  const gradient = new Float32Array(4)
  await executor.gradient({ samples: 1, x: Float32Array.of(3), y: Float32Array.of(0) }, gradient)
  assert.deepEqual([...gradient.subarray(0, 3)], [0, 0, 3])
  assert.ok(Math.abs(gradient[3] ?? NaN) < 1e-9)
})

test('evaluation normalises by the running statistics and draws nothing', async () => {
  const spec = parseModelSpec({
    input: [1, 1, 2],
    loss: 'mse',
    layers: [
      { type: 'batchnorm2d', name: 'bn', eps: 1 },
      { type: 'dropout', p: 0.9 },
    ],
  })
  const executor = createReferenceExecutor(spec)
  executor.loadParameters(Float32Array.of(5, 7, 2, 3)) // scale, shift, mean, variance
  assert.deepEqual([...(await executor.predict(Float32Array.of(2, 6), 1))], [7, 17])
})
