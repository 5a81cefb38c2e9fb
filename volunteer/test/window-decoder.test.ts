// What of a text a model sees that computes whole windows.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { contextOf } from '../src/graph/window-decoder.ts'

test('the model sees the last tokens, and where they end', () => {
  assert.deepEqual(contextOf([5, 6], 4), { window: Int32Array.of(5, 6, 0, 0), last: 1 })
  assert.deepEqual(contextOf([1, 2, 3, 4, 5, 6], 4), { window: Int32Array.of(3, 4, 5, 6), last: 3 })
})
