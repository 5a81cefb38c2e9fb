// Rounds of replica groups (G1, G2): how much each member learns from in one, when contributions become a version, and
// that one counts as a whole or not at all.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy, own } from '@starling-grid/coordinator/run'
import { blockIndex, memberId, type PushHeader } from '@starling-grid/protocol'
import { grantedPush } from '../src/run/async/leases.ts'
import { ask, asyncDesk, blocksOf, type Grant, push } from './async-desk.ts'
import { Desk, type DeskOptions } from './run-desk.ts'

const USUAL = { gradient: 1, statistics: 1 }
const NAMES = ['a', 'b', 'c', 'd', 'e']
const H = 4
const BATCH = 2

/** In async mode, with rounds of H global batches, and members of these speeds. */
function groupDesk(speeds: Readonly<Record<string, number>>, options: DeskOptions = {}): Desk {
  const names = Object.keys(speeds)
  const desk = new Desk({
    mode: 'async',
    minVolunteers: names.length,
    blocks: 1000,
    batchBlocks: BATCH,
    async: asyncPolicy(undefined, 12, { innerSteps: H }),
    ...options,
  })
  desk.join(...names)
  for (const name of names) desk.answer(name)
  for (const [name, samplesPerSecond] of Object.entries(speeds)) {
    own(desk.state, 'pushNorms').add(memberId(name), USUAL)
    desk.feed({ type: 'speed', member: memberId(name), samplesPerSecond })
  }
  return desk
}

const alike = (names = NAMES): Record<string, number> => Object.fromEntries(names.map((name) => [name, 100]))

test('in a round a member of median speed takes H global batches, others as many as take them as long', () => {
  const desk = groupDesk({ slow: 10, a: 100, b: 100, c: 100, fast: 400 })
  const grants = ['slow', 'a', 'fast'].map((name) => ask(desk, name))
  assert.deepEqual(
    grants.map(({ leases, innerSteps }) => [leases.length, innerSteps]),
    [
      [1, 1],
      [H * BATCH, H],
      [4 * H * BATCH, 4 * H],
    ],
  )
})

test('no member gets more of a small dataset than its part', () => {
  const desk = groupDesk(alike(), { blocks: 15 })
  assert.deepEqual(
    NAMES.map((name) => ask(desk, name).leases.length),
    [3, 3, 3, 3, 3],
  )
})

test('a round takes blocks of one shard or two, and over an epoch every block once', () => {
  const [shardBlocks, blocks] = [50, 1000]
  const shardsOf = (desk: Desk): number[][] => {
    const seen = new Set<string>()
    const found: number[][] = []
    while (seen.size < blocks)
      for (const name of NAMES) {
        const grant = ask(desk, name)
        for (const block of blocksOf(grant)) {
          assert.ok(!seen.has(block), block)
          seen.add(block)
        }
        found.push([...new Set(blocksOf(grant).map((block) => Math.floor(blockIndex(block) / shardBlocks)))])
        push(desk, name, grant)
      }
    return found
  }
  const together = shardsOf(groupDesk(alike(), { blocks, shardBlocks }))
  assert.ok(together.every((shards) => shards.length <= 2))
  assert.equal(new Set(together.flat()).size, blocks / shardBlocks)
  assert.ok(Math.max(...shardsOf(groupDesk(alike(), { blocks })).map(({ length }) => length)) > 4)
})

