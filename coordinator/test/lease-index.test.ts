// What an index of leases counts as they come and go, against a look at all of them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type BlockId, memberId, random32, trainingBlock } from '@starling-grid/protocol'
import { type Lease, LeaseIndex } from '../src/run/queue/lease-index.ts'

const BLOCKS = 50

function leaseOf(leaseEpoch: number, holder = `m${leaseEpoch % 7}`): Lease {
  return { holder: memberId(holder), base: 0, leaseEpoch, grantedAt: 0, deadline: 1000 + leaseEpoch }
}

/** Of one step of a random story. */
function disturb(index: LeaseIndex, words: () => number, leaseEpoch: number): void {
  const block = (): BlockId => trainingBlock(0, words() % BLOCKS)
  if (words() % 3 > 0) for (let left = words() % 4; left >= 0; left--) index.set(block(), leaseOf(leaseEpoch))
  else for (let left = words() % 6; left >= 0; left--) index.delete(block())
}

test('grants and holders are those of the leases, whatever comes and goes, the oldest first', () => {
  const words = random32(1)
  const index = new LeaseIndex()
  for (let leaseEpoch = 1; leaseEpoch <= 2000; leaseEpoch++) {
    disturb(index, words, leaseEpoch)
    const epochs = [...new Set([...index.values()].map((one) => one.leaseEpoch))].sort((a, b) => a - b)
    assert.deepEqual(
      [...index.grants()].map((one) => one.leaseEpoch),
      epochs,
    )
    assert.equal(index.grantCount, epochs.length)
    assert.deepEqual(index.holders(), new Set([...index.values()].map(({ holder }) => holder)))
  }
  for (const now of [1500, 1001, 2999, 3500, 1500]) {
    const overdue = [...index].filter(([, { deadline }]) => deadline < now)
    assert.deepEqual(index.overdue(now), overdue)
  }
  index.clear()
  assert.deepEqual([index.size, index.grantCount, index.holders().size], [0, 0, 0])
})

test('whose leases came or went, and which blocks came back, is remembered from the first question on', () => {
  const index = new LeaseIndex()
  const block = (index: number): BlockId => trainingBlock(0, index)
  index.set(block(0), leaseOf(1, 'a'))
  assert.deepEqual([index.takeChangedHolders(), index.takeFreed()], [undefined, undefined])
  index.set(block(1), leaseOf(2, 'b'))
  index.delete(block(0))
  index.delete(block(9))
  assert.deepEqual(index.takeChangedHolders(), new Set(['b', 'a']))
  assert.deepEqual(index.takeFreed(), [block(0)])
  assert.deepEqual([index.takeChangedHolders()?.size, index.takeFreed()?.length], [0, 0])
  index.clear()
  assert.deepEqual([index.takeChangedHolders(), index.takeFreed()], [undefined, undefined], 'all of them changed')
})

test('what is remembered is bounded: where no one asks for it, it is forgotten', () => {
  const index = new LeaseIndex()
  index.takeFreed()
  index.takeChangedHolders()
  for (let i = 0; i < 70_000; i++) {
    index.set(trainingBlock(0, i), leaseOf(i + 1, `m${i}`))
    index.delete(trainingBlock(0, i))
  }
  assert.deepEqual([index.takeFreed(), index.takeChangedHolders()], [undefined, undefined])
})
