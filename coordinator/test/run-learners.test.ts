// Newcomers that catch up while the ring runs: who keeps a copy, when they are told of it, and when they are admitted.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId, type VersionRef } from '@starling-grid/protocol'
import { REPLAYED } from '../src/run/ring/learners.ts'
import { Desk, hashOf } from './run-desk.ts'

/** A ring of two at version 3, and a newcomer. */
function ringWithNewcomer(): Desk {
  const desk = new Desk({ minVolunteers: 2, blocks: 300 })
  desk.join('a', 'b')
  desk.run('a', 'b')
  for (const v of [1, 2, 3]) desk.step(v)
  desk.join('c')
  return desk
}

const at = (desk: Desk, v: number): VersionRef => desk.state.chain.at(v) ?? desk.state.chain.genesis

/** Both keep a copy of version 5, which is committed; the newcomer hears of it. */
function offered(): Desk {
  const desk = ringWithNewcomer()
  desk.wait(200)
  for (const v of [4, 5]) desk.step(v)
  for (const name of ['a', 'b']) desk.copy(name, at(desk, 5))
  desk.wait(200)
  return desk
}

test('members are asked for a copy of a version that no member holds yet', () => {
  const desk = ringWithNewcomer()
  desk.wait(200)
  assert.deepEqual(
    desk.sent('copy-at').map(({ to, v }) => [to, v]),
    [
      ['a', 5],
      ['b', 5],
    ],
  )
  desk.wait(200)
  assert.deepEqual(desk.sent('copy-at'), [], 'once')
  for (const v of [4, 5]) desk.step(v)
  desk.wait(1800)
  assert.deepEqual(
    desk.sent('copy-at').map(({ v }) => v),
    [9, 9],
    'they had passed it',
  )
  desk.wait(4000)
  assert.deepEqual(
    desk.sent('copy-at').map(({ v }) => v),
    [5, 5],
    'steps take long: what they hold now',
  )
})

test('a newcomer hears of the copies when their version is committed, not before', () => {
  const desk = ringWithNewcomer()
  desk.wait(200)
  desk.say('a', { type: 'copied', version: { ...at(desk, 3), v: 4 }, digest: hashOf('copy') })
  desk.wait(200)
  assert.deepEqual(desk.sent('prefetch'), [])
  assert.deepEqual(
    offered()
      .sent('prefetch')
      .map(({ to, version, sources }) => [to, version.v, sources]),
    [['c', 5, ['a', 'b']]],
  )
})

test('threat 28: its sources hear of a newcomer once in a generation: they answer no offer of others', () => {
  const desk = offered()
  assert.deepEqual(
    desk.sent('meet').map(({ to, members }) => [to, members]),
    [
      ['a', ['c']],
      ['b', ['c']],
    ],
  )
  desk.say('c', { type: 'prefetched', version: at(desk, 5) })
  desk.step(6)
  desk.wait(200)
  assert.equal(desk.sent('follow').length, 1)
  assert.deepEqual(desk.sent('meet'), [])
})

test('it is not admitted while it learns, also when the ring changes for another reason', () => {
  const desk = offered()
  desk.wait(20_000)
  assert.equal(desk.phase, 'ring')
  desk.lose('b')
  desk.answer('c')
  desk.answer('a', [])
  assert.deepEqual(
    desk.sent('form').map(({ to, members }) => [to, members]),
    [['a', ['a']]],
  )
})

test('a newcomer that holds the copy gets the records since, and is admitted with the rest to replay', () => {
  const desk = offered()
  desk.step(6)
  desk.say('c', { type: 'prefetched', version: at(desk, 5) })
  desk.wait(200)
  assert.deepEqual(
    desk.sent('follow').map(({ to, records, sources }) => [to, records.map(({ v }) => v), sources]),
    [['c', [6], ['a', 'b']]],
  )
  desk.admit()
  for (const name of ['a', 'b']) desk.answer(name, [])
  desk.answer('c', [], at(desk, 5))
  const form = desk.sent('form').find(({ to }) => to === memberId('c'))
  assert.deepEqual(
    [form?.members, form?.committed.v, form?.records.map(({ v }) => v), form?.sources],
    [['a', 'b', 'c'], 5, [6], ['a', 'b']],
  )
})

test('a newcomer that fetches quickly is admitted by the ballot that opened for it, though steps are quick', () => {
  const desk = offered()
  desk.say('c', { type: 'prefetched', version: at(desk, 5) })
  for (let v = 6; v <= 6 + REPLAYED; v++) desk.step(v)
  desk.admit()
  for (const name of ['a', 'b']) desk.answer(name, [])
  desk.answer('c', [], at(desk, 5))
  const form = desk.sent('form').find(({ to }) => to === memberId('c'))
  assert.deepEqual([form?.members, form?.committed.v, form?.records], [['a', 'b', 'c'], desk.state.chain.head.v, []])
})

