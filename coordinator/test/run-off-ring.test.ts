// Off-ring members of a ring (A1): which members are, what they may compute, and how their sum gets into a step. No
// block is counted twice.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type BlockId, memberId, type Push, type VersionRef } from '@starling-grid/protocol'
import type { PushNorms } from '../src/parameter-server/norm-clip.ts'
import { Desk, hashOf } from './run-desk.ts'

/** A ring of two with slow steps; the third member gave up twice and is out of it. */
function ringWithOffRing(blocks = 600): Desk {
  const desk = new Desk({
    minVolunteers: 3,
    blocks,
    batchBlocks: 6,
    timing: { abortsBeforeFallback: 2, excludeMs: 600_000, stallMs: 600_000 },
  })
  desk.join('a', 'b', 'off-ring')
  desk.run('a', 'b', 'off-ring')
  for (let i = 0; i < 2; i++) {
    desk.say('off-ring', {
      type: 'abort',
      step: 1,
      blamed: memberId('off-ring'),
      why: 'own',
      links: [],
      code: 'gradient-not-finite',
      message: 'test',
    })
    desk.answer('off-ring')
    desk.run('a', 'b')
    if (i === 0) desk.confirm('off-ring')
  }
  assert.deepEqual(desk.members, ['a', 'b'])
  steps(desk, 3)
  return desk
}

/** Each takes a second. */
function steps(desk: Desk, count: number): void {
  for (let i = 0; i < count; i++) {
    desk.now += 1000
    desk.step(desk.state.chain.head.v + 1)
  }
}

const modeEpoch = (desk: Desk): number => desk.state.modeEpoch

/** The off-ring member asked for work, and there is a checkpoint to begin with. */
function granted(blocks?: number): { readonly desk: Desk; readonly base: VersionRef; readonly leases: Push['leases'] } {
  const desk = ringWithOffRing(blocks)
  desk.checkpoint()
  desk.wait(200)
  desk.say('off-ring', { type: 'lease-request', modeEpoch: modeEpoch(desk) })
  desk.wait(200)
  const [grant] = desk.sent('grant')
  assert.ok(grant)
  return { desk, base: grant.base, leases: grant.leases }
}

/** Blocks of 32 steps: a second each, a minute has room for twice as many. */
const SHORT_EPOCH = 32 * 6

test('a ring so slow that a minute of it is longer than the epoch leaves blocks for off-ring members', () => {
  const { desk, leases } = granted(SHORT_EPOCH)
  assert.ok(leases.length > 0)
  assert.equal(desk.phase, 'ring')
})

const USUAL: PushNorms = { gradient: 1, statistics: 0 }

function push(
  desk: Desk,
  { base, leases }: Pick<Push, 'base' | 'leases'>,
  { by = 'off-ring', norms = USUAL } = {},
): string | undefined {
  const samples = leases.length
  desk.feed({
    type: 'push',
    gradDigest: hashOf(by),
    norms,
    push: {
      incarnation: memberId(by),
      modeEpoch: modeEpoch(desk),
      base,
      leases,
      samples,
      targets: samples,
      lossSum: 2,
      correct: 0,
    },
  })
  return desk.verdict
}

/** What the off-ring member computed is offered to the ring; all know of it. */
function given(): { readonly desk: Desk; readonly blocks: readonly BlockId[]; readonly id: number } {
  const { desk, ...work } = granted()
  assert.equal(push(desk, work), 'received')
  desk.wait(200)
  const [offRing] = desk.sent('off-ring')
  assert.ok(offRing)
  for (const name of ['a', 'b']) desk.say(name, { type: 'off-ring-known', id: offRing.id })
  return { desk, blocks: offRing.blocks, id: offRing.id }
}

test('a member that the ring leaves out is asked once in a generation to work as an off-ring member', () => {
  const desk = ringWithOffRing()
  desk.wait(200)
  assert.deepEqual(
    desk.sent('async').map(({ to }) => to),
    ['off-ring'],
  )
  desk.wait(200)
  assert.deepEqual(desk.sent('async'), [])
})

