// What off-ring members of a ring pushed, in memory: one sum that is given, one that is open, neither longer than it is
// wanted.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { processClock } from '../src/clock.ts'
import { OffRingSums } from '../src/host/off-ring-sums.ts'
import { gradientOf } from './pushed-gradient.ts'
import { turnsDuring } from './turns-during.ts'

const whole = (weight: number) => ({ gradient: weight, statistics: 1 })
const gradient = (...values: number[]) => gradientOf((vector) => vector.set(values))
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
  const push = gradient(6, 8, 20)
  assert.deepEqual(await sums.normsOf(push, 2), { gradient: 5, statistics: 10 })
  await sums.add(push, { gradient: 0.5, statistics: 0.25 })
  sums.give(1)
  assert.deepEqual(floats(sums.bytes(1)), [3, 4, 5])
})

test('a large push is measured and added in pieces, and several at once do not mix', async () => {
  const total = 2 ** 20 + 5
  const layout = { total, trained: total - 3 }
  const sums = new OffRingSums(layout, processClock)
  const pushes = [1, 2].map((value) => gradientOf((vector) => vector.fill(value)))
  const turns = await turnsDuring(async () => {
    const norms = await Promise.all(pushes.map((push) => sums.normsOf(push, 1)))
    const expected = [1, 2].map((value) => ({
      gradient: value * Math.sqrt(layout.trained),
      statistics: value * Math.sqrt(3),
    }))
    assert.deepEqual(norms, expected)
    await Promise.all(pushes.map((push) => sums.add(push, { gradient: 0.5, statistics: 1 })))
  })
  assert.ok(turns > 12, `${turns} turns; one piece each leaves one or two`)
  sums.give(1)
  const sum = floats(sums.bytes(1)) ?? assert.fail()
  assert.deepEqual([sum[0], sum[layout.trained - 1], sum[layout.trained], sum.length], [1.5, 1.5, 3, total])
  assert.ok(sum.slice(0, layout.trained).every((value) => value === 1.5))
})
