// A journal that was restored from a backup, while members live that hold more. Which numbers its coordinator goes on
// with, and what it believes of steps whose rows are lost.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import { Desk } from './run-desk.ts'

interface Restored {
  readonly desk: Desk
  /** of the coordinator that died with its disk */
  readonly seen: { readonly fence: number; readonly generation: number }
  /** what its members held last, from the version on that the backup has */
  readonly base: VersionRef
  readonly records: readonly StepRecord[]
  readonly head: VersionRef
}

/** A ring that went on for two generations and three steps after the backup was made. */
function restored(ring: readonly string[] = ['a', 'b'], options: ConstructorParameters<typeof Desk>[0] = {}): Restored {
  const config = { minVolunteers: 1, blocks: 300, ...options }
  const lost = new Desk(config)
  const again = (): void => {
    lost.lose(ring[0] ?? '')
    lost.join(ring[0] ?? '')
    lost.run(...ring)
  }
  lost.join(...ring)
  if (lost.phase === 'freeze') lost.run(...ring)
  lost.step(1)
  const base = lost.state.chain.head
  const rows = lost.entries.length
  again()
  lost.step(2)
  again()
  for (const v of [3, 4]) lost.step(v)
  const { fence, generation, chain } = lost.state
  lost.entries.length = rows
  const desk = new Desk(config, lost)
  return { desk, seen: { fence, generation }, base, records: chain.records.slice(1), head: chain.head }
}

const promises = (desk: Desk, name: string, seen: Restored['seen']) => desk.say(name, { type: 'promised', seen })

test('a restored coordinator goes above what members promised in one ballot, once all had time to say so', () => {
  const { desk, seen } = restored()
  const before = desk.state.generation
  desk.join('a', 'b')
  promises(desk, 'a', { ...seen, generation: seen.generation - 1 })
  assert.equal(desk.state.generation, before, 'the other one may have heard of more')
  promises(desk, 'b', seen)
  assert.deepEqual(desk.journalled('ballot'), [{ type: 'ballot', generation: seen.generation + 1, after: 1 }])
  assert.ok(desk.state.fence >= seen.fence)
  assert.deepEqual(
    desk.sent('freeze').map(({ to, generation, committed }) => [to, generation, committed]),
    [
      ['a', seen.generation + 1, 1],
      ['b', seen.generation + 1, 1],
    ],
  )
})

test('owners that members heard of are exceeded, too, in the same append', () => {
  const { desk, seen } = restored()
  desk.join('a', 'b')
  for (const name of ['a', 'b']) promises(desk, name, { ...seen, fence: 900 })
  assert.deepEqual(
    desk.effects.flatMap((effect) => (effect.type === 'journal' ? [effect.entries.map(({ type }) => type)] : [])),
    [['fence', 'ballot']],
  )
  assert.equal(desk.state.fence, 901)
  assert.deepEqual(new Set(desk.sent('freeze').map(({ fence }) => fence)), new Set([901]))
})

test('a number that was promised to the coordinator before is not used again', () => {
  const { desk } = restored()
  desk.join('a', 'b')
  const { generation, fence } = desk.state
  for (const name of ['a', 'b']) promises(desk, name, { fence: fence - 1, generation })
  assert.equal(desk.state.generation, generation + 1)
})

test('steps whose rows are lost are on the chain again when two members hold them, once each', () => {
  const { desk, seen, base, records, head } = restored()
  desk.join('a', 'b')
  for (const name of ['a', 'b']) promises(desk, name, seen)
  for (const name of ['a', 'b']) desk.answer(name, records, base)
  for (const name of ['a', 'b']) desk.confirm(name)
  assert.deepEqual([desk.phase, desk.state.chain.head], ['ring', head])
  const blocks = desk.state.chain.records.flatMap((record) => record.blocks)
  assert.equal(new Set(blocks).size, blocks.length)
  assert.ok(desk.planned(5).every((block) => !blocks.includes(block)))
})

test('one member alone is not believed about lost steps: they are repeated, and the reason is said', () => {
  const { desk, seen, base, records } = restored()
  desk.join('a', 'b')
  for (const name of ['a', 'b']) promises(desk, name, seen)
  desk.answer('a', records, base)
  desk.answer('b', [], base)
  assert.ok(
    desk.effects.some(
      (effect) => effect.type === 'note' && /a alone holds version 4, whose records the journal lost/.test(effect.text),
    ),
  )
  const { phase } = desk.state
  assert.deepEqual([phase.type, phase.type === 'form' && phase.target], ['form', base])
  assert.deepEqual(desk.refusals, [], 'it is no liar for that')
})

