// Which part of the data each member of a crowd has (decision 61): its next blocks are of what it fetched before, and
// what data costs does not end a round, nor speak against a block.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy, own } from '@starling-grid/coordinator/run'
import { blockIndex, type BlockId, memberId } from '@starling-grid/protocol'
import type { DataParts } from '../src/run/groups/data-parts.ts'
import { ask, blocksOf, type Grant, push } from './async-desk.ts'
import { Desk, type DeskOptions } from './run-desk.ts'

const [SHARD, BATCH, H] = [20, 2, 5]
const USUAL = { gradient: 1, statistics: 1 }

/** Of members that are equally fast, in rounds of half a shard. */
function crowd(names: readonly string[], options: DeskOptions = {}): Desk {
  const desk = new Desk({
    mode: 'async',
    minVolunteers: names.length,
    blocks: 400,
    batchBlocks: BATCH,
    shardBlocks: SHARD,
    epochs: 8,
    async: asyncPolicy(undefined, 12, { innerSteps: H }),
    ...options,
  })
  desk.join(...names)
  for (const name of names) {
    desk.answer(name)
    own(desk.state, 'pushNorms').add(memberId(name), USUAL)
    desk.feed({ type: 'speed', member: memberId(name), samplesPerSecond: 100 })
  }
  return desk
}

const partsOf = (desk: Desk): DataParts => own(desk.state, 'parts')
const shardsOf = (blocks: readonly BlockId[]): number[] => [
  ...new Set(blocks.map((block) => Math.floor(blockIndex(block) / SHARD))),
]

/** Rounds of these members, one after the other, until each has so many; → the shards that each was given. */
function work(desk: Desk, names: readonly string[], rounds: number): Map<string, Set<number>> {
  const shards = new Map(names.map((name) => [name, new Set<number>()]))
  for (let round = 0; round < rounds; round++)
    for (const name of round % 2 === 0 ? names : names.toReversed()) {
      const grant = ask(desk, name)
      for (const shard of shardsOf(blocksOf(grant))) shards.get(name)?.add(shard)
      push(desk, name, grant)
    }
  return shards
}

const NAMES = ['a', 'b', 'c', 'd']
const ROUNDS_OF_EPOCH = 400 / (H * BATCH) / NAMES.length

test('members get blocks of the shards that they have, epoch for epoch, in whatever order they ask', () => {
  const desk = crowd(NAMES, { async: asyncPolicy({ update: 'each' }, 12, { innerSteps: H }) })
  const shards = work(desk, NAMES, 4 * Math.floor(ROUNDS_OF_EPOCH))
  const fetched = [...shards.values()].reduce((sum, { size }) => sum + size, 0)
  assert.ok(fetched <= 24, `${fetched} shards of 20 in four epochs`)
})

test('a newcomer gets shards that no other member has, and so those of a member that left', () => {
  const desk = crowd(['a', 'b'])
  const [first, second] = ['a', 'b'].map((name) => shardsOf(blocksOf(ask(desk, name))))
  assert.deepEqual(first?.length, 1)
  assert.notDeepEqual(first, second)
  desk.lose('a')
  desk.join('c')
  desk.feed({ type: 'speed', member: memberId('c'), samplesPerSecond: 100 })
  own(desk.state, 'pushNorms').add(memberId('c'), USUAL)
  const parts = partsOf(desk)
  assert.deepEqual([parts.count(first?.[0] ?? -1), parts.count(second?.[0] ?? -1)], [0, 1])
  assert.deepEqual(shardsOf(blocksOf(ask(desk, 'c'))), first, 'in the order of the epoch it comes first')
})

test('of a round that was cut a member keeps what it computed and what was on its way, and no more', () => {
  const desk = crowd(['a', 'b'], { async: asyncPolicy(undefined, 12, { innerSteps: 40 }) })
  const grant = ask(desk, 'a')
  const shards = shardsOf(blocksOf(grant))
  assert.equal(shards.length, 4)
  push(desk, 'a', { ...grant, leases: grant.leases.slice(0, SHARD) })
  assert.deepEqual([...partsOf(desk).of(memberId('a'))], shards.slice(0, 2))
  assert.equal(desk.state.leases.size, 0, 'the rest is free')
  assert.equal(desk.state.members.get(memberId('a'))?.missedLeases, 0)
})

test('of a round that was given up a member keeps what was on its way', () => {
  const desk = crowd(['a', 'b'], { async: asyncPolicy(undefined, 12, { innerSteps: 40 }) })
  const { leases, ...grant } = ask(desk, 'a')
  desk.say('a', { type: 'gave-back', leases, code: 'link-lost', message: 'no line' })
  assert.deepEqual([...partsOf(desk).of(memberId('a'))], shardsOf(blocksOf({ leases, ...grant })).slice(0, 1))
})

test('a round that was cut takes no data from a member that had it before', () => {
  const async = asyncPolicy({ update: 'each' }, 12, { innerSteps: 40 })
  const desk = crowd(['a'], { blocks: 4 * SHARD, minVolunteers: 1, async })
  push(desk, 'a', ask(desk, 'a'))
  const grant = ask(desk, 'a')
  assert.equal(grant.leases.length, 4 * SHARD)
  push(desk, 'a', { ...grant, leases: grant.leases.slice(0, BATCH) })
  assert.equal(partsOf(desk).of(memberId('a')).size, 4)
})

test('the exchange is measured with rounds that were neither cut nor waited for data', () => {
  const desk = crowd(['a'], {
    blocks: 40,
    minVolunteers: 1,
    async: asyncPolicy({ update: 'each' }, 12, { innerSteps: H }),
  })
  const measured: number[] = []
  const pushed = (grant: Grant): void => {
    desk.now += 1000
    push(desk, 'a', grant)
    measured.push(desk.state.rounds.exchanges.length)
  }
  for (let round = 0; round < 4; round++) pushed(ask(desk, 'a'))
  assert.deepEqual(measured, [0, 1, 1, 2], 'the first round of each of two shards fetched it')
  const grant = ask(desk, 'a')
  pushed({ ...grant, leases: grant.leases.slice(0, BATCH) })
  assert.equal(measured.at(-1), 2)
})

test('of rounds that are late only blocks of the first inner step are suspected, and not for one member’s word', () => {
  const desk = crowd(['a', 'b', 'c'])
  const late = (name: string): BlockId[] => {
    const blocks = blocksOf(ask(desk, name))
    desk.now += 700_000
    desk.feed({ type: 'tick' })
    return blocks
  }
  const first = late('a')
  assert.equal(desk.state.aside.failures.size, 0)
  assert.deepEqual([...desk.state.aside.lateWith.keys()], first.slice(0, BATCH))
  const again = late('a')
  assert.deepEqual(shardsOf(again), shardsOf(first))
  assert.equal(desk.state.aside.failures.size, 0, 'one member is late twice')
  desk.lose('a')
  late('b')
  assert.deepEqual([...desk.state.aside.failures.keys()], first.slice(0, BATCH))
  assert.deepEqual(blocksOf(ask(desk, 'c')), first.slice(0, 1), 'it is computed alone')
  const sound = blocksOf(ask(desk, 'b'))
  assert.ok(sound.length > 1 && !sound.includes(first[1] as BlockId), 'not by a member that was late with it')
})