test('it gets blocks that are in no plan, at the newest checkpoint, and no later plan has them', () => {
  const { desk, base, leases } = granted()
  assert.equal(base.v, 3)
  const lent = leases.map(({ block }) => block)
  const { phase } = desk.state
  assert.ok(phase.type === 'ring' && [...phase.planned.values()].flat().every((block) => !lent.includes(block)))
  const planned: BlockId[] = []
  for (let v = 4; v <= 90; v++) {
    planned.push(...desk.planned(v))
    steps(desk, 1)
  }
  assert.ok(planned.length > 500 && lent.every((block) => !planned.includes(block)))
})

test('when the checkpoint is too old for it, one is made, and it waits', () => {
  const desk = ringWithOffRing()
  desk.wait(200)
  desk.say('off-ring', { type: 'lease-request', modeEpoch: modeEpoch(desk) })
  steps(desk, 12)
  desk.wait(200)
  assert.deepEqual(desk.sent('grant'), [])
  assert.ok(desk.state.checkpointing.asked !== undefined)
})

test('members of the ring, and strangers to a lease, push nothing', () => {
  const { desk, base, leases } = granted()
  assert.equal(push(desk, { base, leases }, { by: 'a' }), 'mode-stale')
  assert.equal(
    push(desk, { base, leases: leases.map((lease) => ({ ...lease, leaseEpoch: lease.leaseEpoch + 1 })) }),
    'lease-stale',
  )
})

/** A ring of two with three off-ring members, each with a lease; the first two were left out by other means. */
function threeOffRing(): { readonly desk: Desk; readonly work: ReadonlyMap<string, Pick<Push, 'base' | 'leases'>> } {
  const desk = ringWithOffRing()
  for (const name of ['second', 'hostile']) {
    desk.join(name)
    const member = desk.state.members.get(memberId(name))
    if (member !== undefined) member.excludedUntil = desk.now + 600_000
  }
  desk.checkpoint()
  desk.wait(200)
  for (const name of ['off-ring', 'second', 'hostile'])
    desk.say(name, { type: 'lease-request', modeEpoch: modeEpoch(desk) })
  desk.wait(200)
  return { desk, work: new Map(desk.sent('grant').map(({ to, base, leases }) => [to, { base, leases }])) }
}

test('of three off-ring pushes an enormous one counts as four usual ones, and its member is named once', () => {
  const { desk, work } = threeOffRing()
  const of = (name: string) => work.get(name) ?? assert.fail(`${name} has no lease`)
  const weight = () =>
    desk.effects.flatMap((effect) => (effect.type === 'off-ring-add' ? [effect.weights.gradient] : []))
  const [hostile] = of('hostile').leases
  assert.equal(
    push(desk, of('hostile'), { by: 'hostile', norms: { gradient: 1e6, statistics: 0 } }),
    'gradient-unproven',
  )
  assert.deepEqual([weight(), desk.state.leases.has(hostile?.block as BlockId)], [[], false], 'its blocks go back')
  assert.equal(push(desk, of('off-ring')), 'received')
  assert.deepEqual(weight(), [1])
  assert.equal(push(desk, of('second'), { by: 'second' }), 'received')
  for (const named of [1, 0]) {
    desk.say('hostile', { type: 'lease-request', modeEpoch: modeEpoch(desk) })
    desk.wait(200)
    const [grant] = desk.sent('grant')
    assert.equal(
      push(desk, grant ?? assert.fail(), { by: 'hostile', norms: { gradient: 1e6, statistics: 0 } }),
      'received',
    )
    const [counts = Number.NaN] = weight()
    assert.ok(Math.abs(1e6 * counts - 4) < 0.001, `weight ${counts}`)
    assert.equal(
      desk.effects.filter((effect) => effect.type === 'note' && /hostile, an off-ring member/.test(effect.text)).length,
      named,
    )
  }
})

