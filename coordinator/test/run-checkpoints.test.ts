// When a version becomes durable (R15), and how the run ends.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId, type VersionRef } from '@starling-grid/protocol'
import { Desk, type DeskOptions, hashOf } from './run-desk.ts'

function ringOf(names: readonly string[], options: DeskOptions = {}): Desk {
  const desk = new Desk({ minVolunteers: names.length, ...options, timing: { checkpointSteps: 1, ...options.timing } })
  desk.join(...names)
  desk.run(...names)
  return desk
}

function upload(desk: Desk, name: string, version: VersionRef, bytes = 'right'): void {
  desk.feed({ type: 'uploaded', member: memberId(name), version, blob: hashOf(bytes), bytes: 1 })
}

function report(desk: Desk, name: string, version: VersionRef, bytes = 'right'): void {
  desk.say(name, { type: 'version-digest', version, digest: hashOf(bytes) })
}

test('an upload becomes a checkpoint when another member holds the same', () => {
  const desk = ringOf(['a', 'b'])
  desk.step(1)
  const { head } = desk.state.chain
  upload(desk, 'a', head)
  assert.deepEqual(desk.journalled('checkpoint'), [])
  report(desk, 'b', head)
  assert.deepEqual(desk.journalled('checkpoint').map(({ version, witnessed, agreeing }) => [version.v, witnessed, agreeing]), [[1, true, 2]])
})

test('the digest may come before the upload', () => {
  const desk = ringOf(['a', 'b'])
  desk.step(1)
  report(desk, 'b', desk.state.chain.head)
  upload(desk, 'a', desk.state.chain.head)
  assert.equal(desk.journalled('checkpoint').length, 1)
})

test('an upload of a version that is not committed yet waits for its commit', () => {
  const desk = ringOf(['a', 'b'])
  const other = ringOf(['a', 'b'])
  other.step(1)
  upload(desk, 'a', other.state.chain.head)
  report(desk, 'b', other.state.chain.head)
  assert.equal(desk.state.checkpoints.length, 1)
  desk.step(1)
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, 1)
})

test('an upload of another branch is dropped', () => {
  const desk = ringOf(['a', 'b'])
  const stranger = { v: 1, id: desk.state.config.genesis.id }
  desk.step(1)
  report(desk, 'b', stranger)
  upload(desk, 'a', stranger)
  assert.equal(desk.state.checkpoints.length, 1)
  assert.equal(desk.state.provisional, undefined)
})

test('when the witness holds something else neither is believed and a ballot compares all', () => {
  const desk = ringOf(['a', 'b'])
  desk.step(1)
  upload(desk, 'a', desk.state.chain.head)
  report(desk, 'b', desk.state.chain.head, 'other')
  assert.deepEqual(desk.refusals, ['a digest-mismatch'])
  assert.equal(desk.phase, 'freeze')
})

test('a ring of one has no witness and says so', () => {
  const desk = ringOf(['a'])
  desk.step(1)
  upload(desk, 'a', desk.state.chain.head)
  assert.deepEqual(desk.journalled('checkpoint').map(({ witnessed }) => witnessed), [false])
})

test('another member is asked when an upload does not come, all in turn', () => {
  const desk = ringOf(['a', 'b', 'c'], { maxSteps: 1, timing: { stallMs: 1e9 } })
  desk.step(1)
  const asked = desk.sent('checkpoint-at').map(({ uploader }) => uploader).slice(0, 1)
  for (let i = 0; i < 2; i++) {
    desk.wait(20_000)
    asked.push(...desk.sent('checkpoint-at').map(({ uploader }) => uploader).slice(0, 1))
  }
  assert.deepEqual(asked.toSorted(), ['a', 'b', 'c'])
})

test('the run is finished when all members agree on its last version', () => {
  const desk = ringOf(['a', 'b', 'c'], { epochs: 1 })
  desk.step(1)
  desk.step(2)
  const { head } = desk.state.chain
  upload(desk, 'a', head)
  report(desk, 'b', head)
  assert.equal(desk.state.finished, undefined)
  report(desk, 'c', head)
  assert.equal(desk.journalled('finished').length, 1)
  assert.deepEqual(desk.sent('finished').map(({ version }) => version.v), [2, 2, 2])
  assert.equal(desk.wait(1e6).length, 0)
})

test('a last version that nobody brings opens a ballot, rather than waiting for ever', () => {
  const desk = ringOf(['a', 'b'], { maxSteps: 1 })
  desk.step(1)
  desk.wait(61_000)
  assert.equal(desk.phase, 'freeze')
})
