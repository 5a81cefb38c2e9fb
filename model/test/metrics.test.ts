// Which metrics may judge a model: those that its validation computes.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseJob, parseModelSpec } from '../src/index.ts'
import { metricsOfModel } from '../src/metrics.ts'

const linear = (loss: string, out: number) => ({
  input: [4],
  layers: [{ type: 'linear', name: 'fc', out }],
  loss,
})

const jobWith = (model: object, stop: object): object => ({
  name: 'a job',
  owner: 'a test',
  purpose: '',
  model,
  dataset: { source: 'named', name: 'prices' },
  optimizer: { type: 'sgd', lr: 0.1 },
  blockSamples: 8,
  batchBlocks: 4,
  stop,
  seed: 1,
  mode: 'ring',
})

test('a model has the metrics of its loss and output', () => {
  const of = (loss: string, out: number) => metricsOfModel(parseModelSpec(linear(loss, out)))
  assert.deepEqual(of('cross_entropy', 10), ['loss', 'accuracy', 'top-5'])
  assert.deepEqual(of('cross_entropy', 5), ['loss', 'accuracy'], 'all of five are among the first five')
  assert.deepEqual(of('mse', 1), ['loss', 'MAE', 'R2'])
  assert.deepEqual(of('mse', 257), ['loss'], 'members count no sums of so many columns')
  assert.deepEqual(of('bce_with_logits', 3), ['loss', 'accuracy', 'F1'])
  const text = { input: [8], layers: [{ type: 'embedding', name: 'e', vocab: 7, channels: 7 }] }
  assert.deepEqual(metricsOfModel(parseModelSpec(text)), ['loss', 'accuracy', 'perplexity'])
  assert.deepEqual(metricsOfModel(parseModelSpec({ ...text, label_smoothing: 0.1 })), ['loss', 'accuracy'])
})

test('a job may name the metrics of its model, and no others', () => {
  const stop = { epochs: 3, metric: 'R2', target: 0.9, patience: 2 }
  assert.deepEqual(parseJob(jobWith(linear('mse', 2), stop)).stop, stop)
  const tuned = { base: 'smol', context: 64, lora: { rank: 4 } }
  const byPerplexity = { epochs: 1, metric: 'perplexity', target: 12 }
  assert.deepEqual(parseJob(jobWith(tuned, byPerplexity)).stop, byPerplexity)
  for (const [model, metric] of [
    [linear('mse', 2), 'accuracy'],
    [linear('bce_with_logits', 2), 'MAE'],
    [linear('cross_entropy', 3), 'top-5'],
    [tuned, 'F1'],
  ] as const)
    assert.throws(() => parseJob(jobWith(model, { epochs: 3, metric })), {
      code: 'job-invalid',
      message: new RegExp(`^stop.metric: expected one of loss, .* which this model has, got "${metric}"$`),
    })
})
