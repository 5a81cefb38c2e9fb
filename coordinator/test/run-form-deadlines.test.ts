// How long the members of a FORM wait for one that does not confirm: a multiple of what the others took.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
import { Desk } from './run-desk.ts'

/** All answered a first ballot; version 0 comes from the seed. */
function forming(...names: string[]): Desk {
  const desk = new Desk({ minVolunteers: names.length, blocks: 600 })
  desk.join(...names)
  for (const name of names) desk.answer(name)
  assert.equal(desk.phase, 'form')
  return desk
}

/** Ticks five times a second until the ballot ends; ms that it took. */
function waited(desk: Desk): number {
  const began = desk.now
  while (desk.phase === 'form' && desk.now - began < 60_000) desk.wait(200)
  return desk.now - began
}

const isOut = (desk: Desk, name: string): boolean =>
  (desk.state.members.get(memberId(name))?.excludedUntil ?? 0) > desk.now

test('a volunteer that is mute at the first ballot of a run costs the others a few seconds, not thirty', () => {
  for (const names of [
    ['a', 'mute'],
    ['a', 'b', 'mute'],
    ['a', 'b', 'c', 'd', 'mute'],
  ]) {
    const desk = forming(...names)
    for (const name of names) if (name !== 'mute') desk.confirm(name)
    const ms = waited(desk)
    assert.ok(ms >= 4000 && ms < 6000, `${names.length} members wait ${ms} ms`)
    assert.ok(isOut(desk, 'mute'))
    for (const name of names) desk.answer(name)
    assert.ok(!desk.members.includes(memberId('mute')))
  }
})

test('a slow machine gets four times what the others took, thirty seconds at most', () => {
  for (const [tookMs, least, most] of [
    [2000, 11_000, 13_000],
    [9000, 29_000, 31_000],
  ] as const) {
    const desk = forming('a', 'b', 'slow')
    desk.now += tookMs
    for (const name of ['a', 'b']) desk.confirm(name)
    const ms = tookMs + waited(desk)
    assert.ok(ms >= least && ms <= most, `${ms} ms`)
  }
})

test('a large model gives all of them longer, for its digest', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 600, versionBytes: 250_000_000 })
  desk.join('a', 'b')
  for (const name of ['a', 'b']) desk.answer(name)
  desk.confirm('a')
  const ms = waited(desk)
  assert.ok(ms >= 14_000 && ms < 16_000, `${ms} ms`)
})

test('of two neighbours that are late none is blamed early: one may wait for its link to the other', () => {
  const desk = forming('a', 'b', 'c', 'd')
  for (const name of ['a', 'b']) desk.confirm(name)
  assert.ok(waited(desk) >= 30_000)
})

test('where most are late the others are no measure', () => {
  const desk = forming('a', 'b', 'c')
  desk.confirm('a')
  assert.ok(waited(desk) >= 30_000)
})

test('a member that has to fetch a state is given the whole time', () => {
  const desk = forming('a', 'b')
  for (const name of ['a', 'b']) desk.confirm(name)
  desk.step(1)
  desk.lose('b')
  desk.join('b')
  desk.answer('a', [])
  desk.answer('b')
  assert.deepEqual([desk.phase, desk.members.length], ['form', 2])
  desk.confirm('a')
  assert.ok(waited(desk) >= 10_000)
})

test('a newcomer that proved what it holds and is then mute costs the ring a few seconds', () => {
  const desk = forming('a', 'b')
  for (const name of ['a', 'b']) desk.confirm(name)
  for (const v of [1, 2]) desk.step(v)
  desk.join('mute')
  desk.admit()
  for (const name of ['a', 'b', 'mute']) desk.answer(name, [])
  assert.deepEqual([desk.phase, desk.members.length], ['form', 3])
  for (const name of ['a', 'b']) desk.confirm(name)
  const ms = waited(desk)
  assert.ok(ms >= 4000 && ms < 6000, `${ms} ms`)
  assert.equal(desk.state.admissions.failed.length, 1)
})

test('newcomers that are mute together, more of them than confirm, cost the ring ten seconds and not thirty', () => {
  const desk = forming('a')
  desk.confirm('a')
  desk.step(1)
  const mute = ['mute-1', 'mute-2', 'mute-3']
  desk.join(...mute)
  desk.admit()
  for (const name of ['a', ...mute]) desk.answer(name, [])
  assert.deepEqual([desk.phase, desk.members.length], ['form', 4])
  desk.confirm('a')
  const ms = waited(desk)
  assert.ok(ms <= 10_200, `${ms} ms`)
})
