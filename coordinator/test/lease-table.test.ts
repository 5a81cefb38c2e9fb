// What a table of leases counts as they come and go, against a look at all of them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type BlockId, memberId, random32, trainingBlock } from '@starling-grid/protocol'
import { LeaseTable } from '../src/run/queue/lease-table.ts'
import type { Lease } from '../src/run/state.ts'

const BLOCKS = 50

function leaseOf(leaseEpoch: number, holder = `m${leaseEpoch % 7}`): Lease {
  return { holder: memberId(holder), base: 0, leaseEpoch, grantedAt: 0, deadline: 1000 + leaseEpoch }
}

/** Of one step of a random story. */
function disturb(table: LeaseTable, words: () => number, leaseEpoch: number): void {
  const block = (): BlockId => trainingBlock(0, words() % BLOCKS)
  if (words() % 3 > 0) for (let left = words() % 4; left >= 0; left--) table.set(block(), leaseOf(leaseEpoch))
  else for (let left = words() % 6; left >= 0; left--) table.delete(block())
}

test('grants and holders are those of the leases, whatever comes and goes, the oldest first', () => {
  const words = random32(1)
  const table = new LeaseTable()
  for (let leaseEpoch = 1; leaseEpoch <= 2000; leaseEpoch++) {
    disturb(table, words, leaseEpoch)
    const epochs = [...new Set([...table.values()].map((one) => one.leaseEpoch))].sort((a, b) => a - b)
    assert.deepEqual(
      [...table.grants()].map((one) => one.leaseEpoch),
      epochs,
    )
    assert.equal(table.grantCount, epochs.length)
    assert.deepEqual(table.holders(), new Set([...table.values()].map(({ holder }) => holder)))
  }
  for (const now of [1500, 1001, 2999, 3500, 1500]) {
    const overdue = [...table].filter(([, { deadline }]) => deadline < now)
    assert.deepEqual(table.overdue(now), overdue)
  }
  table.clear()
  assert.deepEqual([table.size, table.grantCount, table.holders().size], [0, 0, 0])
})

test('whose leases came or went, and which blocks came back, is remembered from the first question on', () => {
  const table = new LeaseTable()
  const block = (index: number): BlockId => trainingBlock(0, index)
  table.set(block(0), leaseOf(1, 'a'))
  assert.deepEqual([table.takeChangedHolders(), table.takeFreed()], [undefined, undefined])
  table.set(block(1), leaseOf(2, 'b'))
  table.delete(block(0))
  table.delete(block(9))
  assert.deepEqual(table.takeChangedHolders(), new Set(['b', 'a']))
  assert.deepEqual(table.takeFreed(), [block(0)])
  assert.deepEqual([table.takeChangedHolders()?.size, table.takeFreed()?.length], [0, 0])
  table.clear()
  assert.deepEqual([table.takeChangedHolders(), table.takeFreed()], [undefined, undefined], 'all of them changed')
})

test('what is remembered is bounded: where no one asks for it, it is forgotten', () => {
  const table = new LeaseTable()
  table.takeFreed()
  table.takeChangedHolders()
  for (let i = 0; i < 70_000; i++) {
    table.set(trainingBlock(0, i), leaseOf(i + 1, `m${i}`))
    table.delete(trainingBlock(0, i))
  }
  assert.deepEqual([table.takeFreed(), table.takeChangedHolders()], [undefined, undefined])
})
