// When a version becomes durable (R15), and how the run ends.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId, type VersionRef } from '@starling-grid/protocol'
import { uploadMsOf } from '../src/run/history/checkpoints.ts'
import { Desk, type DeskOptions, hashOf } from './run-desk.ts'

function ringOf(names: readonly string[], options: DeskOptions = {}): Desk {
  const desk = new Desk({ minVolunteers: names.length, ...options, timing: { checkpointSteps: 1, ...options.timing } })
  desk.join(...names)
  desk.run(...names)
  return desk
}

/** Three epochs of 300 steps, with a checkpoint due at once. */
function longRing(names: readonly string[], options: DeskOptions = {}): Desk {
  const desk = ringOf(names, { blocks: 300, batchBlocks: 1, epochs: 3, ...options })
  desk.now += 1
  return desk
}

/** Steps until a checkpoint is requested: its uploader, and another member. */
function firstAsked(desk: Desk): { readonly v: number; readonly uploader: string; readonly witness: string } {
  for (let v = 1; desk.state.checkpointing.asked === undefined; v++) desk.step(v)
  const { v, uploader } = desk.state.checkpointing.asked
  return { v, uploader, witness: desk.members.find((id) => id !== uploader) ?? assert.fail() }
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
  desk.step(2)
  const { head } = desk.state.chain
  upload(desk, 'a', head)
  assert.deepEqual(desk.journalled('checkpoint'), [])
  report(desk, 'b', head)
  assert.deepEqual(
    desk.journalled('checkpoint').map(({ version, witnessed, agreeing }) => [version.v, witnessed, agreeing]),
    [[2, true, 2]],
  )
})

test('the digest may come before the upload', () => {
  const desk = ringOf(['a', 'b'])
  desk.step(1)
  desk.step(2)
  report(desk, 'b', desk.state.chain.head)
  upload(desk, 'a', desk.state.chain.head)
  assert.equal(desk.journalled('checkpoint').length, 1)
})

test('an upload of a version that is not committed yet waits for its commit', () => {
  const desk = ringOf(['a', 'b'])
  const other = ringOf(['a', 'b'])
  for (const one of [desk, other]) one.step(1)
  other.step(2)
  upload(desk, 'a', other.state.chain.head)
  report(desk, 'b', other.state.chain.head)
  assert.equal(desk.state.checkpoints.length, 1)
  desk.step(2)
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, 2)
})

test('an upload of another branch is dropped', () => {
  const desk = ringOf(['a', 'b'])
  const stranger = { v: 2, id: desk.state.config.genesis.id }
  desk.step(1)
  desk.step(2)
  report(desk, 'b', stranger)
  upload(desk, 'a', stranger)
  assert.equal(desk.state.checkpoints.length, 1)
  assert.equal(desk.state.checkpointing.upload, undefined)
})

test('when the witness holds something else neither is believed and a ballot compares all', () => {
  const desk = ringOf(['a', 'b'])
  desk.step(1)
  desk.step(2)
  upload(desk, 'a', desk.state.chain.head)
  report(desk, 'b', desk.state.chain.head, 'other')
  assert.deepEqual([desk.refusals, desk.state.checkpoints.length, desk.phase], [[], 1, 'freeze'])
})

test('a ring of one has no witness and says so', () => {
  const desk = ringOf(['a'])
  desk.step(1)
  upload(desk, 'a', desk.state.chain.head)
  assert.deepEqual(
    desk.journalled('checkpoint').map(({ witnessed }) => witnessed),
    [false],
  )
})

test('a checkpoint that was asked for stays asked while its upload takes many steps, and digests of then count', () => {
  const desk = longRing(['a', 'b'])
  const { v, uploader, witness } = firstAsked(desk)
  while (desk.state.chain.head.v < v) desk.step(desk.state.chain.head.v + 1)
  const version = desk.state.chain.head
  report(desk, witness, version)
  desk.feed({ type: 'upload-begun', member: memberId(uploader), version })
  for (let i = 0; i < 30; i++) {
    desk.step(desk.state.chain.head.v + 1)
    desk.wait(400)
    assert.deepEqual(desk.sent('checkpoint-at'), [])
  }
  upload(desk, uploader, version)
  assert.deepEqual(
    desk.journalled('checkpoint').map((entry) => [entry.version.v, entry.witnessed]),
    [[v, true]],
  )
})

test('an upload that comes after another version was asked for is a checkpoint by the digests said of it', () => {
  const desk = longRing(['a', 'b'])
  const { v, uploader, witness } = firstAsked(desk)
  while (desk.state.chain.head.v < v) desk.step(desk.state.chain.head.v + 1)
  const version = desk.state.chain.head
  report(desk, witness, version)
  desk.feed({ type: 'upload-failed', member: memberId(uploader), version })
  while ((desk.state.checkpointing.asked?.v ?? v) === v) {
    desk.step(desk.state.chain.head.v + 1)
    desk.wait(400)
  }
  upload(desk, uploader, version)
  assert.deepEqual(
    desk.journalled('checkpoint').map((entry) => [entry.version.v, entry.witnessed]),
    [[v, true]],
  )
})

