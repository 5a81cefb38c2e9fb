// Shards in memory for those who want them at once: bounded, whatever readers do.
import assert from 'node:assert/strict'
import { buffer } from 'node:stream/consumers'
import { test } from 'node:test'
import { type Sha256, sha256Name } from '@starling-grid/protocol'
import { memoryBlobs } from '../src/blobs/memory.ts'
import type { Stored } from '../src/blobs/stored.ts'
import { WantedBlobs } from '../src/blobs/wanted.ts'

const SIZE = 1000
const ABSENT = sha256Name('0'.repeat(64))

/** Three blobs, of which two have room; `reads`: how often each was read where it is kept. */
async function wantedOfThree() {
  const blobs = memoryBlobs()
  const names: Sha256[] = []
  for (const byte of [1, 2, 3]) names.push(await blobs.put(new Uint8Array(SIZE).fill(byte)))
  const reads = new Map<Sha256, number>()
  const wanted = new WantedBlobs(
    {
      async read(name) {
        reads.set(name, (reads.get(name) ?? 0) + 1)
        return blobs.read(name)
      },
    },
    2 * SIZE + 1,
  )
  const read = async (name: Sha256): Promise<Stored> => {
    const stored = await wanted.read(name, SIZE)
    assert.ok(stored)
    return stored
  }
  const bytes = async (name: Sha256): Promise<number[]> => [...(await buffer((await read(name)).open(1, 2)))]
  const [first, second, third] = names as [Sha256, Sha256, Sha256]
  return { wanted, read, bytes, first, second, third, times: (name: Sha256) => reads.get(name) ?? 0 }
}

test('a shard that many ask for is read once, and each gets the bytes of its range', async () => {
  const { bytes, first, times } = await wantedOfThree()
  assert.deepEqual(await Promise.all([bytes(first), bytes(first), bytes(first)]), Array(3).fill([1, 1]))
  assert.equal(times(first), 1)
})

test('what was not wanted for longest makes room', async () => {
  const { bytes, first, second, third, times } = await wantedOfThree()
  for (const name of [first, second, first, third, first, second]) await bytes(name)
  assert.deepEqual([times(first), times(second), times(third)], [1, 2, 1])
})

test('readers that stop reading hold no more than the bound: others are served from where it is kept', async () => {
  const { read, bytes, first, second, third, times } = await wantedOfThree()
  const slow = [(await read(first)).open(0, SIZE - 1), (await read(second)).open(0, SIZE - 1)]
  assert.deepEqual(await bytes(third), [3, 3])
  await bytes(third)
  assert.equal(times(third), 2, 'it was not kept')
  for (const stream of slow) await new Promise((resolve) => stream.once('close', resolve).destroy())
  await bytes(third)
  await bytes(third)
  assert.equal(times(third), 3, 'it is kept from here')
})

test('what is not there is asked for again, and takes no room', async () => {
  const { wanted, bytes, first, second, times } = await wantedOfThree()
  assert.equal(await wanted.read(ABSENT, SIZE), undefined)
  assert.equal(await wanted.read(ABSENT, SIZE), undefined)
  assert.equal(times(ABSENT), 2)
  for (const name of [first, second, first, second]) await bytes(name)
  assert.deepEqual([times(first), times(second)], [1, 1])
})