test('a proven newcomer that can follow from no member is admitted after three tries, and the reason is said', () => {
  const desk = offered()
  desk.learn('c')
  const notes: string[] = []
  for (let tries = 0; tries < 3; tries++) {
    desk.step(desk.state.chain.head.v + 1)
    desk.wait(200)
    desk.say('c', { type: 'prefetched', version: null })
    notes.push(...desk.effects.flatMap((effect) => (effect.type === 'note' ? [effect.text] : [])))
    if (tries === 2) break
    desk.wait(2000)
    for (const name of ['a', 'b']) desk.copy(name, desk.state.chain.head)
    desk.say('c', { type: 'prefetched', version: at(desk, 5) })
  }
  assert.match(notes.join(), /c cannot follow the steps from any member/)
  desk.wait(3000)
  desk.wait(3001)
  assert.equal(desk.phase, 'freeze')
  for (const name of ['a', 'b']) desk.answer(name, [])
  desk.answer('c')
  assert.deepEqual(desk.members.toSorted(), ['a', 'b', 'c'])
})

test('after a ballot it goes on from what it said to hold', () => {
  const desk = offered()
  desk.step(6)
  desk.lose('b')
  desk.answer('a', [])
  desk.answer('c', [], at(desk, 5))
  desk.confirm('a')
  desk.wait(200)
  assert.deepEqual(
    desk.sent('follow').map(({ to, records }) => [to, records.map(({ v }) => v)]),
    [['c', [6]]],
  )
  assert.deepEqual(desk.sent('prefetch'), [])
})

test('a newcomer whose line is slower than the steps opens no ballot, however long it follows', () => {
  const desk = offered()
  desk.wait(9000) // a whole state takes it longer than the others bear
  desk.learn('c')
  for (let v = 6; v <= 60; v++) {
    desk.step(v)
    desk.wait(1000)
    if (v % 3 === 0 && v >= 15) desk.say('c', { type: 'prefetched', version: at(desk, v / 3) }) // a third of the pace
    assert.equal(desk.phase, 'ring', `at step ${v}`)
    assert.equal(desk.state.phase.type === 'ring' && desk.state.phase.lastStep, undefined)
  }
  desk.say('c', { type: 'prefetched', version: at(desk, 60) })
  desk.wait(200)
  assert.equal(desk.sent('last-step').length, 2, 'it caught up')
})

test('a newcomer that is always three steps behind, because it follows as fast as they are made, is admitted', () => {
  const desk = offered()
  desk.wait(9000) // a whole state takes it longer than the others bear
  desk.learn('c')
  const said = (v: number): void => {
    desk.step(v)
    desk.wait(400)
    if (v >= 9) desk.say('c', { type: 'prefetched', version: at(desk, v - 3) })
  }
  for (let v = 6; v <= 9; v++) said(v)
  desk.wait(0)
  assert.deepEqual(desk.sent('last-step'), [], 'three steps of 1200 ms each, as its first one took')
  said(10)
  desk.wait(0)
  assert.equal(desk.sent('last-step').length, 2, 'three of 400 ms')
})

test('one that kept a version of an earlier visit continues from it if near, and fetches a copy otherwise', () => {
  const joins = (v: number, id?: VersionRef['id']) => {
    const desk = new Desk({ minVolunteers: 2, blocks: 300 })
    desk.join('a', 'b')
    desk.run('a', 'b')
    for (let step = 1; step <= 12; step++) desk.step(step)
    const holds = { v, id: id ?? at(desk, v).id }
    desk.feed({
      type: 'member-joined',
      samplesPerSecond: 100,
      holds,
      member: {
        id: memberId('c'),
        name: 'c',
        client: 'node',
        adapter: { name: 'none', vendor: 'test', software: true, executor: 'reference' },
      },
    })
    const note = desk.effects.flatMap((effect) => (effect.type === 'note' ? [effect.text] : [])).at(-1)
    desk.wait(200)
    return [note, desk.sent('follow').map(({ records }) => records.length), desk.sent('copy-at').length]
  }
  assert.deepEqual(joins(9), ['c goes on from version 9, which it kept', [3], 2], 'copies to compare with')
  assert.deepEqual(joins(3), ['c kept version 3, which is 9 behind: it fetches another', [], 2])
  assert.deepEqual(joins(9, 'f'.repeat(64) as VersionRef['id']), [
    'c kept version 9, which is not on the chain: it fetches another',
    [],
    2,
  ])
})

