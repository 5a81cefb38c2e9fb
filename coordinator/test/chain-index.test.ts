// What the committed chain costs in memory, and that nothing that may be asked for is forgotten.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { epochOf, extend, genesis, jobId, type BlockId, type StepRecord, trainingBlock } from '@starling-grid/protocol'
import { applyEntry, createRunState } from '../src/run/index.ts'
import { ChainIndex } from '../src/run/queue/chain-index.ts'
import { currentEpoch, remaining } from '../src/run/queue/scheduler.ts'
import { Desk, hashOf, recordsAfter } from './run-desk.ts'

const BLOCKS = 10
const START = genesis(jobId('desk'), 'model', 1)

/** Records of one block each, epoch after epoch in order. */
function recordOf(v: number): StepRecord {
  const block = trainingBlock(Math.floor((v - 1) / BLOCKS), (v - 1) % BLOCKS)
  return { ...(recordsAfter(START, 1, 1, [block])[0] as StepRecord), v }
}

function filled(count: number): ChainIndex {
  const chain = new ChainIndex(START, BLOCKS)
  for (let v = 1; v <= count; v++) chain.append([recordOf(v)])
  return chain
}

/** Steps of the desk's run, each with one block of six, and a checkpoint after every tenth. */
function longRun(steps: number) {
  const state = createRunState(new Desk().state.config)
  for (let v = 1; v <= steps; v++) {
    const block = trainingBlock(Math.floor((v - 1) / 6), (v - 1) % 6)
    const [record] = recordsAfter(state.chain.head, 1, 1, [block])
    applyEntry(state, { type: 'commit', records: [record ?? assert.fail()] }, v)
    if (v % 10 > 0) continue
    const support = { blob: hashOf(`${v}`), bytes: 1, witnessed: true, agreeing: 2, members: 2 }
    applyEntry(state, { type: 'checkpoint', version: state.chain.head, ...support }, v)
  }
  return state
}

test('a chain of 5,000 steps keeps the records since the oldest checkpoint that is remembered, and no more', () => {
  const sizes = [1000, 5000].map((steps) => {
    const { chain, checkpoints } = longRun(steps)
    return { ...chain.counts, checkpoints: checkpoints.length, head: chain.head.v - chain.base.v }
  })
  assert.deepEqual(sizes[0], { records: 64, versions: 65, openEpochs: 1, checkpoints: 7, head: 64 })
  assert.deepEqual({ ...sizes[1], openEpochs: 1 }, sizes[0])
})

test('a journal that names more blocks than an epoch has, as old ones may, ends that epoch and not the run', () => {
  const state = createRunState(new Desk().state.config)
  const { blocks } = state.config
  const named = Array.from({ length: blocks + 1 }, (_, i) => trainingBlock(0, i))
  applyEntry(state, { type: 'commit', records: recordsAfter(state.chain.head, 1, blocks + 1, named) }, 1)
  assert.deepEqual([remaining(state, 0), remaining(state, 1), currentEpoch(state)], [0, blocks, 1])
})

test('every checkpoint that is remembered can be gone back to, and the blocks since are to be done again', () => {
  for (let place = 0; place < 7; place++) {
    const state = longRun(1000)
    const { version } = state.checkpoints[place] ?? assert.fail()
    applyEntry(state, { type: 'rewind', to: version }, 0)
    assert.deepEqual(state.chain.head, version)
    for (let v = 1; v <= 1000; v++) {
      const block = trainingBlock(Math.floor((v - 1) / 6), (v - 1) % 6)
      assert.equal(state.chain.isDone(block), v <= version.v, `block ${block} of step ${v}, back at ${version.v}`)
    }
    assert.equal(state.abandoned.length, version.v === 0 ? 0 : 1000 - version.v)
  }
})

test('what was forgotten stays DONE, and is the same as in a chain that forgets nothing', () => {
  const [whole, pruned] = [filled(95), filled(95)]
  pruned.forgetBefore(60)
  const to = pruned.at(70) ?? assert.fail()
  for (const chain of [whole, pruned]) chain.truncate(to)
  for (let v = 1; v <= 120; v++)
    for (const block of recordOf(v).blocks) {
      assert.equal(pruned.isDone(block), whole.isDone(block))
      assert.equal(pruned.isDone(block), v <= 70)
      assert.equal(pruned.doneIn(epochOf(block)), whole.doneIn(epochOf(block)))
    }
  assert.deepEqual([pruned.head, pruned.record(70), pruned.since(65)], [whole.head, whole.record(70), whole.since(65)])
  assert.deepEqual([pruned.at(59), pruned.record(60), pruned.has(START)], [undefined, undefined, false])
  assert.throws(() => pruned.since(59), /^Error: internal: records since version 59/)
})

test('a block that the dataset does not have is never DONE, and completes no epoch', () => {
  const chain = new ChainIndex(START, 3)
  const blocks = ['0:0', '0:3', '0:999999999', '0:1'] as BlockId[]
  chain.append([{ ...recordOf(1), blocks }])
  assert.deepEqual([chain.doneIn(0), chain.isDone('0:3' as BlockId)], [2, false])
  chain.append([{ ...recordOf(2), blocks: ['0:2' as BlockId] }])
  assert.deepEqual([chain.doneIn(0), chain.isDone('0:3' as BlockId), chain.counts.openEpochs], [3, false, 0])
})

test('a written chain is read back as it was, and one whose records lead elsewhere is refused', () => {
  const chain = filled(47)
  chain.forgetBefore(20)
  const text = JSON.stringify(chain.written())
  const copy = new ChainIndex(START, BLOCKS)
  copy.read(JSON.parse(text) as ReturnType<ChainIndex['written']>)
  assert.equal(JSON.stringify(copy.written()), text)
  for (let v = 1; v <= 60; v++)
    for (const block of recordOf(v).blocks) assert.equal(copy.isDone(block), chain.isDone(block))
  copy.append([recordOf(48)])
  assert.deepEqual(copy.head, extend(chain.head, recordOf(48)))
  const { records, ...rest } = chain.written()
  const changed = records.map((record) => ({ ...record, samples: record.samples + Number(record.v === 30) }))
  assert.throws(() => copy.read({ ...rest, records: changed }), /expected records that lead to version 47/)
})
