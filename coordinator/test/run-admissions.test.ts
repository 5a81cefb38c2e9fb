// Newcomers that stop a ring and never confirm: how long they cost the others, and how often.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
import { newcomer } from '../src/run/ring/newcomer.ts'
import { own } from '../src/run/state.ts'
import { Desk } from './run-desk.ts'

/** A ring of two that has committed a step. */
function ringOfTwo(): Desk {
  const desk = new Desk({ minVolunteers: 2, blocks: 6000, epochs: 1 })
  desk.join('a', 'b')
  desk.run('a', 'b')
  desk.step(1)
  return desk
}

function joinFrom(desk: Desk, name: string, network: string): void {
  desk.feed({
    type: 'member-joined',
    samplesPerSecond: 100,
    holds: desk.state.chain.head,
    member: {
      id: memberId(name),
      name,
      client: 'node',
      network,
      adapter: { name: 'none', vendor: 'test', software: true, executor: 'reference' },
    },
  })
}

/**
 * For so many ms: honest members answer and confirm at once and make a step a second, newcomers answer and never
 * confirm. Returns the steps.
 */
function train(desk: Desk, ms: number, newcomer?: (second: number) => void): number {
  const before = desk.state.chain.head.v
  for (let second = 0; second < ms / 1000; second++) {
    newcomer?.(second)
    for (let tick = 0; tick < 5; tick++) {
      desk.wait(200)
      const { phase, members } = desk.state
      if (phase.type === 'freeze') for (const { id } of members.values()) if (!phase.claims.has(id)) desk.answer(id, [])
      for (const name of ['a', 'b']) if (desk.phase === 'form') desk.confirm(name)
    }
    if (desk.phase === 'ring') desk.step(desk.state.chain.head.v + 1)
  }
  return desk.state.chain.head.v - before
}

test('a mute newcomer costs a ring no step: no ballot opens for what it did not prove', () => {
  const desk = ringOfTwo()
  joinFrom(desk, 'mute', 'x')
  assert.equal(train(desk, 60_000), 60)
  assert.deepEqual([desk.state.generation, desk.state.admissions.failed], [1, []])
})

test('mute newcomers of many networks, one every four seconds, cost no step and delay no other ballot', () => {
  const desk = ringOfTwo()
  const join = (second: number) =>
    second % 4 === 0 ? joinFrom(desk, `mute-${second}`, `network-${second}`) : undefined
  assert.equal(train(desk, 120_000, join), 120)
  desk.join('b')
  for (const name of ['a', 'b']) desk.answer(name, [])
  assert.deepEqual([desk.phase, desk.members], ['form', ['a', 'b']], 'their answers are not waited for')
})

/** It shows what it holds, and then says nothing more. */
function joinProven(desk: Desk, name: string, network: string): void {
  joinFrom(desk, name, network)
  Object.assign(newcomer(desk.state, memberId(name)), { proven: true, learner: undefined })
}

test('a newcomer that proved itself and never confirms stops the others for a few seconds, not for thirty', () => {
  const desk = ringOfTwo()
  joinProven(desk, 'mute', 'x')
  const steps = train(desk, 60_000)
  assert.ok(steps >= 50 && steps < 60, `${steps} steps in a minute`)
  assert.ok((desk.state.members.get(memberId('mute'))?.excludedUntil ?? 0) > 0)
})

test('such newcomers, one every four seconds under new ids, stop a ring twice in two minutes at most', () => {
  const desk = ringOfTwo()
  const steps = train(desk, 120_000, (second) =>
    second % 4 === 0 ? joinProven(desk, `mute-${second}`, 'x') : undefined,
  )
  assert.ok(steps >= 90 && steps < 120, `${steps} steps in two minutes`)
})

test('such newcomers of many networks stop a ring three times in a minute at most', () => {
  const desk = ringOfTwo()
  const steps = train(desk, 120_000, (second) =>
    second % 4 === 0 ? joinProven(desk, `mute-${second}`, `network-${second}`) : undefined,
  )
  assert.ok(steps >= 40 && steps < 120, `${steps} steps in two minutes`)
})

test('an honest newcomer of another network is admitted meanwhile', () => {
  const desk = ringOfTwo()
  joinProven(desk, 'mute', 'x')
  train(desk, 30_000)
  joinProven(desk, 'honest', 'y')
  train(desk, 5000)
  desk.confirm('honest')
  assert.ok(desk.phase === 'ring' && desk.members.includes(memberId('honest')))
})

/**
 * A ring of these at version 3 that was asked for copies at version 5, and `c`, which fetched and is asked to prove.
 */
