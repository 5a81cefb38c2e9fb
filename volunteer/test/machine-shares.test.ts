// How a batch is shared among the devices of one machine.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { cutByShares, decideShares } from '../src/graph/machine-shares.ts'

const speeds = fc.array(fc.double({ min: 1, max: 1e4, noNaN: true }), { minLength: 1, maxLength: 8 })
const units = fc.array(fc.integer({ min: 1, max: 64 }), { maxLength: 40 })

test('slices are together the whole batch, in order, and end where a batch may be cut', () => {
  fc.assert(
    fc.property(units, speeds, (sizes, measured) => {
      const slices = cutByShares(sizes, decideShares(undefined, measured).weights)
      assert.equal(slices.length, measured.length)
      const ends = new Set([0])
      for (const size of sizes) ends.add(Math.max(...ends) + size)
      let end = 0
      for (const { start, count } of slices) {
        assert.equal(start, end)
        end += count
        assert.ok(ends.has(end), `${end} lies inside a unit`)
      }
      assert.equal(end, Math.max(...ends))
    }),
  )
})

test('no device is without samples, unless there are fewer than devices: then the fastest have one each', () => {
  fc.assert(
    fc.property(units, speeds, (sizes, measured) => {
      const { weights } = decideShares(undefined, measured)
      const counts = cutByShares(sizes, weights).map(({ count }) => count)
      const working = counts.filter((count) => count > 0).length
      assert.equal(working, Math.min(sizes.length, measured.length))
      const slowestAtWork = Math.min(...weights.filter((_, i) => (counts[i] ?? 0) > 0))
      for (const [i, count] of counts.entries()) if (count === 0) assert.ok((weights[i] ?? 0) <= slowestAtWork)
    }),
  )
})

test('single samples are shared in proportion to speed, to within one sample', () => {
  fc.assert(
    fc.property(fc.integer({ min: 100, max: 4000 }), speeds, (samples, measured) => {
      const total = measured.reduce((sum, speed) => sum + speed, 0)
      const ones = Array.from({ length: samples }, () => 1)
      const slices = cutByShares(ones, decideShares(undefined, measured).weights)
      for (const [i, { count }] of slices.entries()) {
        const ideal = (samples * (measured[i] ?? 0)) / total
        // who would have less than one sample takes it from another
        assert.ok(Math.abs(count - ideal) <= 1 + measured.length, `${count} samples instead of ${ideal}`)
      }
    }),
  )
})

test('shares stay as they are until others save a tenth of a step', () => {
  const first = decideShares(undefined, [undefined, undefined])
  assert.deepEqual(first.weights, [0.5, 0.5])
  assert.equal(decideShares(first, [undefined, undefined]), first)
  assert.equal(decideShares(first, [100, 110]), first, 'half the batch each costs 5 % of a step')
  const other = decideShares(first, [100, 300])
  assert.deepEqual(other.weights, [0.25, 0.75])
  assert.match(other.reason, /measured 100 and 300 samples\/s: a step takes 50 % less/)
})

test('a device that is not measured yet counts as one of the others', () => {
  assert.deepEqual(decideShares(undefined, [100, undefined, 300]).weights, [1 / 6, 1 / 3, 1 / 2])
})
