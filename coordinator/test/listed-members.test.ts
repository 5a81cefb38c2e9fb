import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
import { listed, LISTED_MEMBERS } from '../src/host/run-view.ts'

const crowd = (count: number) => Array.from({ length: count }, (_, i) => ({ id: memberId(String(i)) }))

test('a view names every member of a grid that is not very large, as they came', () => {
  const present = crowd(LISTED_MEMBERS)
  assert.deepEqual(listed([memberId('7')], present), present)
})

test('of thousands of members a view names a bounded number, those of the ring first', () => {
  const present = crowd(2000)
  const ring = [memberId('1999'), memberId('1000')]
  const names = listed(ring, present).map(({ id }) => Number(id))
  assert.equal(names.length, LISTED_MEMBERS)
  assert.deepEqual(names.slice(0, 4), [1000, 1999, 0, 1])
})
