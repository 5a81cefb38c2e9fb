// Validation blocks are leased like training blocks, while training rests at one version.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type LeaseToken, memberId } from '@starling-grid/protocol'
import { Desk, type DeskOptions, hashOf } from './run-desk.ts'

/** A ring at the end of its first epoch. */
function atEpochEnd(names: readonly string[], options: DeskOptions = {}): Desk {
  const desk = new Desk({ minVolunteers: names.length, blocks: 3, validationBlocks: 20, ...options })
  desk.join(...names)
  desk.run(...names)
  desk.step(1)
  return desk
}

function result(
  desk: Desk,
  name: string,
  lease: LeaseToken | undefined,
  changed: { readonly correct?: number } = {},
): void {
  assert.ok(lease)
  desk.say(name, {
    type: 'validated',
    version: desk.state.chain.head,
    lease,
    samples: 10,
    targets: 10,
    correct: 5,
    lossSum: 1,
    ...changed,
  })
}

function resultsOf(desk: Desk): number {
  return desk.state.validated.get(desk.state.chain.head.id)?.size ?? 0
}

test('all blocks are leased at the end of an epoch, and training goes on when the last is in', () => {
  const desk = atEpochEnd(['a', 'b'])
  const orders = desk.sent('validate')
  assert.deepEqual(
    orders.map(({ to, leases }) => [to, leases.length]),
    [
      ['a', 16],
      ['b', 4],
    ],
  )
  assert.deepEqual(desk.planned(2), [], 'training rests')
  for (const { to, leases } of orders) for (const lease of leases) result(desk, to, lease)
  assert.equal(resultsOf(desk), 20)
  assert.equal(desk.planned(2).length, 3)
})

test('epochs between those that were asked for are not validated', () => {
  const desk = atEpochEnd(['a'], { validateEvery: 2 })
  assert.deepEqual(desk.sent('validate'), [])
  desk.step(2)
  assert.equal(desk.sent('validate').length, 1)
})

test('the blocks of a member that leaves are validated by the others', () => {
  const desk = atEpochEnd(['a', 'b'])
  const [first] = desk.sent('validate')
  result(desk, 'a', first?.leases[0])
  desk.lose('a')
  desk.run('b')
  assert.deepEqual(
    desk.sent('validate').map(({ to, leases }) => [to, leases.length]),
    [['b', 16]],
  )
  assert.equal(resultsOf(desk), 1)
})

test('a result counts once, from the holder of the lease, and only when it can be true', () => {
  const desk = atEpochEnd(['a', 'b'])
  const lease = desk.sent('validate')[0]?.leases[0]
  result(desk, 'b', lease)
  assert.deepEqual(desk.refusals, ['b lease-stale'])
  result(desk, 'a', lease, { correct: 11 })
  assert.deepEqual(desk.refusals, ['a message-malformed'])
  result(desk, 'a', lease)
  result(desk, 'a', lease)
  assert.deepEqual(desk.refusals, ['a lease-stale'])
  assert.equal(resultsOf(desk), 1)
})

test('a member that lets its lease run out is passed over while others answer', () => {
  const desk = atEpochEnd(['a', 'b'], { validationBlocks: 16, timing: { stallMs: 1e9 } })
  assert.deepEqual(
    desk.sent('validate').map(({ to }) => to),
    ['a'],
  )
  desk.wait(61_000)
  assert.deepEqual(
    desk.sent('validate').map(({ to }) => to),
    ['b'],
  )
  desk.wait(61_000)
  assert.deepEqual(
    desk.sent('validate').map(({ to }) => to),
    ['a'],
    'when all failed, all are tried in turn',
  )
})

test('the last version is validated before the run ends', () => {
  const desk = atEpochEnd(['a'], { epochs: 1, validationBlocks: 1 })
  const { head } = desk.state.chain
  const [order] = desk.sent('validate')
  desk.feed({ type: 'uploaded', member: memberId('a'), version: head, blob: hashOf('state'), bytes: 1 })
  assert.equal(desk.state.finished, undefined)
  result(desk, 'a', order?.leases[0])
  assert.equal(desk.phase, 'finished')
})

test('blocks that a member gives back go to another at once; it rests longer each time, and is asked again', () => {
  const desk = atEpochEnd(['a', 'b'], { validationBlocks: 16, timing: { stallMs: 1e9, leaseMinMs: 1e9 } })
  const giveBack = (name: string, leases: readonly LeaseToken[]): void =>
    void desk.say(name, { type: 'gave-back', leases: [...leases], code: 'coordinator-lost', message: 'no shard' })
  const granted = (): [string, LeaseToken[]][] => desk.sent('validate').map(({ to, leases }) => [to, leases])
  const [[first, leases = []] = []] = granted()
  assert.equal(first, 'a')
  giveBack('b', leases)
  assert.deepEqual(granted(), [], 'only the holder gives back')
  giveBack('a', leases)
  assert.equal(granted()[0]?.[0], 'b')
  assert.deepEqual(
    granted()[0]?.[1].map(({ leaseEpoch }) => leaseEpoch),
    leases.map(({ leaseEpoch }) => leaseEpoch + 1),
  )
  giveBack('b', granted()[0]?.[1] ?? [])
  assert.deepEqual(granted(), [], 'both rest')
  desk.wait(1001)
  assert.equal(granted()[0]?.[0], 'a')
  giveBack('a', granted()[0]?.[1] ?? [])
  assert.equal(granted()[0]?.[0], 'b', 'which rested meanwhile')
  giveBack('b', granted()[0]?.[1] ?? [])
  assert.deepEqual((desk.wait(1001), granted()), [], 'twice as long')
  assert.equal((desk.wait(1000), granted()[0]?.[0]), 'a')
})

test('when no member of the ring answers, the blocks go to members outside it, which get the version from its checkpoint', () => {
  const desk = atEpochEnd(['a'], { timing: { leaseMaxMs: 1000, leaseMinMs: 500 } })
  assert.deepEqual(
    desk.sent('validate').map(({ to }) => to),
    ['a'],
  )
  const { head } = desk.state.chain
  desk.feed({
    type: 'uploaded',
    member: [...desk.state.members.keys()][0] ?? assert.fail(),
    version: head,
    blob: hashOf('state'),
    bytes: 1,
  })
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, head.v)
  desk.join('b')
  const asked = new Set<string>()
  for (let i = 0; i < 10 && desk.phase === 'ring'; i++) {
    desk.wait(400)
    for (const { to } of desk.sent('validate')) asked.add(to)
  }
  assert.ok(asked.has('b'), `asked ${[...asked].join(', ')} in phase ${desk.phase}`)
})
