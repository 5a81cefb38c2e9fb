// The schedule on its own: chunks tile the vector, and each hop of one member is the next hop of its successor.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  completedSegment,
  cutIntoChunks,
  evenBuckets,
  hops,
  manifestHop,
  ownSegment,
  partialHop,
  reducedHop,
} from '../src/reduce/schedule.ts'

test('chunks tile the vector without gap or overlap', () => {
  for (const length of [0, 1, 7, 100, 1001])
    for (const size of [1, 2, 3, 8, 32])
      for (const bucketFloats of [1, 10, 333, 5000]) {
        let next = 0
        for (const chunk of cutIntoChunks({ buckets: evenBuckets(length, bucketFloats), size, chunkFloats: 9 })) {
          assert.equal(chunk.start, next)
          assert.equal(chunk.start, chunk.bucket * bucketFloats + chunk.offset)
          assert.ok(chunk.floats >= 1 && chunk.floats <= 9 && chunk.segment < size)
          next += chunk.floats
        }
        assert.equal(next, length)
      }
})

test('a segment visits all members: hop by hop as partial sums, then as the sum', () => {
  for (const size of [2, 3, 5, 32])
    for (let segment = 0; segment < size; segment++) {
      const author = { rank: segment, size }
      assert.equal(ownSegment(author), segment)
      assert.equal(partialHop(author, segment), hops(author))
      for (let hop = 0; hop < hops(author); hop++)
        assert.equal(partialHop({ rank: (segment + 1 + hop) % size, size }, segment), hop)
      const completer = { rank: (segment + size - 1) % size, size }
      assert.equal(completedSegment(completer), segment)
      assert.equal(reducedHop(completer, segment), hops(author))
      for (let hop = 0; hop < hops(author); hop++)
        assert.equal(reducedHop({ rank: (completer.rank + 1 + hop) % size, size }, segment), hop)
    }
})

test('a manifest takes N−1 hops from its author to the last member', () => {
  assert.deepEqual(
    [1, 2, 3, 0].map((index) => manifestHop({ rank: index, size: 4 }, 0)),
    [0, 1, 2, 3],
  )
})
