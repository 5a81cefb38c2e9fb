import assert from 'node:assert/strict'
import { test } from 'node:test'
import { trainingWindows, validationWindows, windowPlaces } from '@starling-grid/protocol'
import type { TextShard } from '../src/windows.ts'

const SHARD: TextShard = { tokens: 10_007, context: 16, samples: 624 }
const all = { start: 0, samples: SHARD.samples }

test('every window and its last target lie in the shard', () => {
  for (const shard of [SHARD, { tokens: 17, context: 16, samples: 1 }, { tokens: 40, context: 8, samples: 100 }])
    for (const starts of [
      trainingWindows(shard, { start: 0, samples: shard.samples }, { seed: 3, epoch: 5 }),
      validationWindows(shard, { start: 0, samples: shard.samples }),
    ])
      for (const start of starts) assert.ok(start >= 0 && start + shard.context + 1 <= shard.tokens, `${start}`)
})

test('an epoch trains on the whole text, however blocks are assigned', () => {
  const starts = trainingWindows(SHARD, all, { seed: 3, epoch: 0 })
  const sorted = [...starts].sort((a, b) => a - b)
  for (const [i, start] of sorted.entries())
    if (i > 0) assert.ok(start - (sorted[i - 1] ?? 0) <= SHARD.context + 1, `${start}`)
  const inBlocks = Array.from({ length: SHARD.samples / 3 }, (_, block) =>
    trainingWindows(SHARD, { start: 3 * block, samples: 3 }, { seed: 3, epoch: 0 }),
  ).flat()
  assert.deepEqual(inBlocks, starts)
})

test('epochs and seeds see different windows, the same ones the same', () => {
  const of = (seed: number, epoch: number) => trainingWindows(SHARD, all, { seed, epoch })
  assert.deepEqual(of(1, 0), of(1, 0))
  for (const other of [of(1, 1), of(2, 0)]) {
    const seen = new Set(of(1, 0))
    assert.ok(other.filter((start) => seen.has(start)).length < SHARD.samples / 4)
  }
})

test('samples that follow each other are no one passage', () => {
  const starts = trainingWindows(SHARD, all, { seed: 1, epoch: 0 })
  for (let i = 1; i < starts.length; i++)
    assert.ok(Math.abs((starts[i] ?? 0) - (starts[i - 1] ?? 0)) > 10 * SHARD.context)
})

test('validation windows never change and are spread over the shard', () => {
  const starts = validationWindows(SHARD, all)
  assert.deepEqual(validationWindows(SHARD, { start: 100, samples: 2 }), starts.slice(100, 102))
  assert.equal(starts[0], 0)
  assert.ok((starts.at(-1) ?? 0) > windowPlaces(SHARD) - 2 * SHARD.context)
})