test('members keep their parts of the data from epoch to epoch, where all begin a round at once', () => {
  const shardBlocks = H * BATCH
  const desk = groupDesk(alike(), { blocks: NAMES.length * shardBlocks, shardBlocks, epochs: 6 })
  const shards = new Map(NAMES.map((name) => [name, new Set<number>()]))
  const orders = new Set<string>()
  let grants = NAMES.map((name) => ({ to: memberId(name), ...ask(desk, name) }))
  for (let epoch = 0; epoch < 5; epoch++) {
    for (const grant of grants) {
      const indexes = blocksOf(grant).map(blockIndex)
      for (const index of indexes) shards.get(grant.to)?.add(Math.floor(index / shardBlocks))
      if (shards.get(grant.to)?.has(0) === true) orders.add(indexes.join())
    }
    const next: typeof grants = []
    for (const grant of [...grants.slice(epoch), ...grants.slice(0, epoch)]) {
      push(desk, grant.to, grant)
      next.push(...desk.sent('grant'))
      desk.say(grant.to, { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
      next.push(...desk.sent('grant'))
    }
    grants = next
    assert.equal(grants.length, NAMES.length, `epoch ${epoch}`)
  }
  const fetched = [...shards.values()].reduce((sum, { size }) => sum + size, 0)
  assert.ok(fetched <= 12, `${fetched} shards for 5 members in 5 epochs, where each epoch has 5`)
  assert.ok(orders.size > 1, 'the blocks of a shard come in another order')
})

test('a round has at most as many inner steps as a grant may say', () => {
  const desk = groupDesk({ a: 100_000 }, { batchBlocks: 1, blocks: 100_000, async: asyncPolicy(undefined, 12, {}) })
  const { leases, innerSteps } = ask(desk, 'a')
  assert.deepEqual([leases.length, innerSteps], [1000, 1000])
})

test('a version takes in four of five contributions, and the fifth is in the next', () => {
  const desk = groupDesk(alike())
  const grants = new Map(NAMES.map((name) => [name, ask(desk, name)] as const))
  for (const name of ['a', 'b', 'c']) assert.equal(push(desk, name, grants.get(name) as Grant), 'received')
  assert.equal(desk.state.chain.head.v, 0)
  push(desk, 'd', grants.get('d') as Grant)
  assert.equal(desk.state.chain.head.v, 1)
  assert.deepEqual(
    new Set(desk.state.chain.record(1)?.blocks),
    new Set(['a', 'b', 'c', 'd'].flatMap((name) => blocksOf(grants.get(name) as Grant))),
  )
  for (const name of ['a', 'b', 'c', 'd']) grants.set(name, ask(desk, name))
  assert.equal(push(desk, 'e', grants.get('e') as Grant), 'received', 'it is one version late')
  assert.equal(desk.effects.find((effect) => effect.type === 'server-add')?.damping, 0.5, 'and counts half')
  assert.equal(ask(desk, 'e').base.v, 1, 'it goes on at once')
  desk.now += 9000 // before leases expire
  desk.feed({ type: 'tick' })
  assert.equal(desk.state.chain.head.v, 1, 'late rounds alone make no version')
})

test('a round that is late makes no version due before those that began from the newest one', () => {
  const desk = groupDesk(alike())
  const grants = new Map(NAMES.map((name) => [name, ask(desk, name)] as const))
  const pushes = (...names: string[]): void => names.forEach((name) => push(desk, name, grants.get(name) as Grant))
  pushes('a', 'b', 'c', 'd')
  for (const name of ['a', 'b', 'c', 'd']) grants.set(name, ask(desk, name))
  pushes('e')
  grants.set('e', ask(desk, 'e'))
  pushes('a', 'b', 'c')
  assert.equal(desk.state.open.pushes.length, 4, 'as many as make a version, and one is of an older one')
  assert.equal(desk.state.chain.head.v, 1)
  pushes('d')
  assert.equal(desk.state.chain.head.v, 2)
  assert.equal(desk.state.chain.record(2)?.blocks.length, 5 * H * BATCH, 'the late one is in it')
})

test('a round that begins after others ends with them, or with the next ones where they are nearly done', () => {
  // 20 s are 40 blocks: the first length of rounds
  const desk = groupDesk(alike(), { blockSamples: 50, async: asyncPolicy(undefined, 12, {}) })
  const blocks = (name: string): number => ask(desk, name).leases.length
  assert.equal(blocks('a'), 40)
  desk.now += 10_000
  assert.equal(blocks('b'), 20)
  desk.now += 8000
  assert.equal(blocks('c'), 44, 'two seconds would be mostly exchange')
  desk.now += 12_000
  assert.equal(blocks('d'), 20, 'it ends with the second one of those that are not behind')
})

test('each push makes a version where the job says so, also a late one', () => {
  const desk = groupDesk(alike(['a', 'b']), { async: asyncPolicy({ update: 'each' }, 12, { innerSteps: H }) })
  const [first, second] = [ask(desk, 'a'), ask(desk, 'b')]
  push(desk, 'a', first)
  assert.equal(desk.state.chain.head.v, 1)
  ask(desk, 'a')
  push(desk, 'b', second)
  assert.equal(desk.state.chain.head.v, 2)
})

test('who contributed begins its next round from the version that takes its last one in', () => {
  const desk = groupDesk(alike())
  const grants = NAMES.map((name) => ask(desk, name))
  push(desk, 'a', grants[0] as Grant)
  desk.say('a', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  assert.equal(desk.sent('grant').length, 0)
  for (const i of [1, 2, 3]) push(desk, NAMES[i] ?? '', grants[i] as Grant)
  const next = desk.sent('grant').find(({ to }) => to === 'a')
  assert.equal(next?.base.v, 1)
})

test('a version waits a fifth of a round for more contributions, and no longer', () => {
  const desk = groupDesk(alike())
  const grants = NAMES.map((name) => ask(desk, name))
  desk.now += 20_000
  push(desk, 'a', grants[0] as Grant)
  desk.now += 3500
  desk.feed({ type: 'tick' })
  assert.equal(desk.state.chain.head.v, 0)
  desk.now += 1000
  desk.feed({ type: 'tick' })
  assert.equal(desk.state.chain.head.v, 1)
})

test('a round that ends before the others should is no sign that these come soon', () => {
  // 20 s are 40 blocks: the first length of rounds
  const desk = groupDesk(alike(), { blockSamples: 50, async: asyncPolicy(undefined, 12, {}) })
  const [first = assert.fail()] = NAMES.map((name) => ask(desk, name))
  assert.equal(first.leases.length, 40)
  desk.now += 5000
  push(desk, 'a', first)
  desk.now += 16_500
  desk.feed({ type: 'tick' })
  assert.equal(desk.state.chain.head.v, 0, 'the others may be there in a moment')
  desk.now += 1000
  desk.feed({ type: 'tick' })
  assert.equal(desk.state.chain.head.v, 1, 'two seconds after they should have come')
})

test('a small part of an epoch is over before a round of usual length would be', () => {
  // 12.5 s of five members at 100 samples a second
  const desk = groupDesk(alike(), { blocks: 125, blockSamples: 50, async: asyncPolicy(undefined, 12, {}) })
  const [first = assert.fail()] = NAMES.map((name) => ask(desk, name))
  assert.equal(first.leases.length, 25)
  desk.now += 11_000
  push(desk, 'a', first)
  desk.now += 4000
  desk.feed({ type: 'tick' })
  assert.equal(desk.state.chain.head.v, 1)
})

test('a lease has time for the exchange, which may be longer than a short round', () => {
  const desk = groupDesk(alike())
  const grants = NAMES.map((name) => ask(desk, name))
  desk.now += 100
  push(desk, 'a', grants[0] as Grant)
  desk.now += 30_000
  for (const i of [1, 2, 3]) push(desk, NAMES[i] ?? '', grants[i] as Grant)
  assert.equal(desk.state.chain.head.v, 1)
  const { deadlineMs } = ask(desk, 'a')
  assert.ok(deadlineMs > 3 * 29_000, `${deadlineMs} ms`)
})

test('a version waits for no member that is gone', () => {
  const desk = groupDesk(alike())
  const grants = NAMES.map((name) => ask(desk, name))
  push(desk, 'a', grants[0] as Grant)
  for (const name of ['b', 'c', 'd', 'e'])
    desk.feed({ type: 'member-lost', member: memberId(name), reason: 'closed', expected: false })
  assert.equal(desk.state.chain.head.v, 1)
})

test('a push names its grant: it is of all blocks or of the first ones, and one of an earlier grant is none', () => {
  const desk = groupDesk(alike(['a', 'b']))
  const first = ask(desk, 'a')
  const header = ({ base, leases, modeEpoch }: Grant, blocks = leases.length): PushHeader => ({
    incarnation: memberId('a'),
    modeEpoch,
    base,
    leaseEpoch: leases[0]?.leaseEpoch ?? 0,
    blocks,
    samples: blocks,
    targets: blocks,
    lossSum: 1,
    correct: 0,
  })
  assert.deepEqual(grantedPush(desk.state, header(first))?.leases, first.leases)
  assert.deepEqual(grantedPush(desk.state, header(first, 3))?.leases, first.leases.slice(0, 3))
  assert.equal(grantedPush(desk.state, header(first, first.leases.length + 1)), undefined)
  const second = ask(desk, 'a')
  assert.equal(grantedPush(desk.state, header(first)), undefined)
  assert.deepEqual(grantedPush(desk.state, header(second))?.leases, second.leases)
})

test('a push of a gradient is of its grant as a whole', () => {
  const { desk, grants } = asyncDesk(['a', 'b'], { batchBlocks: 4 })
  const [{ base, leases, modeEpoch } = assert.fail()] = grants
  const header = { incarnation: memberId('a'), modeEpoch, base, leaseEpoch: leases[0]?.leaseEpoch ?? 0 }
  const sums = { samples: 1, targets: 1, lossSum: 1, correct: 0 }
  assert.equal(leases.length, 4)
  assert.ok(grantedPush(desk.state, { ...header, ...sums, blocks: 4 }))
  assert.equal(grantedPush(desk.state, { ...header, ...sums, blocks: 3 }), undefined)
})

test('of a round that was cut the first blocks are in the version, and the others go to another member', () => {
  const desk = groupDesk(alike(['a', 'b']))
  const [first, second] = [ask(desk, 'a'), ask(desk, 'b')]
  assert.equal(push(desk, 'a', { ...first, leases: first.leases.slice(0, 3) }), 'received')
  assert.deepEqual(
    first.leases.filter(({ block }) => desk.state.leases.has(block)),
    [],
    'none of them is leased any more',
  )
  assert.equal(push(desk, 'a', first), 'duplicate', 'the rest is not its own now')
  assert.equal(push(desk, 'a', { ...first, leases: first.leases.slice(3) }), 'lease-stale')
  desk.feed({ type: 'member-lost', member: memberId('a'), reason: 'left', expected: true })
  push(desk, 'b', second)
  assert.equal(desk.state.chain.head.v, 1)
  const done = (of: Grant): number => of.leases.filter(({ block }) => desk.state.chain.isDone(block)).length
  assert.deepEqual([done(first), done(second)], [3, second.leases.length])
  assert.deepEqual(blocksOf(ask(desk, 'b')).slice(0, 5), blocksOf(first).slice(3))
})

test('a round that was cut is no sign that others come soon', () => {
  const desk = groupDesk(alike())
  const grants = NAMES.map((name) => ask(desk, name))
  const [first = assert.fail()] = grants
  push(desk, 'a', { ...first, leases: first.leases.slice(0, 1) })
  desk.feed({ type: 'member-lost', member: memberId('a'), reason: 'left', expected: true })
  desk.wait(60_000)
  assert.equal(desk.state.chain.head.v, 0, 'four members are in the middle of their rounds')
})

test('a round that was cut when it was due makes its version due', () => {
  const desk = groupDesk(alike())
  const grants = NAMES.map((name) => ask(desk, name))
  const [first = assert.fail()] = grants
  desk.now += first.deadlineMs / 3
  push(desk, 'a', { ...first, leases: first.leases.slice(0, 1) })
  desk.wait(5000)
  assert.deepEqual([desk.state.chain.head.v, desk.state.leases.size > 0], [1, true], 'it waits no longer for others')
})

test('blocks whose inner steps became no number go to other members, one at a time', () => {
  const desk = groupDesk(alike(['a', 'b']))
  const { leases } = ask(desk, 'a')
  desk.say('a', { type: 'gave-back', leases, code: 'gradient-not-finite', message: 'NaN' })
  const next = ask(desk, 'b')
  assert.equal(next.leases.length, 1)
  assert.ok(blocksOf({ ...next, leases }).includes(next.leases[0]?.block as never))
})

test('the coordinator gives a block that one member must not try again to the next one that asks', () => {
  const desk = groupDesk(alike(['a', 'b']), { blocks: 1, batchBlocks: 1 })
  const { leases } = ask(desk, 'a')
  desk.say('a', { type: 'gave-back', leases, code: 'gradient-not-finite', message: 'NaN' })
  desk.say('a', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  assert.deepEqual(desk.sent('grant'), [])
  assert.deepEqual(blocksOf(ask(desk, 'b')), blocksOf({ leases } as Grant))
})

test('with one inner step and `update: all` members share one global batch, and a version waits for each', () => {
  const options = { async: asyncPolicy({ update: 'all' }, 12, { innerSteps: 1 }) }
  const desk = groupDesk(alike(['a', 'b']), { ...options, batchBlocks: 6 })
  const first = ask(desk, 'a')
  assert.equal(first.leases.length, 3)
  assert.equal(first.innerSteps, undefined, 'gradients travel')
  push(desk, 'a', first)
  desk.now += 8000 // much longer than a round, before leases expire
  desk.feed({ type: 'tick' })
  assert.equal(desk.state.chain.head.v, 0, 'also for one that did not ask yet')
  push(desk, 'b', ask(desk, 'b'))
  assert.equal(desk.state.chain.record(1)?.blocks.length, 6)
})

test('grants say where the schedule of the inner learning rate goes on: after the batches of the base', () => {
  const desk = groupDesk(alike(['a', 'b']))
  const [a, b] = [ask(desk, 'a'), ask(desk, 'b')]
  assert.equal(a.fromStep, 0)
  push(desk, 'a', a)
  push(desk, 'b', b)
  assert.equal(ask(desk, 'a').fromStep, 2 * H)
})

test('blocks that come back are found before those that were never given', () => {
  const desk = groupDesk(alike(['a', 'b', 'c']))
  const [a, b] = [ask(desk, 'a'), ask(desk, 'b')]
  desk.feed({ type: 'member-lost', member: memberId('a'), reason: 'closed', expected: false })
  assert.deepEqual(blocksOf(ask(desk, 'c')), blocksOf(a))
  push(desk, 'b', b)
  desk.join('d')
  assert.equal(new Set([...blocksOf(a), ...blocksOf(b), ...blocksOf(ask(desk, 'd'))]).size, 3 * H * BATCH)
})

test('where rounds have all that is left of an epoch, a version waits for all of them, and not for long', () => {
  const names = ['a', 'b', 'c', 'd', 'e']
  const { desk, grants } = asyncDesk(names, {
    blocks: 20,
    batchBlocks: 1,
    blockSamples: 1,
    async: asyncPolicy(undefined, 12, { innerSteps: 4 }),
  })
  assert.equal(grants.flatMap(({ leases }) => leases).length, 20, 'the whole epoch is leased')
  for (const i of [0, 1, 2, 3]) push(desk, names[i] ?? '', grants[i] ?? assert.fail())
  assert.equal(desk.state.chain.head.v, 0, 'four fifths are here, and have nothing else to do')
  const [, , , , late] = grants
  assert.ok(late)
  desk.wait(2001)
  assert.equal(desk.state.chain.head.v, 1, 'the last one takes too long')
  push(desk, 'e', late)
  assert.equal(desk.state.chain.head.v, 2)
})
