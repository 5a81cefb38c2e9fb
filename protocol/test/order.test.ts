// Who computes which block of a step: every block once, with any members (R12).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type BlockId,
  epochOrder,
  isPartition,
  assignmentsAfter,
  assignmentsOfStep,
  splitBlocks,
  trainingBlock,
  unitOrder,
} from '@starling-grid/protocol'
import { nextBlocks } from '../src/order.ts'

const blocksOf = (...indexes: readonly number[]): BlockId[] => indexes.map((index) => trainingBlock(0, index))
const SEVEN = blocksOf(3, 1, 6, 0, 5, 2, 4)

test('an epoch has every block once, in an order of its own that is the same everywhere', () => {
  const first = epochOrder(1, 0, 100)
  assert.deepEqual(
    [...first].sort((a, b) => a - b),
    Array.from({ length: 100 }, (_, i) => i),
  )
  assert.deepEqual(epochOrder(1, 0, 100), first)
  assert.notDeepEqual(epochOrder(1, 1, 100), first)
  assert.notDeepEqual(epochOrder(2, 0, 100), first)
})

test('an order of units has every block once, those of a unit in a row, and both are shuffled', () => {
  const order = unitOrder(1, 0, 100, 8)
  assert.deepEqual(
    [...order].sort((a, b) => a - b),
    Array.from({ length: 100 }, (_, i) => i),
  )
  const units = [...order].map((block) => Math.floor(block / 8))
  const runs = units.filter((unit, at) => unit !== units[at - 1])
  assert.equal(runs.length, 13, 'each unit in a row, also the last with 4 blocks')
  assert.notDeepEqual(
    runs,
    [...runs].sort((a, b) => a - b),
  )
  const unitOf = (which: number): number[] => [...order].filter((block) => Math.floor(block / 8) === which)
  const places = [0, 1].map((which) => unitOf(which).map((block) => block % 8))
  assert.notDeepEqual(places[0], places[1], 'each unit in an order of its own')
  assert.notDeepEqual(places[0], [0, 1, 2, 3, 4, 5, 6, 7])
  assert.deepEqual(unitOrder(1, 0, 100, 8), order)
  assert.notDeepEqual(unitOrder(1, 1, 100, 8), order)
  assert.notDeepEqual(unitOrder(2, 0, 100, 8), order)
  assert.equal(new Set(unitOrder(1, 0, 100, 1)).size, 100)
})

test('what is taken is passed over, and no more blocks come than were asked for', () => {
  const order = Uint32Array.of(2, 0, 1, 3)
  assert.deepEqual(
    nextBlocks(order, 4, 2, (block) => block === trainingBlock(4, 0)),
    [trainingBlock(4, 2), trainingBlock(4, 1)],
  )
})

test('shares of a step hold every block once, by largest remainder, ties to the earlier member', () => {
  const counts = (...parts: readonly number[]): number[] => splitBlocks(SEVEN, parts).map(({ length }) => length)
  assert.deepEqual(splitBlocks(SEVEN, [1, 1, 1]).flat(), SEVEN)
  assert.deepEqual(counts(1, 1, 1), [3, 2, 2])
  assert.deepEqual(counts(1, 4, 1), [1, 5, 1])
  assert.deepEqual(counts(0, 0), [4, 3], 'speeds that are not known are equal')
  assert.deepEqual(counts(5, 0), [7, 0])
})

test('a step that is tried again leaves with each member what it learned from, and splits the rest (A7)', () => {
  const shares = assignmentsOfStep({ blocks: SEVEN, kept: [blocksOf(4, 2, 5, 0), []] }, [1, 1])
  assert.deepEqual(shares, [blocksOf(0, 5, 2, 4), blocksOf(3, 1, 6)])
  assert.ok(isPartition(SEVEN, shares))
})

test('a move takes blocks from the share that has them; from another, or to no member, it changes nothing', () => {
  const shares = [blocksOf(0, 1), blocksOf(2)]
  assert.deepEqual(assignmentsAfter(shares, [{ from: 0, to: 1, blocks: blocksOf(1, 2) }]), [
    blocksOf(0),
    blocksOf(2, 1),
  ])
  assert.deepEqual(assignmentsAfter(shares, [{ from: 0, to: 2, blocks: blocksOf(1) }]), shares)
  assert.deepEqual(assignmentsAfter(shares, [{ from: 1, to: 1, blocks: blocksOf(2) }]), shares)
})

test('a partition lacks no block, holds none twice and none beside the plan', () => {
  const planned = blocksOf(0, 1, 2)
  assert.ok(isPartition(planned, [blocksOf(2), blocksOf(0, 1)]))
  assert.ok(!isPartition(planned, [blocksOf(2), blocksOf(0)]))
  assert.ok(!isPartition(planned, [blocksOf(2, 1), blocksOf(0, 1)]))
  assert.ok(!isPartition(planned, [blocksOf(2, 1), blocksOf(1)]))
  assert.ok(!isPartition(planned, [blocksOf(2, 1), blocksOf(0, 3)]))
})