test('one that follows from what it kept, and stays further behind than a copy costs, is offered a copy', () => {
  const desk = ringWithNewcomer()
  desk.lose('c')
  for (let v = 4; v <= 12; v++) desk.step(v)
  const member = { id: memberId('d'), name: 'd', client: 'node' } as const
  const adapter = { name: 'none', vendor: 'test', software: true, executor: 'reference' } as const
  desk.feed({ type: 'member-joined', samplesPerSecond: 100, holds: at(desk, 11), member: { ...member, adapter } })
  const offers: number[] = []
  for (let v = 13; v <= 40 && offers.length === 0; v++) {
    desk.step(v)
    for (const name of ['a', 'b']) desk.copy(name, at(desk, v))
    desk.wait(400)
    offers.push(...desk.sent('prefetch').map(({ version }) => version.v))
    if (v > 20) desk.say('d', { type: 'prefetched', version: at(desk, v - 9) })
  }
  assert.deepEqual(offers, [15], 'a copy that members made meanwhile, newer than what it holds')
})

test('one that returns after its ring went on leaves it, and continues from a near committed version', () => {
  const comesBack = (records: number) => {
    const desk = new Desk({ minVolunteers: 3, blocks: 300 })
    desk.join('a', 'b', 'c')
    desk.run('a', 'b', 'c')
    for (let v = 1; v <= 12; v++) desk.step(v)
    desk.lose('c')
    desk.run('a', 'b')
    desk.step(13)
    desk.join('c')
    assert.deepEqual(
      desk.sent('freeze').map(({ to, generation }) => [to, generation]),
      [['c', 2]],
    )
    desk.answer('c', desk.state.chain.records.slice(1, records), at(desk, 1))
    const acks = desk.sent('ack').map(({ to, committed }) => [to, committed.v])
    desk.wait(200)
    return [acks, desk.sent('follow').map(({ records }) => records.map(({ v }) => v)), desk.sent('copy-at').length]
  }
  assert.deepEqual(comesBack(11), [[['c', 11]], [[12, 13]], 0])
  assert.deepEqual(comesBack(3), [[], [], 2])
})

test('a copy that is too far behind is offered to no newcomer: the run asks for a new one', () => {
  const desk = offered()
  desk.lose('c')
  for (let v = 6; v <= 60; v++) desk.step(v)
  desk.join('d')
  desk.wait(2000)
  assert.deepEqual([desk.sent('prefetch'), desk.sent('copy-at').map(({ to }) => to)], [[], ['a', 'b']])
})

test('one that finds no more steps to follow is offered a newer copy', () => {
  const desk = offered()
  desk.say('c', { type: 'prefetched', version: at(desk, 5) })
  desk.say('c', { type: 'prefetched', version: null })
  desk.wait(2000)
  assert.deepEqual(desk.sent('prefetch'), [])
  assert.deepEqual(
    desk.sent('copy-at').map(({ v }) => v),
    [7, 7],
  )
  for (const v of [6, 7]) desk.step(v)
  for (const name of ['a', 'b']) desk.copy(name, at(desk, 7))
  desk.wait(200)
  assert.deepEqual(
    desk.sent('prefetch').map(({ to, version }) => [to, version.v]),
    [['c', 7]],
  )
})

test('a version that is not on the chain is nothing to go on from', () => {
  const desk = offered()
  desk.say('c', { type: 'prefetched', version: { ...at(desk, 5), id: at(desk, 4).id } })
  desk.wait(200)
  assert.deepEqual(desk.sent('follow'), [])
})

test('version 0 is fetched of no member: the seed makes it, and the coordinator compares', () => {
  const desk = new Desk({ minVolunteers: 1 })
  desk.join('a')
  desk.run('a')
  desk.join('b')
  desk.wait(200)
  assert.deepEqual(desk.sent('copy-at'), [])
  assert.deepEqual(
    desk.sent('prefetch').map(({ version, sources }) => [version.v, sources]),
    [[0, []]],
  )
  desk.learn('b')
  desk.wait(3000)
  desk.wait(3001)
  assert.equal(desk.phase, 'freeze')
  for (const name of ['a', 'b']) desk.answer(name, [])
  assert.deepEqual(desk.members, ['a', 'b'], 'the ballot takes in the newcomer that it was opened for')
})

test('what was told and brought no news is told again: it may have come before the newcomer knew its place', () => {
  const desk = offered()
  desk.wait(9000)
  desk.learn('c')
  desk.step(6)
  const told: number[][] = []
  for (let v = 7; v <= 20; v++) {
    desk.wait(1000)
    told.push(desk.sent('follow').flatMap(({ records }) => records.map((record) => record.v)))
    desk.step(v)
  }
  assert.deepEqual(told[0], [6])
  assert.ok(
    told.slice(1).some((versions) => versions[0] === 6),
    'from what it holds',
  )
})
