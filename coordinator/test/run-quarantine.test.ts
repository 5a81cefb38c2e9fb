// Blocks that cannot be read: what the coordinator finds on its own disk settles it, and the run goes on without them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type BlockId, trainingBlock, validationBlock } from '@starling-grid/protocol'
import { DEFAULT_TIMING } from '../src/run/timing.ts'
import { Desk, type DeskOptions } from './run-desk.ts'

/** until a run without a member goes back */
const LOST_MS = DEFAULT_TIMING.lostMs + DEFAULT_TIMING.stateMs + 2000

function ringOf(options: DeskOptions = {}): Desk {
  const desk = new Desk({ minVolunteers: 2, blocks: 6, batchBlocks: 2, epochs: 2, ...options })
  desk.join('a', 'b')
  desk.run('a', 'b')
  return desk
}

const unreadable = (desk: Desk, name: string, blocks: readonly BlockId[]) =>
  desk.say(name, { type: 'unreadable', blocks: [...blocks], code: 'shard-corrupt', message: 'test' })
const checked = (
  desk: Desk,
  indexes: readonly number[],
  problem: string | undefined,
  split: 'training' | 'validation' = 'training',
) => desk.feed({ type: 'shard-checked', split, indexes, file: 'f'.repeat(64), problem })
const settle = (desk: Desk): void => {
  for (const name of ['a', 'b']) desk.answer(name, [])
  for (const name of ['a', 'b']) desk.confirm(name)
}

test("a shard that is damaged on the coordinator's disk is set aside in every epoch, and the run ends", () => {
  const desk = ringOf()
  unreadable(desk, 'a', [desk.planned(1)[0] ?? assert.fail()])
  assert.equal(desk.effects.filter(({ type }) => type === 'check-blocks').length, 1)
  assert.equal(desk.state.quarantined.size, 0, 'one voice sets nothing aside')
  checked(desk, [0, 1], 'Blob f… is damaged')
  assert.deepEqual([...desk.state.quarantined], ['0:0', '0:1'])
  assert.equal(desk.phase, 'freeze')
  for (let i = 0; i < 10 && desk.state.chain.head.v < 4; i++) {
    if (desk.phase === 'freeze') settle(desk)
    desk.step(desk.state.chain.head.v + 1)
  }
  const done = desk.state.chain.records.flatMap(({ blocks }) => blocks)
  assert.equal(done.length, 8)
  for (const block of ['0:0', '0:1', '1:0', '1:1'] as BlockId[])
    assert.ok(!done.includes(block) && desk.state.quarantined.has(block))
})

test("where the coordinator's copy is whole, only three different members set a block aside", () => {
  const desk = ringOf()
  desk.join('c')
  const [block] = desk.planned(1)
  for (const name of ['a', 'a', 'a', 'b', 'b']) {
    unreadable(desk, name, [block ?? assert.fail()])
    checked(desk, [0, 1, 2], undefined)
  }
  assert.equal(desk.state.quarantined.size, 0)
  unreadable(desk, 'c', [block ?? assert.fail()])
  assert.deepEqual([...desk.state.quarantined], [block])
})

test("in a ring of two both must fail three times, spaced, if the coordinator's copy is whole", () => {
  const desk = ringOf()
  const [block] = desk.planned(1)
  const bad = block ?? assert.fail()
  const report = (name: string): void => {
    unreadable(desk, name, [bad])
    checked(desk, [0, 1, 2, 3, 4, 5], undefined)
  }
  for (let i = 0; i < 5; i++) {
    desk.wait(1000)
    report('a')
    report('b')
  }
  assert.equal(desk.state.quarantined.size, 0, 'five reports within four seconds are one')
  for (let i = 0; i < 3; i++) {
    desk.now += 5000
    report('a')
  }
  assert.equal(desk.state.quarantined.size, 0, 'one of the two says nothing of it any more')
  for (let i = 0; i < 2; i++) {
    desk.now += 5000
    report('b')
  }
  assert.deepEqual([...desk.state.quarantined], [bad])
})

