// One number that is not finite is found wherever it lies, and none outside the range.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { allFinite } from '../src/floats.ts'

test('a number that is not finite is found at every place of a range, and not beside it', () => {
  for (let length = 0; length <= 11; length++)
    for (let start = 0; start <= length; start++)
      for (let at = 0; at < length; at++)
        for (const value of [NaN, Infinity, -Infinity, 3e38]) {
          const values = new Float32Array(length).fill(1)
          values[at] = value
          const isInside = at >= start && at < length - 1 && !Number.isFinite(value)
          assert.equal(
            allFinite(values, { start, end: length - 1 }),
            !isInside,
            `${value} at ${at} of ${start}–${length}`,
          )
        }
})