function asked(...names: string[]): Desk {
  const desk = new Desk({ minVolunteers: names.length, blocks: 6000 })
  desk.join(...names)
  desk.run(...names)
  for (const v of [1, 2, 3]) desk.step(v)
  desk.join('c')
  desk.wait(200)
  for (const v of [4, 5]) desk.step(v)
  return desk
}
const five = (desk: Desk) => desk.state.chain.at(5) ?? desk.state.chain.genesis
const isProven = (desk: Desk) => desk.state.newcomers.get(memberId('c'))?.proven === true

test('its digest has to be that of the clear majority of those that keep a copy, and of one other at least', () => {
  const verdict = (own: string, ...copies: string[]) => {
    const names = ['a', 'b', 'd'].slice(0, copies.length)
    const desk = asked(...names)
    for (const [i, name] of names.entries()) desk.copy(name, five(desk), copies[i])
    desk.wait(200)
    desk.fetch('c')
    desk.prove('c', own)
    return isProven(desk)
  }
  assert.deepEqual(
    [
      verdict('right', 'right'),
      verdict('right', 'right', 'right', 'wrong'),
      verdict('wrong', 'right', 'right', 'wrong'),
      verdict('wrong', 'right', 'right', 'right'),
      verdict('other', 'right'),
    ],
    [true, true, false, false, false],
  )
})

test('a tie is settled by the newest checkpoint, so that one lying member bars no honest newcomer', () => {
  const desk = asked('a')
  desk.checkpoint()
  desk.copy('a', five(desk), 'a lie')
  desk.wait(200)
  desk.learn('c')
  assert.equal(isProven(desk), false)
  desk.wait(5001)
  desk.wait(10_001)
  assert.deepEqual(
    desk
      .sent('prefetch')
      .map(({ version, sources, coordinatorHolds, anew }) => [version.v, sources, coordinatorHolds, anew]),
    [[5, [], true, true]],
  )
  desk.learn('c')
  assert.equal(isProven(desk), true)
})

test('a newcomer that fails waits alone, twice as long each time, and no ballot opens', () => {
  const desk = asked('a', 'b')
  for (const name of ['a', 'b']) desk.copy(name, five(desk))
  desk.wait(200)
  desk.fetch('c')
  const waits = [1, 2, 3].map(() => {
    desk.prove('c', 'wrong')
    const { proveAfter = 0 } = desk.state.newcomers.get(memberId('c')) ?? {}
    const wait = proveAfter - desk.now
    desk.wait(wait)
    desk.step(desk.state.chain.head.v + 1)
    return wait
  })
  assert.deepEqual([waits, desk.state.generation], [[10_000, 20_000, 40_000], 1])
})

test('a salt is used for one copy, and each process has its own', () => {
  const saltOf = (secret: string) => {
    const desk = asked('a', 'b')
    own(desk.state, 'salts').secret = secret
    for (let v = 6; v <= 60; v++) desk.step(v)
    desk.wait(2001)
    return desk.sent('copy-at')[0]?.salt
  }
  assert.equal(new Set([saltOf('one'), saltOf('two'), saltOf('three')]).size, 3)
  assert.equal(saltOf('one'), saltOf('one'))
})

test('a link that it could not open counts as unopened: the pair is relayed in its first ring', () => {
  const desk = asked('a', 'b')
  for (const name of ['a', 'b']) desk.copy(name, five(desk))
  desk.wait(200)
  desk.fetch('c')
  desk.prove('c', 'right', ['b'])
  desk.admit()
  for (const name of ['a', 'b']) desk.answer(name, [])
  desk.answer('c', [], five(desk))
  assert.deepEqual([desk.members, desk.sent('form')[0]?.relayed], [['a', 'b', 'c'], [[0, 2]]])
})

test('members of a journalled generation and those whose pushes were taken have nothing to prove', () => {
  const desk = ringOfTwo()
  const later = new Desk({ minVolunteers: 2, blocks: 6000, epochs: 1 }, desk)
  later.join('b', 'x')
  for (const name of ['b', 'x']) later.answer(name, [])
  later.join('a')
  later.answer('a', [])
  assert.deepEqual([later.phase, later.members], ['form', ['a', 'b']])
})

test('a proof counts when a member says the same: one that kept its state is compared at a version ahead of it', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 6000 })
  desk.join('a', 'b')
  desk.run('a', 'b')
  for (const v of [1, 2, 3]) desk.step(v)
  joinFrom(desk, 'c', 'x')
  desk.wait(200)
  assert.deepEqual([desk.sent('prefetch'), desk.sent('prove').map(({ to, v }) => [to, v])], [[], [['c', 5]]])
  for (const v of [4, 5]) desk.step(v)
  desk.prove('c')
  assert.equal(isProven(desk), false)
  desk.copy('b', five(desk))
  assert.equal(isProven(desk), true)
})