test('a damaged shard of validation is left out, and the rest is validated', () => {
  const desk = ringOf({ validationBlocks: 2, epochs: 1 })
  for (let v = 1; v <= 3; v++) desk.step(v)
  unreadable(desk, 'a', [validationBlock(1)])
  checked(desk, [1], 'Blob f… is damaged', 'validation')
  assert.deepEqual([...desk.state.quarantined], ['v:1'])
  const leases = [...(desk.state.validation.now?.leases ?? [])]
  assert.deepEqual(
    leases.map(([, own]) => [...own.keys()]),
    leases.map(() => [validationBlock(0)]),
  )
  for (const [holder, own] of leases)
    desk.say(holder, {
      type: 'validated',
      version: desk.state.chain.head,
      lease: { block: validationBlock(0), leaseEpoch: own.get(validationBlock(0))?.leaseEpoch ?? assert.fail() },
      samples: 1,
      targets: 1,
      correct: 1,
      lossSum: 1,
    })
  assert.match(desk.state.phaseReason, /trained/)
})

test('a run of which most is damaged rests and names the file; when it is put back the run goes on', () => {
  const desk = ringOf({ epochs: 1 })
  unreadable(desk, 'a', [trainingBlock(0, 0)])
  checked(desk, [0, 1, 2, 3, 4, 5], 'Blob f… is damaged')
  settle(desk)
  desk.wait(200)
  assert.match(desk.state.phaseReason, /paused: most blocks of epoch 1 are set aside \(damaged: ffff/)
  desk.wait(30_000)
  assert.equal(desk.effects.filter(({ type }) => type === 'check-blocks').length, 1)
  checked(desk, [0, 1, 2, 3, 4, 5], undefined)
  assert.equal(desk.state.quarantined.size, 0)
  desk.wait(200)
  for (let v = 1; v <= 3; v++) desk.step(v)
  assert.equal(desk.state.chain.doneIn(0), 6)
})

test('a run that pauses for a damaged file continues when it is restored, also after a restart', () => {
  const before = ringOf()
  const indexes = [0, 1, 2, 3, 4, 5]
  unreadable(before, 'a', [trainingBlock(0, 0)])
  checked(before, indexes, 'Blob f… is damaged')
  const desk = new Desk({ minVolunteers: 2, blocks: 6, batchBlocks: 2, epochs: 2 }, before)
  desk.join('a', 'b')
  desk.run('a', 'b')
  const blocks = indexes.map((index) => trainingBlock(0, index))
  assert.deepEqual(
    desk.effects.filter(({ type }) => type === 'check-blocks'),
    [{ type: 'check-blocks', blocks }],
    'it looks, although it does not know why they were set aside',
  )
  assert.match(desk.state.phaseReason, /^paused: most blocks of epoch 1/)
  checked(desk, indexes, undefined)
  assert.deepEqual(
    desk.journalled('restored').map((entry) => entry.blocks),
    [blocks],
  )
  desk.wait(200)
  assert.ok(desk.planned(1).length > 0)
})

test('a run that goes back looks again at blocks that were set aside in epochs that it has yet to repeat', () => {
  const desk = ringOf()
  const indexes = [0, 1, 2, 3, 4, 5]
  for (let v = 1; v <= 3; v++) desk.step(v)
  unreadable(desk, 'a', [trainingBlock(1, 0)])
  checked(desk, indexes, 'Blob f… is damaged')
  desk.lose('a')
  desk.lose('b')
  desk.wait(LOST_MS)
  assert.equal(desk.state.chain.head.v, 0, 'back to the checkpoint')
  desk.join('c', 'd')
  desk.run('c', 'd')
  checked(desk, indexes, undefined)
  desk.wait(200)
  for (let v = 1; v <= 3; v++) desk.step(v)
  const looks = desk.wait(30_000)
  const blocks = indexes.map((index) => trainingBlock(1, index))
  assert.deepEqual(
    looks.filter(({ type }) => type === 'check-blocks'),
    [{ type: 'check-blocks', blocks }],
  )
  checked(desk, indexes, undefined)
  desk.wait(200)
  for (let v = 4; v <= 6; v++) desk.step(v)
  assert.equal(desk.state.chain.doneIn(1), 6)
})

test('blocks that do not exist, are done, or come from strangers make no work', () => {
  const desk = ringOf()
  desk.step(1)
  const done = desk.state.chain.records[0]?.blocks ?? []
  for (const blocks of [[trainingBlock(0, 6)], [trainingBlock(2, 0)], [validationBlock(0)], done]) {
    unreadable(desk, 'a', blocks)
    assert.deepEqual(desk.effects, [])
  }
  unreadable(desk, 'stranger', [trainingBlock(1, 0)])
  assert.deepEqual(desk.effects, [])
})
