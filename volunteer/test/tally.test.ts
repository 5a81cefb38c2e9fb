// What a validation block counts beside its loss, from the outputs of a model.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseModelSpec, tallyKind } from '@starling-grid/model'
import { createReferenceExecutor } from '@starling-grid/volunteer'
import { tallyOf } from '../src/graph/tally.ts'

test('the five likeliest classes, errors of values and labels that were found are counted', () => {
  const outputs = Float32Array.from([9, 8, 7, 6, 5, 4, 3, 1, 1, 1, 1, 1, 1, 9])
  assert.deepEqual(tallyOf('classes', outputs, Int32Array.of(4, 6), 2), { of: 'classes', top: 2 })
  assert.deepEqual(tallyOf('classes', outputs, Int32Array.of(5, 5), 2), { of: 'classes', top: 0 })
  assert.deepEqual(tallyOf('values', Float32Array.of(1, 2, 3, 4), Float32Array.of(1, 4, 2, 0), 2), {
    of: 'values',
    errors: 7,
    totals: [3, 4],
    squares: [5, 16],
  })
  assert.deepEqual(tallyOf('labels', Float32Array.of(1, -1, 2, -2), Float32Array.of(1, 1, 0, 0), 2), {
    of: 'labels',
    found: 1,
    wrong: 1,
    missed: 1,
  })
})

test('an executor counts over all micro-batches what its own predictions say', async () => {
  const layers = [{ type: 'linear', name: 'head', out: 2 }]
  const spec = parseModelSpec({ input: [3], loss: 'mse', layers })
  const executor = createReferenceExecutor(spec, { maxMicroBatch: 2 })
  executor.loadParameters(Float32Array.from({ length: 8 }, (_, i) => i - 3))
  const x = Float32Array.from({ length: 15 }, (_, i) => i / 4)
  const y = Float32Array.from({ length: 10 }, (_, i) => i)
  const { tally } = await executor.evaluate({ x, y, samples: 5 })
  assert.deepEqual(tally, tallyOf('values', await executor.predict(x, 5), y, 5))
  executor.destroy()
})

test('a model says which sums it has', () => {
  const spec = (loss: string, out: number) =>
    parseModelSpec({ input: [3], loss, layers: [{ type: 'linear', name: 'head', out }] })
  assert.equal(tallyKind(spec('cross_entropy', 10), [10]), 'classes')
  assert.equal(tallyKind(spec('cross_entropy', 3), [3]), undefined, 'top-5 of three is all')
  assert.equal(tallyKind(spec('mse', 3), [3]), 'values')
  assert.equal(tallyKind(spec('mse', 300), [300]), undefined, 'too many columns for a message')
  assert.equal(tallyKind(spec('bce_with_logits', 3), [3]), 'labels')
})
