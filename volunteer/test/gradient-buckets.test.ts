// The cut of a gradient into what enters the ring at once.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { lenet5, mlp, parameterLayout, parseModelSpec } from '@starling-grid/model'
import { versionId } from '@starling-grid/protocol'
import { mayContributeEarly, type StepInFlight } from '../src/member/assignment.ts'
import { gradientBuckets, type GradientLayout } from '../src/reduce/gradient-buckets.ts'

const MIB = 256 * 1024
function layoutOf(lengths: readonly number[], trained = lengths.length): GradientLayout {
  let total = 0
  const entries = lengths.map((length) => {
    total += length
    return { offset: total - length }
  })
  return { entries, total, trained: entries[trained]?.offset ?? total }
}

test('a model below one bucket is one range, as if there were no buckets', () => {
  const layout = parameterLayout(lenet5())
  assert.deepEqual(gradientBuckets(layout), [{ start: 0, end: layout.total }])
})

test('buckets are whole parameters from the last to the first, and make up the gradient', () => {
  const layout = parameterLayout(mlp({ input: [1, 28, 28], hidden: [1024, 1024, 512], classes: 10 }))
  const buckets = gradientBuckets(layout)
  assert.ok(buckets.length > 1 && buckets.length <= 8)
  assert.equal(buckets[0]?.end, layout.total)
  assert.equal(buckets.at(-1)?.start, 0)
  for (const [i, { start, end }] of buckets.entries()) {
    assert.ok(layout.entries.some(({ offset }) => offset === start))
    if (i > 0) assert.equal(end, buckets[i - 1]?.start)
    if (i < buckets.length - 1) assert.ok(end - start >= MIB)
  }
})

test('small tensors are fused, a crumb at the end too, and there are never more than eight', () => {
  assert.equal(gradientBuckets(layoutOf(Array.from({ length: 1000 }, () => 5000))).length, 8)
  assert.deepEqual(gradientBuckets(layoutOf([1000, MIB])), [{ start: 0, end: 1000 + MIB }])
  assert.deepEqual(gradientBuckets(layoutOf([50_000, MIB])), [
    { start: 50_000, end: 50_000 + MIB },
    { start: 0, end: 50_000 },
  ])
  for (let count = 1; count < 60; count++)
    assert.ok(gradientBuckets(layoutOf(Array.from({ length: count }, (_, i) => 40_000 + 1000 * i))).length <= 8)
})

test('statistics come last, whatever lies before them', () => {
  const layout = layoutOf([MIB, MIB, 64, 64], 2)
  assert.deepEqual(gradientBuckets(layout), [
    { start: MIB, end: 2 * MIB },
    { start: 0, end: MIB },
    { start: 2 * MIB, end: 2 * MIB + 128 },
  ])
  const normed = parameterLayout(
    parseModelSpec({
      input: [1, 8, 8],
      layers: [
        { type: 'conv2d', name: 'a', out: 4, kernel: 3 },
        { type: 'batchnorm2d', name: 'n' },
        { type: 'flatten' },
        { type: 'linear', name: 'b', out: 2 },
      ],
    }),
  )
  assert.deepEqual(gradientBuckets(normed), [{ start: 0, end: normed.total }])
})

test('a bucket enters the ring only in the promised generation, from the version before it (R9)', () => {
  const at5 = { step: 5, todo: [], held: new Set<number>() }
  const core: StepInFlight = {
    promised: 3,
    version: { v: 4, id: versionId('f'.repeat(64)) },
    ring: { generation: 3, stage: 'running', flight: { ...at5, stage: 'computing' } },
  }
  const { ring } = core
  assert.ok(ring?.flight !== undefined)
  assert.equal(mayContributeEarly(core, { generation: 3, step: 5 }), true)
  const refused: readonly StepInFlight[] = [
    { ...core, ring: undefined },
    { ...core, promised: 4 },
    { ...core, ring: { ...ring, generation: 4 } },
    { ...core, ring: { ...ring, stage: 'broken' } },
    { ...core, ring: { ...ring, stage: 'ready' } },
    { ...core, ring: { ...ring, flight: undefined } },
    { ...core, version: undefined },
    { ...core, version: { v: 5, id: versionId('f'.repeat(64)) } },
    { ...core, ring: { ...ring, flight: { ...at5, step: 6, stage: 'computing' } } },
    { ...core, ring: { ...ring, flight: { ...at5, stage: 'reducing' } } },
  ]
  for (const other of refused) assert.equal(mayContributeEarly(other, { generation: 3, step: 5 }), false)
})
