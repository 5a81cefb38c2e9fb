// Newcomers that stop a ring and never confirm: how long they cost the others, and how often.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
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

test('a newcomer that never confirms stops the others for ten seconds, not for thirty', () => {
  const desk = ringOfTwo()
  joinFrom(desk, 'mute', 'x')
  const steps = train(desk, 60_000)
  assert.ok(steps >= 44, `${steps} steps in a minute`)
  assert.ok((desk.state.members.get(memberId('mute'))?.excludedUntil ?? 0) > 0)
})

test('a mute newcomer every four seconds, each with a new id, costs a network two stops in two minutes, not all its time', () => {
  const desk = ringOfTwo()
  const steps = train(desk, 120_000, (second) => (second % 4 === 0 ? joinFrom(desk, `mute-${second}`, 'x') : undefined))
  assert.ok(steps >= 90, `${steps} steps in two minutes`)
})

test('mute newcomers of many networks stop a ring three times in a minute at most', () => {
  const desk = ringOfTwo()
  const steps = train(desk, 120_000, (second) =>
    second % 4 === 0 ? joinFrom(desk, `mute-${second}`, `network-${second}`) : undefined,
  )
  assert.ok(steps >= 40, `${steps} steps in two minutes`)
})

test('an honest newcomer of another network is admitted meanwhile', () => {
  const desk = ringOfTwo()
  joinFrom(desk, 'mute', 'x')
  train(desk, 30_000)
  joinFrom(desk, 'honest', 'y')
  train(desk, 5000)
  desk.confirm('honest')
  assert.ok(desk.phase === 'ring' && desk.members.includes(memberId('honest')))
})
