// What off-ring members of a ring pushed, in memory: one sum that is given, one that is open, neither longer than it is
// wanted.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { OffRingSums } from '../src/host/off-ring-sums.ts'

const whole = (weight: number) => ({ gradient: weight, statistics: 1 })
const gradient = (...values: number[]) => ({ writeTo: (vector: Float32Array) => vector.set(values) })
const floats = (bytes: Uint8Array | undefined) => bytes && [...new Float32Array(bytes.slice().buffer)]

test('pushes add up, scaled, and are served under the number of what was given, to the end', () => {
  const sums = new OffRingSums({ total: 2, trained: 2 })
  sums.add(gradient(1, 2), whole(1))
  sums.add(gradient(4, 4), whole(0.5))
  assert.equal(sums.bytes(1), undefined)
  sums.give(1)
  sums.add(gradient(9, 9), whole(1))
  assert.deepEqual(floats(sums.bytes(1)), [3, 4])
  assert.equal(sums.bytes(2), undefined)
  sums.forget(false)
  assert.equal(sums.bytes(1), undefined)
  sums.give(2)
  assert.deepEqual(floats(sums.bytes(2)), [9, 9])
})

test('sums that no member was given yet are dropped when the run goes back', () => {
  const sums = new OffRingSums({ total: 1, trained: 1 })
  sums.add(gradient(1), whole(1))
  sums.forget(true)
  sums.add(gradient(2), whole(1))
  sums.give(1)
  assert.deepEqual(floats(sums.bytes(1)), [2])
})

test('gradients and running statistics are measured apart, as means over the targets, and weighed apart', () => {
  const sums = new OffRingSums({ total: 3, trained: 2 })
  const push = gradient(6, 8, 20)
  assert.deepEqual(sums.normsOf(push, 2), { gradient: 5, statistics: 10 })
  sums.add(push, { gradient: 0.5, statistics: 0.25 })
  sums.give(1)
  assert.deepEqual(floats(sums.bytes(1)), [3, 4, 5])
})
