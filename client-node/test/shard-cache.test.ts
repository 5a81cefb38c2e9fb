// The cache of shards is bounded by its owner, whatever a coordinator offers.
import assert from 'node:assert/strict'
import { mkdtemp, readdir, rm, stat, utimes } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { digest } from '@starling-grid/protocol'
import { openShardCache } from '../src/shard-cache.ts'

const SHARD = 10_000
const MOST = 1_000_000

test('threat 26: whatever is offered, a cache holds no more than its bound, and keeps what is used', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'starling-shards-'))
  t.after(() => rm(folder, { recursive: true }))
  const cache = openShardCache({ folder, maxBytes: MOST })
  const bytes = new Uint8Array(SHARD)
  const nameOf = (i: number) => digest(Uint8Array.of(i, i >> 8))
  for (let i = 0; i < 400; i++) {
    await cache.put(nameOf(i), bytes)
    // Clocks of file systems are coarse: each shard is older than the next.
    await utimes(join(folder, nameOf(i)), i, i).catch(() => undefined)
    await cache.get(nameOf(0))
    const held = await Promise.all((await readdir(folder)).map(async (name) => (await stat(join(folder, name))).size))
    assert.ok(held.reduce((sum, size) => sum + size, 0) <= MOST, `after ${i + 1} shards`)
  }
  assert.equal((await cache.get(nameOf(0)))?.byteLength, SHARD, 'used all the time')
  assert.equal((await cache.get(nameOf(399)))?.byteLength, SHARD, 'the newest')
  assert.equal(await cache.get(nameOf(1)), undefined, 'not used since')
})

test('threat 26: what alone would fill the cache is not kept', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'starling-shards-'))
  t.after(() => rm(folder, { recursive: true }))
  const cache = openShardCache({ folder, maxBytes: MOST })
  await cache.put(digest(new Uint8Array(1)), new Uint8Array(MOST))
  assert.deepEqual(await readdir(folder), [])
})
