// What a volunteer keeps between its visits: it comes back as it was written, or not at all.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { genesis, jobId, type Sha256, sha256Name, systemClock, trainingBlock } from '@starling-grid/protocol'
import type { ShardCache } from '@starling-grid/volunteer'
import { type Kept, KeptState } from '../src/recovery/kept-state.ts'

class MemoryCache implements ShardCache {
  readonly kept = new Map<Sha256, Uint8Array>()
  full = false

  async get(name: Sha256): Promise<Uint8Array | undefined> {
    return this.kept.get(name)
  }

  async put(name: Sha256, bytes: Uint8Array): Promise<void> {
    if (this.full) throw new Error('no space')
    this.kept.set(name, bytes)
  }
}

const bytes = Uint8Array.from({ length: 1000 }, (_, i) => i)
const proof = {
  v: 1,
  generation: 1,
  modeEpoch: 0,
  kind: 'ring',
  blocks: [trainingBlock(0, 3)],
  samples: 4,
  targets: 4,
  lossSum: 9,
  correct: 1,
  gradDigest: sha256Name('ab'.repeat(32)),
} as const
const state: Kept = { state: bytes, claim: { base: genesis(jobId('one'), 'model', 1), records: [proof] } }
const [one, other] = ['one', 'other'].map(jobId)
const keptBy = (cache: ShardCache, job = one): KeptState => new KeptState(cache, job ?? jobId('one'), systemClock)

test('a state comes back as it was, to the next process of the same job and to no other', async () => {
  const cache = new MemoryCache()
  await keptBy(cache).keep(state)
  assert.deepEqual(await keptBy(cache).read(), state)
  assert.equal(await keptBy(cache, other).read(), undefined)
})

test('the newest takes the place of the one before', async () => {
  const cache = new MemoryCache()
  await keptBy(cache).keep(state)
  await keptBy(cache).keep({ ...state, state: bytes.subarray(1) })
  assert.deepEqual([(await keptBy(cache).read())?.state.byteLength, cache.kept.size], [999, 1])
})

test('bytes that were damaged or cut are nothing', async () => {
  for (const damage of [
    (kept: Uint8Array) => kept.fill(7, 500, 501),
    (kept: Uint8Array) => kept.subarray(0, 900),
    (kept: Uint8Array) => kept.subarray(0, 10),
  ]) {
    const cache = new MemoryCache()
    await keptBy(cache).keep(state)
    for (const [name, kept] of cache.kept) cache.kept.set(name, damage(kept))
    assert.equal(await keptBy(cache).read(), undefined)
  }
})

test('a full cache costs nothing but the download', async () => {
  const cache = new MemoryCache()
  cache.full = true
  await keptBy(cache).keep(state)
  assert.equal(await keptBy(cache).read(), undefined)
})

test('writes come once a minute at most', async () => {
  const kept = keptBy(new MemoryCache())
  assert.equal(kept.due, true)
  await kept.keep(state)
  assert.equal(kept.due, false)
})
