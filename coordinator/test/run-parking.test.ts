// A run whose volunteers go to another job: what it does before they go.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { applyEntry, createRunState, writtenRun } from '@starling-grid/coordinator/run'
import { memberId, type Sha256, type VersionRef } from '@starling-grid/protocol'
import { asyncDesk, push } from './async-desk.ts'
import { Desk, hashOf } from './run-desk.ts'

function ringOf(names: readonly string[]): Desk {
  const desk = new Desk({ minVolunteers: names.length, blocks: 300 })
  desk.join(...names)
  desk.run(...names)
  return desk
}

const hasParked = ({ effects }: Desk): boolean => effects.some(({ type }) => type === 'parked')

function save(desk: Desk, version: VersionRef, blob: Sha256 = hashOf('right')): void {
  const { uploader } = desk.state.checkpointing.asked ?? { uploader: memberId('a') }
  for (const { id } of desk.state.members.values())
    if (id !== uploader) desk.say(id, { type: 'version-digest', version, digest: blob })
  desk.feed({ type: 'uploaded', member: uploader, version, blob, bytes: 1 })
}

test('a ring that parks ends its step, writes a checkpoint of its head, and only then lets its members go', () => {
  const desk = ringOf(['a', 'b'])
  for (const v of [1, 2, 3]) desk.step(v)
  desk.feed({ type: 'park', reason: 'another job' })
  const [until] = desk.sent('last-step')
  assert.equal(until?.step, 5)
  assert.equal(hasParked(desk), false)
  desk.step(4)
  desk.step(5)
  const [asked] = desk.sent('checkpoint-at')
  assert.equal(asked?.v, 5, 'the head, which all hold')
  assert.deepEqual(desk.sent('plan'), [])
  desk.wait(4000)
  assert.equal(desk.phase, 'ring', 'no ballot while the state uploads')
  save(desk, desk.state.chain.head)
  assert.equal(hasParked(desk), true)
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, 5)
  for (const name of ['a', 'b']) desk.lose(name)
  assert.equal(desk.phase, 'waiting', 'nothing is lost: it waits for volunteers at its checkpoint')
  desk.join('a', 'b')
  desk.run('a', 'b')
  desk.step(6)
  assert.equal(desk.state.chain.head.v, 6, 'and goes on when they are back')
})

test('a checkpoint that was asked for a later version does not keep the run from parking', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 300, timing: { checkpointSteps: 3 } })
  desk.join('a', 'b')
  desk.run('a', 'b')
  for (const v of [1, 2, 3]) desk.step(v)
  assert.ok((desk.state.checkpointing.asked?.v ?? 0) > 5)
  desk.feed({ type: 'park', reason: 'another job' })
  desk.step(4)
  desk.step(5)
  assert.equal(desk.sent('checkpoint-at')[0]?.v, 5)
})

test('members that do not bring the checkpoint are let go after parkMs, and the run says what may be repeated', () => {
  const desk = ringOf(['a', 'b'])
  desk.feed({ type: 'park', reason: 'another job' })
  for (const v of [1, 2]) desk.step(v)
  const { parkMs } = desk.state.config.timing
  for (let ms = 0; ms < parkMs - 1000; ms += 1000) assert.equal((desk.wait(1000), hasParked(desk)), false)
  desk.wait(1000)
  assert.equal(hasParked(desk), true)
  assert.match(
    desk.effects.flatMap((effect) => (effect.type === 'note' ? [effect.text] : [])).join(),
    /last 2 steps are in no checkpoint/,
  )
})

test('a run without members, or one that waits, is parked at once', () => {
  const desk = new Desk()
  desk.feed({ type: 'park', reason: 'another job' })
  assert.equal(hasParked(desk), true)
})

test('a parameter server that parks takes what is leased, grants nothing more, and writes its newest version', () => {
  const { desk, grants } = asyncDesk(['a', 'b'], { blocks: 30 })
  const [first, second] = grants
  assert.ok(first !== undefined && second !== undefined)
  desk.feed({ type: 'park', reason: 'another job' })
  assert.equal(hasParked(desk), false)
  assert.equal(push(desk, 'a', first), 'received')
  desk.say('a', { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  assert.deepEqual(desk.sent('grant'), [])
  assert.equal(push(desk, 'b', second), 'received')
  const { head } = desk.state.chain
  assert.equal(head.v, 2)
  assert.deepEqual(
    desk.effects.flatMap((effect) => (effect.type === 'server-checkpoint' ? [effect.version.v] : [])),
    [2],
  )
  desk.feed({ type: 'server-checkpoint', version: head, blob: hashOf('state'), bytes: 1 })
  assert.equal(hasParked(desk), true)
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, 2)
})

test('a parameter server whose members are gone writes its newest version before the run parks', () => {
  const { desk, grants } = asyncDesk(['a', 'b'], { blocks: 30 })
  const [first] = grants
  assert.ok(first !== undefined)
  assert.equal(push(desk, 'a', first), 'received')
  for (const name of ['a', 'b']) desk.lose(name)
  desk.feed({ type: 'park', reason: 'another job' })
  assert.equal(hasParked(desk), false)
  const { head } = desk.state.chain
  assert.deepEqual(
    desk.effects.flatMap((effect) => (effect.type === 'server-checkpoint' ? [effect.version.v] : [])),
    [head.v],
  )
  desk.feed({ type: 'server-checkpoint', version: head, blob: hashOf('state'), bytes: 1 })
  assert.equal(hasParked(desk), true)
})

const isPlanning = (desk: Desk): boolean => desk.sent('plan').some(({ steps }) => steps.length > 0)

test('a paused ring writes a checkpoint of its head and stands still until it is resumed', () => {
  const desk = ringOf(['a', 'b'])
  for (const v of [1, 2, 3]) desk.step(v)
  desk.feed({ type: 'pause' })
  for (const v of [4, 5]) desk.step(v)
  assert.equal(desk.sent('checkpoint-at')[0]?.v, 5, 'the head, which all hold')
  save(desk, desk.state.chain.head)
  assert.equal(hasParked(desk), true)
  for (let second = 0; second < 20; second++) {
    desk.wait(1000)
    assert.equal(isPlanning(desk), false)
  }
  assert.deepEqual([desk.state.chain.head.v, desk.state.checkpoints.at(-1)?.version.v], [5, 5])
  desk.feed({ type: 'resume' })
  desk.run('a', 'b')
  desk.step(6)
  assert.equal(desk.state.chain.head.v, 6)
})

test('a paused run stays paused over a restart, also of a snapshot, and goes on when resumed', () => {
  const before = ringOf(['a', 'b'])
  for (const v of [1, 2]) before.step(v)
  before.feed({ type: 'pause' })
  const after = new Desk({ minVolunteers: 2, blocks: 300 }, before)
  assert.equal(after.state.paused, true)
  const written = createRunState(after.state.config)
  applyEntry(written, { type: 'snapshot', run: writtenRun(after.state), shown: null }, 0)
  assert.equal(written.paused, true)
  after.feed({ type: 'resume' })
  assert.equal(after.state.paused, false)
  assert.equal(new Desk({ minVolunteers: 2, blocks: 300 }, after).state.paused, false)
})

test('a run that is over is not paused', () => {
  const desk = new Desk()
  applyEntry(desk.state, { type: 'finished', reason: 'trained' }, 0)
  desk.feed({ type: 'pause' })
  assert.equal(desk.state.paused, false)
})
