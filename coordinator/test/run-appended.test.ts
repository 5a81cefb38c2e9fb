// Data that is appended to the dataset of a running job: from the next epoch on, over restarts and snapshots, each
// block once.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type BlockId, blockIndex, epochOf, type Sha256, type ShardRef } from '@starling-grid/protocol'
import { createRunState } from '../src/run/create.ts'
import { readRun } from '../src/run/history/snapshot.ts'
import { writtenRun } from '../src/run/index.ts'
import { DoneBlocks } from '../src/run/queue/done-blocks.ts'
import { blocksIn, currentEpoch } from '../src/run/queue/scheduler.ts'
import { Desk, type DeskOptions, hashOf } from './run-desk.ts'

/** Six blocks of one sample each, three in a step; `epochs` three. */
const JOB: DeskOptions = { epochs: 3 }
/** Four blocks more. */
const SHARDS: readonly ShardRef[] = [
  { sha256: hashOf('first') as Sha256, bytes: 100, samples: 1 },
  { sha256: hashOf('second') as Sha256, bytes: 300, samples: 3 },
]
const append = (desk: Desk, shards = SHARDS) => desk.feed({ type: 'dataset-appended', before: 2, shards })

function ringOf(names: readonly string[], options: DeskOptions = {}, earlier?: Desk): Desk {
  const desk = new Desk({ ...JOB, minVolunteers: names.length, ...options }, earlier)
  desk.join(...names)
  desk.run(...names)
  return desk
}

function trainTo(desk: Desk, v: number): void {
  while (desk.state.chain.head.v < v) desk.step(desk.state.chain.head.v + 1)
}

function indexesOf(desk: Desk, epoch: number): number[] {
  const blocks = desk.state.chain.records.flatMap((record): readonly BlockId[] => record.blocks)
  return blocks
    .filter((block) => epochOf(block) === epoch)
    .map(blockIndex)
    .sort((a, b) => a - b)
}

const whole = (blocks: number) => Array.from({ length: blocks }, (_, i) => i)

test('appended data joins the next epoch, and every epoch trains each of its blocks once', () => {
  const desk = ringOf(['a', 'b'])
  trainTo(desk, 1)
  append(desk)
  assert.deepEqual(desk.journalled('appended'), [
    { type: 'appended', epoch: 1, blocks: 10, before: 2, shards: [...SHARDS] },
  ])
  assert.deepEqual(
    desk.sent('appended').map(({ to, before, shards }) => [to, before, shards.length]),
    [
      ['a', 2, 2],
      ['b', 2, 2],
    ],
  )
  const order = desk.effects.map(({ type }) => type).filter((type) => type !== 'note')
  assert.deepEqual(
    order.slice(0, 3),
    ['journal', 'append-shards', 'send'],
    'durable and served before a member is told',
  )
  trainTo(desk, 10) // 2 steps, then twice 4
  assert.deepEqual(
    [0, 1, 2].map((epoch) => indexesOf(desk, epoch)),
    [whole(6), whole(10), whole(10)],
  )
  assert.equal(currentEpoch(desk.state), 3)
})

test('members that come later are told what was appended', () => {
  const desk = ringOf(['a', 'b'])
  append(desk)
  desk.join('c')
  assert.deepEqual(
    desk.sent('appended').map(({ to }) => to),
    ['c'],
  )
})

test('a restarted coordinator goes on with what was appended, from all rows and from a snapshot', () => {
  const before = ringOf(['a', 'b'])
  trainTo(before, 1)
  append(before)
  trainTo(before, 4)
  append(before, [{ sha256: hashOf('third') as Sha256, bytes: 9, samples: 2 }])
  const restarted = ringOf(['a', 'b'], {}, before)
  const snapshot = createRunState(before.state.config)
  // A run's durable state is read-only for all but its journal, which this stands for.
  readRun(snapshot as unknown as Parameters<typeof readRun>[0], JSON.parse(JSON.stringify(writtenRun(before.state))))
  for (const state of [restarted.state, snapshot]) {
    assert.deepEqual(
      [0, 1, 2].map((epoch) => blocksIn(state, epoch)),
      [6, 10, 12],
    )
    assert.deepEqual([state.chain.doneIn(0), state.chain.doneIn(1)], [6, 6])
  }
  trainTo(restarted, 10)
  assert.deepEqual(
    [1, 2].map((epoch) => indexesOf(restarted, epoch)),
    [whole(10), whole(12)],
  )
})

test('in the last epoch it comes too late, and says so', () => {
  const desk = ringOf(['a'], { epochs: 1 })
  const effects = append(desk)
  assert.deepEqual(desk.journalled('appended'), [])
  assert.match(JSON.stringify(effects), /too late for this job: its last epoch is under way/)
})

test('epochs that were DONE before others grew stay as they are, and a block beyond an epoch is none of it', () => {
  const done = new DoneBlocks(2)
  const block = (epoch: number, index: number) => `${epoch}:${index}` as BlockId
  for (const index of [0, 1]) done.add(block(0, index))
  done.add(block(1, 0))
  done.grow(1, 10)
  assert.deepEqual([done.count(0), done.count(1)], [2, 1])
  for (const index of [5, 9]) done.add(block(0, index))
  assert.equal(done.count(0), 2)
  for (let index = 0; index < 10; index++) done.add(block(1, index))
  assert.deepEqual([done.count(1), done.openEpochs], [10, 0])
  const copy = new DoneBlocks(2)
  copy.grow(1, 10)
  copy.read(done.written())
  assert.deepEqual([copy.count(0), copy.count(1), copy.hasAt(1, 9), copy.hasAt(0, 9)], [2, 10, true, false])
})
