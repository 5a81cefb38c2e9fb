// Shards from a cache, a proxy or a coordinator that lies: only bytes of the right SHA-256 are used.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type DatasetManifest, digest, type Sha256, type ShardRef, writeSafetensors } from '@starling-grid/protocol'
import { Shards } from '../src/data/shards.ts'

const SAMPLES = 2
const shardOf = (first: number): Uint8Array =>
  writeSafetensors(
    new Map([
      ['x', { dtype: 'U8', shape: [SAMPLES, 2], data: Uint8Array.of(first, 1, 2, 3) }],
      ['y', { dtype: 'I32', shape: [SAMPLES], data: new Uint8Array(Int32Array.of(0, 1).buffer) }],
    ]),
  )
const RIGHT = shardOf(7)
/** of the right form and of the right length: the SHA-256 alone tells */
const WRONG = shardOf(8)
const REF: ShardRef = { sha256: digest(RIGHT), bytes: RIGHT.byteLength, samples: SAMPLES }
const MANIFEST: DatasetManifest = {
  name: 'two',
  source: 'a test',
  inputShape: [2],
  classes: 2,
  inputScale: 1,
  train: [REF],
  validation: [],
}

function shardsWith(cached: Uint8Array | undefined, answers: readonly Uint8Array[]) {
  const cache = new Map<Sha256, Uint8Array>(cached === undefined ? [] : [[REF.sha256, cached]])
  const left = [...answers]
  let fetched = 0
  const fetchBytes = async (): Promise<Uint8Array> => {
    fetched++
    return left.shift() ?? assert.fail('one request too many')
  }
  const shards = new Shards(MANIFEST, fetchBytes, {
    get: async (name) => cache.get(name),
    put: async (name, bytes) => void cache.set(name, bytes),
  })
  return { shards, cache, fetched: () => fetched }
}

const firstOf = async (shards: Shards): Promise<unknown> => {
  const shard = await shards.get(REF)
  return 'x' in shard ? shard.x[0] : undefined
}

test('threat 50: a cache that holds other bytes under the name of a shard is passed over and mended', async () => {
  for (const cached of [WRONG, RIGHT.subarray(0, 40), new Uint8Array(0)]) {
    const { shards, cache, fetched } = shardsWith(cached, [RIGHT])
    assert.equal(await firstOf(shards), 7)
    assert.equal(fetched(), 1)
    assert.deepEqual(cache.get(REF.sha256), RIGHT)
  }
})

test('threat 50: other bytes on the way are refused, not kept, and asked for again', async () => {
  const { shards, cache, fetched } = shardsWith(undefined, [WRONG, RIGHT])
  await assert.rejects(shards.get(REF), { code: 'shard-corrupt' })
  assert.equal(cache.size, 0)
  assert.equal(await firstOf(shards), 7)
  assert.equal(fetched(), 2)
})

test('a cache that holds the right bytes saves the download', async () => {
  const { shards, fetched } = shardsWith(RIGHT, [])
  assert.equal(await firstOf(shards), 7)
  assert.equal(fetched(), 0)
})
