// A version that only members hold from which no other can fetch it: the run goes on with them alone, or without it
// (R17).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DEFAULT_TIMING } from '@starling-grid/coordinator/run'
import { memberId, type VersionRef } from '@starling-grid/protocol'
import { mayRelay } from '../src/run/links/generation-links.ts'
import { newcomer } from '../src/run/ring/newcomer.ts'
import { Desk } from './run-desk.ts'

interface Holding {
  readonly desk: Desk
  /** what the holder claims */
  readonly held: VersionRef
}

/** A ring of one at version 2, which no checkpoint holds; then others come, and its socket breaks once. */
function soleHolder(...others: readonly string[]): Holding {
  const desk = new Desk({ minVolunteers: 1, blocks: 60 })
  desk.join('holder')
  desk.run('holder')
  for (const v of [1, 2]) desk.step(v)
  const held = desk.state.chain.head
  desk.lose('holder')
  desk.join('holder', ...others)
  for (const name of others) newcomer(desk.state, memberId(name)).proven = true
  return { desk, held }
}

function answers({ desk, held }: Holding, others: readonly string[]): void {
  desk.answer('holder', [], held)
  for (const name of others) desk.answer(name)
}

/** One of them gives the FORM up: the holder's link does not open. */
function giveUp(desk: Desk, others: readonly string[]): void {
  const by = others.find((name) => desk.members.some((id) => id === name))
  if (by === undefined) return void desk.wait(DEFAULT_TIMING.formMs + 1)
  const message = 'no link to the holder'
  desk.say(by, { type: 'abort', step: 3, blamed: null, why: 'stalled', links: [], code: 'link-lost', message })
}

test('a holder that no member reaches goes on alone after three attempts, and loses no step', () => {
  const others = ['b', 'c', 'd', 'e']
  const holding = soleHolder(...others)
  const { desk } = holding
  let attempts = 0
  for (; attempts < 10 && desk.phase !== 'ring'; attempts++) {
    answers(holding, others)
    assert.equal(desk.phase, 'form')
    if (desk.members.length === 1) desk.confirm('holder')
    else giveUp(desk, [...others.slice(attempts % 4), ...others])
  }
  assert.equal(attempts, 4)
  assert.deepEqual([desk.phase, [...desk.members], desk.state.chain.head.v], ['ring', ['holder'], 2])
})

test('a holder that is left out of the ring is told which members fetch from it', () => {
  const others = ['b', 'c']
  const holding = soleHolder(...others)
  const { desk } = holding
  const holder = desk.state.members.get(memberId('holder')) ?? assert.fail()
  holder.excludedUntil = desk.now + 60_000
  answers(holding, others)
  assert.deepEqual(
    [desk.phase, [...desk.members].toSorted()],
    ['form', others.map((name) => memberId(name)).toSorted()],
  )
  assert.deepEqual(
    desk.sent('meet').map(({ to, members }) => [to, members]),
    [['holder', desk.members]],
  )
})

test('a holder outside the ring, whose link did not open, serves through the coordinator at the next ballot', () => {
  const holding = soleHolder('b')
  const { desk } = holding
  const [b, holder] = [memberId('b'), memberId('holder')]
  const member = desk.state.members.get(holder) ?? assert.fail()
  member.excludedUntil = desk.now + 60_000
  answers(holding, ['b'])
  assert.deepEqual(
    desk.sent('form').map(({ relayedSources }) => relayedSources),
    [undefined],
  )
  assert.equal(mayRelay(desk.state, b, holder), false)
  const message = 'no link to the holder'
  desk.say('b', {
    type: 'abort',
    step: 3,
    blamed: holder,
    why: 'unopened',
    links: [holder],
    code: 'link-lost',
    message,
  })
  answers(holding, ['b'])
  assert.deepEqual(
    desk.sent('meet').map(({ to, members, relayed }) => [to, members, relayed]),
    [[holder, [b], [b]]],
  )
  assert.deepEqual(
    desk.sent('form').map(({ relayedSources }) => relayedSources),
    [[holder]],
  )
  assert.equal(mayRelay(desk.state, holder, b), true)
  desk.confirm('b')
  assert.deepEqual([desk.phase, mayRelay(desk.state, holder, b)], ['ring', false])
})

test('what a holder claims that answers ballots and nothing else counts as gone after a minute', () => {
  const holding = soleHolder('b')
  const { desk } = holding
  const began = desk.now
  const rewinds = (): number => desk.entries.filter(({ entry }) => entry.type === 'rewind').length
  for (let ballots = 0; ballots < 20 && rewinds() === 0; ballots++) {
    answers(holding, ['b'])
    if (desk.phase === 'form') giveUp(desk, ['b'])
  }
  assert.equal(rewinds(), 1)
  assert.ok(desk.now - began >= DEFAULT_TIMING.lostMs, `${desk.now - began} ms`)
  for (let ballots = 0; ballots < 5 && desk.phase !== 'ring'; ballots++) {
    answers(holding, ['b'])
    if (desk.members.includes(memberId('b'))) desk.confirm('b')
    if (desk.phase === 'form') desk.wait(DEFAULT_TIMING.formMs + 1)
  }
  assert.deepEqual([desk.phase, [...desk.members], desk.state.chain.head.v], ['ring', ['b'], 0])
})

test('a member that gives up again and again is left out, however long its ballots wait', () => {
  const desk = new Desk({ minVolunteers: 1, blocks: 60 })
  desk.join('a')
  desk.run('a')
  desk.step(1)
  for (let i = 0; i < 12; i++) {
    const message = 'its gradient is not finite'
    desk.say('a', { type: 'abort', step: 2, blamed: null, why: 'own', links: [], code: 'gradient-not-finite', message })
    desk.answer('a', [])
    desk.wait(2 * DEFAULT_TIMING.retryMaxMs)
    desk.confirm('a')
  }
  const [member] = desk.state.members.values()
  assert.ok((member?.exclusions ?? 0) > 3, `left out ${member?.exclusions} times`)
})