test('its sum is given to one member, who is told to take it when all know of it, not before', () => {
  const { desk, ...work } = granted()
  push(desk, work)
  desk.wait(200)
  const [offRing] = desk.sent('off-ring')
  assert.deepEqual(
    desk.sent('off-ring').map(({ to, rank }) => [to, rank]),
    desk.members.map((id) => [id, offRing?.rank]),
    'both hear the same',
  )
  desk.say('a', { type: 'off-ring-known', id: offRing?.id ?? 0 })
  assert.deepEqual(desk.sent('off-ring-take'), [])
  desk.say('b', { type: 'off-ring-known', id: offRing?.id ?? 0 })
  assert.deepEqual(
    desk.sent('off-ring-take').map(({ to }) => to),
    [desk.members[offRing?.rank ?? -1]],
  )
})

test('what is on its way into a step is leased to no other off-ring member', () => {
  const { desk, blocks } = given()
  desk.join('second')
  const member = desk.state.members.get(memberId('second')) ?? assert.fail()
  member.excludedUntil = desk.now + 600_000
  desk.wait(200)
  for (const name of ['off-ring', 'second']) desk.say(name, { type: 'lease-request', modeEpoch: modeEpoch(desk) })
  desk.wait(200)
  const lent = desk.sent('grant').flatMap(({ leases }) => leases.map(({ block }) => block))
  assert.ok(lent.length > 0)
  assert.deepEqual(
    lent.filter((block) => blocks.includes(block)),
    [],
  )
})

test('a step that holds its blocks behind the planned ones is committed, and the sum is let go', () => {
  const { desk, blocks } = given()
  const record = desk.record(4, [...desk.planned(4), ...blocks])
  for (const member of desk.members) desk.hold(member, record)
  assert.equal(desk.state.chain.head.v, 4)
  assert.ok(blocks.every((block) => desk.state.chain.isDone(block)))
  assert.equal(desk.state.offRing.given, undefined)
  assert.ok(desk.effects.some((effect) => effect.type === 'off-ring-forget'))
})

test('a step with some of the blocks, or with blocks that no member was given, is refused', () => {
  const { desk, blocks } = given()
  for (const wrong of [blocks.slice(1), [...blocks, '1:0' as BlockId]]) {
    desk.hold('a', desk.record(4, [...desk.planned(4), ...wrong]))
    assert.deepEqual(desk.refusals, ['a message-unexpected'])
  }
})

test('when the generation closes without it, its blocks are planned again', () => {
  const { desk, blocks } = given()
  desk.lose('b')
  desk.answer('off-ring')
  desk.answer('a', [])
  desk.confirm('a')
  assert.equal(desk.state.offRing.given, undefined)
  const { phase } = desk.state
  assert.ok(phase.type === 'ring')
  const planned = [...phase.planned.values()].flat()
  assert.ok(planned.includes(desk.planned(4)[0] as BlockId))
  for (let v = 4; v <= 100; v++) steps(desk, 1)
  assert.ok(blocks.every((block) => desk.state.chain.isDone(block)))
})

test('when the generation closes with a step that holds it, the blocks are done and nothing is planned twice', () => {
  const { desk, blocks } = given()
  const record = desk.record(4, [...desk.planned(4), ...blocks])
  desk.hold('b', record)
  desk.lose('b')
  desk.answer('off-ring')
  desk.answer('a', [record])
  desk.confirm('a')
  assert.ok(blocks.every((block) => desk.state.chain.isDone(block)))
  const { phase } = desk.state
  assert.ok(phase.type === 'ring' && [...phase.planned.values()].flat().every((block) => !blocks.includes(block)))
})

test('an epoch does not wait for an off-ring member: what it has goes back', () => {
  const { desk, leases } = granted()
  for (let i = 0; i < 120 && !leases.every(({ block }) => desk.state.chain.isDone(block)); i++) steps(desk, 1)
  assert.ok(leases.every(({ block }) => desk.state.chain.isDone(block)))
  assert.equal(desk.state.chain.doneIn(0), 600)
})