test('an upload that began may take as long as its bytes need on its line, within bounds', () => {
  const desk = longRing(['a', 'b'], { versionBytes: 60_000_000 })
  const { v, uploader } = firstAsked(desk)
  while (desk.state.chain.head.v < v) desk.step(desk.state.chain.head.v + 1)
  desk.wait(100)
  desk.feed({ type: 'upload-begun', member: memberId(uploader), version: desk.state.chain.head })
  assert.equal(uploadMsOf(desk.state, memberId(uploader)), 180_000)
  for (let i = 0; i < 17; i++) {
    desk.step(desk.state.chain.head.v + 1)
    desk.wait(10_000)
    assert.deepEqual(desk.sent('checkpoint-at'), [])
  }
  desk.step(desk.state.chain.head.v + 1)
  desk.wait(10_001)
  assert.notEqual(desk.sent('checkpoint-at')[0]?.uploader, uploader)
  assert.ok(uploadMsOf(desk.state, memberId(uploader)) > 500_000, 'its line is slower than was thought')
  const member = desk.state.members.get(memberId(uploader)) ?? assert.fail()
  member.uploadRate = 1e-9
  assert.equal(uploadMsOf(desk.state, memberId(uploader)), 900_000)
})

test('another member is asked at once when an upload breaks off, and soon when none begins', () => {
  const desk = longRing(['a', 'b'])
  const { v, uploader, witness } = firstAsked(desk)
  while (desk.state.chain.head.v < v) desk.step(desk.state.chain.head.v + 1)
  const version = desk.state.chain.head
  desk.feed({ type: 'upload-begun', member: memberId(uploader), version })
  desk.wait(100)
  assert.deepEqual(desk.sent('checkpoint-at'), [])
  desk.feed({ type: 'upload-failed', member: memberId(uploader), version })
  desk.wait(100)
  assert.equal(desk.sent('checkpoint-at')[0]?.uploader, witness)
  while (desk.state.chain.head.v < (desk.state.checkpointing.asked?.v ?? 0)) desk.step(desk.state.chain.head.v + 1)
  desk.wait(2900)
  assert.deepEqual(desk.sent('checkpoint-at'), [])
  desk.wait(200)
  assert.equal(desk.sent('checkpoint-at')[0]?.uploader, uploader)
})

test('an upload that began goes on over a ballot, and one that did not is not waited for', () => {
  for (const begun of [true, false]) {
    const desk = longRing(['a', 'b'])
    const { v, uploader, witness } = firstAsked(desk)
    while (desk.state.chain.head.v < v) desk.step(desk.state.chain.head.v + 1)
    const version = desk.state.chain.head
    report(desk, witness, version)
    if (begun) desk.feed({ type: 'upload-begun', member: memberId(uploader), version })
    desk.join('c')
    desk.admit()
    desk.run('a', 'b', 'c')
    assert.equal(desk.phase, 'ring')
    assert.equal(desk.state.checkpointing.asked?.v === v, begun)
    if (!begun) continue
    upload(desk, uploader, version)
    desk.wait(2000) // the newcomer, which was not asked, may say a digest, too
    assert.equal(desk.state.checkpoints.at(-1)?.version.v, v)
  }
})

test('a member that leaves after it said its digest is still a witness', () => {
  const desk = longRing(['a', 'b', 'c'])
  const { v, uploader, witness } = firstAsked(desk)
  while (desk.state.chain.head.v < v) desk.step(desk.state.chain.head.v + 1)
  const version = desk.state.chain.head
  report(desk, witness, version)
  desk.feed({ type: 'upload-begun', member: memberId(uploader), version })
  desk.lose(witness)
  desk.run(...['a', 'b', 'c'].filter((name) => name !== witness))
  upload(desk, uploader, version)
  assert.equal(desk.state.checkpoints.at(-1)?.witnessed, true)
})

test('digests of versions that no checkpoint was asked for are not kept', () => {
  const desk = longRing(['a', 'b'])
  for (let v = 100; v < 200; v++) report(desk, 'a', { v, id: desk.state.config.genesis.id })
  assert.equal(desk.state.digests.size, 0)
})

test('a checkpoint is asked for so far ahead that no member of a fast ring has passed it', () => {
  const desk = longRing(['a', 'b'], { timing: { checkpointSteps: 20 } })
  for (let v = 1; v <= 20; v++) {
    desk.now += 10
    desk.step(v)
  }
  assert.ok((desk.state.checkpointing.asked?.v ?? 0) - desk.state.chain.head.v > 20)
})

test('another member is asked when an upload does not come, all in turn', () => {
  const desk = ringOf(['a', 'b', 'c'], { stop: { steps: 1 }, timing: { stallMs: 1e9 } })
  desk.step(1)
  const asked = desk
    .sent('checkpoint-at')
    .map(({ uploader }) => uploader)
    .slice(0, 1)
  for (let i = 0; i < 2; i++) {
    desk.wait(20_000)
    asked.push(
      ...desk
        .sent('checkpoint-at')
        .map(({ uploader }) => uploader)
        .slice(0, 1),
    )
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
  assert.deepEqual(
    desk.sent('finished').map(({ version }) => version.v),
    [2, 2, 2],
  )
  assert.equal(desk.wait(1e6).length, 0)
})

test('a last version that no member uploads opens a ballot instead of waiting for ever', () => {
  const desk = ringOf(['a', 'b'], { stop: { steps: 1 } })
  desk.step(1)
  desk.wait(61_000)
  assert.equal(desk.phase, 'freeze')
})
