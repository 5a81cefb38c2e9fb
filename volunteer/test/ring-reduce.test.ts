// The ring all-reduce against a plain sum, under shuffled, repeated and hostile frames; and a ring of one.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RingReduce } from '../src/reduce/ring-reduce.ts'
import { at, Group, manifestOf, wave } from './step-reduce-group.ts'
import { testStepReduce } from './step-reduce-suite.ts'

testStepReduce('ring', 1)

test('a lone member is done at once', () => {
  const ring = new Group('ring', { size: 1, length: 5, chunkBytes: 8, bucketFloats: 10 }, wave)
  assert.equal(at(ring.members, 0).done, false)
  ring.contribute(0)
  ring.check()
  assert.equal(ring.inFlight.length, 0)
})

test('the sum can be built in an array of the caller', () => {
  const into = new Float32Array(3)
  const alone = new RingReduce({ generation: 1, step: 1, world: { rank: 0, size: 1 }, length: 3, into })
  alone.contribute(Float32Array.of(1, 2, 3), manifestOf(0))
  assert.equal(alone.sum, into)
  assert.deepEqual([...into], [1, 2, 3])
})