test('a member of a lost ring that comes back alone is not believed either', () => {
  const { desk, seen, base, records, head } = restored()
  desk.join('a')
  promises(desk, 'a', seen)
  desk.answer('a', records, base)
  for (let second = 0; second < 60; second++) {
    desk.wait(1000)
    if (desk.phase === 'freeze') desk.answer('a', records, base)
    const { phase } = desk.state
    assert.ok(phase.type !== 'form' || phase.target.v < head.v, `after ${second} s its word makes version ${head.v}`)
  }
})

test('of two members one step apart the lower one is what both vouch for', () => {
  const { desk, seen, base, records } = restored()
  desk.join('a', 'b')
  for (const name of ['a', 'b']) promises(desk, name, seen)
  desk.answer('a', records, base)
  desk.answer('b', records.slice(0, -1), base)
  const { phase } = desk.state
  assert.equal(phase.type === 'form' && phase.target.v, 3)
})

test('a member that was the whole ring is believed about what it held', () => {
  const { desk, seen, base, records, head } = restored(['a'])
  desk.join('a')
  promises(desk, 'a', seen)
  desk.answer('a', records, base)
  desk.confirm('a')
  assert.deepEqual([desk.phase, desk.state.chain.head], ['ring', head])
})

test('after a restart in the middle the lost generations are still known', () => {
  const { desk, seen, base, records, head } = restored()
  desk.join('a', 'b')
  for (const name of ['a', 'b']) promises(desk, name, seen)
  const next = new Desk({ minVolunteers: 1, blocks: 300 }, desk)
  next.join('a', 'b')
  for (const name of ['a', 'b']) next.answer(name, records, base)
  for (const name of ['a', 'b']) next.confirm(name)
  assert.deepEqual(next.state.chain.head, head)
})

test('a promise beyond every backup is a lie: it is refused, and no number is taken from it', () => {
  const { desk, seen } = restored()
  desk.join('a', 'b')
  const { generation } = desk.state
  promises(desk, 'a', { ...seen, generation: Number.MAX_SAFE_INTEGER })
  assert.deepEqual(desk.refusals, ['a message-unexpected'])
  desk.wait(20_000)
  assert.ok(desk.state.generation < generation + 3)
})

test('a member that says so while a ring runs costs it no step, and three ballots a minute at most', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 6000 })
  desk.join('a', 'b')
  desk.run('a', 'b')
  desk.step(1)
  const ballots = desk.journalled('ballot').length
  let opened = 0
  for (let second = 0; second < 60; second++) {
    promises(desk, 'b', { fence: desk.state.fence, generation: desk.state.generation + 5 })
    desk.wait(500)
    for (let i = 0; i < 2 && desk.phase === 'ring'; i++) desk.step(desk.state.chain.head.v + 1)
    if (desk.phase === 'freeze') {
      opened++
      desk.run('a', 'b')
    }
    desk.wait(500)
  }
  assert.deepEqual([ballots, opened], [0, 3])
  const steps = desk.state.chain.head.v
  assert.ok(steps >= 110, `${steps} steps`)
})

test('in async mode the numbers rise and the work goes on', () => {
  const desk = new Desk({ mode: 'async', blocks: 300 })
  desk.join('a')
  desk.answer('a')
  assert.equal(desk.phase, 'async')
  const { generation } = desk.state
  promises(desk, 'a', { fence: desk.state.fence + 4, generation: generation + 7 })
  assert.equal(desk.phase, 'async')
  assert.deepEqual(
    desk.sent('async').map(({ to, fence, generation: number }) => [to, fence, number]),
    [[memberId('a'), desk.state.fence, generation + 8]],
  )
})

test('holders of steps of a backup without any ring form the next one; a newcomer beside them does not', () => {
  const config = { minVolunteers: 2, blocks: 300 }
  const lost = new Desk(config)
  const rows = lost.entries.length
  const base = lost.state.chain.head
  lost.join('a', 'b')
  lost.run('a', 'b')
  for (const v of [1, 2]) lost.step(v)
  const { fence, generation, chain } = lost.state
  lost.entries.length = rows
  const desk = new Desk(config, lost)
  desk.join('a', 'mute', 'b')
  for (const name of ['a', 'b']) promises(desk, name, { fence, generation })
  for (let ballot = 0; ballot < 2; ballot++) desk.answer('mute')
  for (const name of ['a', 'b']) desk.answer(name, chain.records, base)
  assert.deepEqual([desk.phase, desk.members.toSorted()], ['form', ['a', 'b']])
})
