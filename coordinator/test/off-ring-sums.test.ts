// What off-ring members of a ring pushed, in memory: one sum that is given, one that is open, neither longer than it is
// wanted.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  decodeVector,
  encodeVector,
  gradientForm,
  parameterLayout,
  parseModelSpec,
  readPush,
} from '@starling-grid/model'
import { processClock } from '../src/clock.ts'
import { OffRingSums } from '../src/host/off-ring-sums.ts'
import { normsOf } from '../src/parameter-server/norm-clip.ts'
import { gradientOf } from './pushed-gradient.ts'
import { turnsDuring } from './turns-during.ts'

const whole = (weight: number) => ({ gradient: weight, statistics: 1 })
const gradient = (...values: number[]) => gradientOf(Float32Array.from(values))
const floats = (bytes: Uint8Array | undefined) => bytes && [...new Float32Array(bytes.slice().buffer)]

test('pushes add up, scaled, and are served under the number of what was given, to the end', async () => {
  const sums = new OffRingSums({ total: 2, trained: 2 }, processClock)
  await sums.add(gradient(1, 2), whole(1))
  await sums.add(gradient(4, 4), whole(0.5))
  assert.equal(sums.bytes(1), undefined)
  sums.give(1)
  await sums.add(gradient(9, 9), whole(1))
  assert.deepEqual(floats(sums.bytes(1)), [3, 4])
  assert.equal(sums.bytes(2), undefined)
  sums.forget(false)
  assert.equal(sums.bytes(1), undefined)
  sums.give(2)
  assert.deepEqual(floats(sums.bytes(2)), [9, 9])
})

test('sums that no member was given yet are dropped when the run goes back', async () => {
  const sums = new OffRingSums({ total: 1, trained: 1 }, processClock)
  await sums.add(gradient(1), whole(1))
  sums.forget(true)
  await sums.add(gradient(2), whole(1))
  sums.give(1)
  assert.deepEqual(floats(sums.bytes(1)), [2])
})

test('gradients and running statistics are measured apart, as means over the targets, and weighed apart', async () => {
  const sums = new OffRingSums({ total: 3, trained: 2 }, processClock)
  const push = gradientOf(Float32Array.of(6, 8, 20), 2)
  assert.deepEqual(normsOf(push, 2), { gradient: 5, statistics: 10 })
  await sums.add(push, { gradient: 0.5, statistics: 0.25 })
  sums.give(1)
  assert.deepEqual(floats(sums.bytes(1)), [3, 4, 5])
})

test('large pushes are added in pieces', async () => {
  const total = 2 ** 20 + 5
  const layout = { total, trained: total - 3 }
  const sums = new OffRingSums(layout, processClock)
  const pushes = [1, 2].map((value) => gradientOf(new Float32Array(total).fill(value), layout.trained))
  const expected = [1, 2].map((value) => ({
    gradient: value * Math.sqrt(layout.trained),
    statistics: value * Math.sqrt(3),
  }))
  assert.deepEqual(
    pushes.map((push) => normsOf(push, 1)),
    expected,
  )
  const turns = await turnsDuring(async () => {
    for (const push of pushes) await sums.add(push, { gradient: 0.5, statistics: 1 })
  })
  assert.ok(turns > 6, `${turns} turns; one piece each leaves one or two`)
  sums.give(1)
  const sum = floats(sums.bytes(1)) ?? assert.fail()
  assert.deepEqual([sum[0], sum[layout.trained - 1], sum[layout.trained], sum.length], [1.5, 1.5, 3, total])
  assert.ok(sum.slice(0, layout.trained).every((value) => value === 1.5))
})

test('a sparse push with statistics adds the bits of its decoded vector', async () => {
  const spec = parseModelSpec({
    input: [2, 4, 4],
    layers: [
      { type: 'conv2d', name: 'conv', out: 301, kernel: 1 },
      { type: 'batchnorm2d', name: 'bn' },
      { type: 'flatten' },
      { type: 'linear', name: 'fc', out: 2 },
    ],
  })
  const layout = parameterLayout(spec)
  const { total, trained } = layout
  const values = Float32Array.from({ length: total }, (_, i) => Math.sin(i) * (i < trained ? 1 : 9))
  const body = encodeVector(values, 'sparse2')
  const decoded = new Float32Array(total)
  decodeVector(body, 'sparse2', decoded)
  const [sparse, dense] = [new OffRingSums(layout, processClock), new OffRingSums(layout, processClock)]
  for (const weights of [
    { gradient: 0.7, statistics: 1 },
    { gradient: 0.3, statistics: 0.5 },
    { gradient: 0, statistics: 0.1 },
  ]) {
    await sparse.add(readPush(body, gradientForm(layout, [], 'sparse2'), trained), weights)
    await dense.add(gradientOf(decoded, trained), weights)
  }
  sparse.give(1)
  dense.give(1)
  const sums = floats(sparse.bytes(1)) ?? assert.fail()
  assert.deepEqual(sums, floats(dense.bytes(1)))
  assert.ok(sums.slice(trained).some((value) => value !== 0) && trained % 4096 !== 0)
})
