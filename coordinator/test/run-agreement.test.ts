// Members that hold, or say that they hold, different bytes: one voice is never enough, neither to be believed nor to
// be left out.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId } from '@starling-grid/protocol'
import { agreementOf } from '../src/run/ballot/majority.ts'
import { atCheckpoint, formed, handingOver, isOut, report, ringOf, upload } from './agreement-desk.ts'
import { Desk, hashOf } from './run-desk.ts'

test('threat 43: one member of three with a false digest stops no checkpoint and is left out by name', () => {
  const desk = ringOf(['a', 'b', 'c'])
  const {
    version,
    uploader,
    others: [liar = '', honest = ''],
  } = atCheckpoint(desk)
  report(desk, liar, version, 'false')
  upload(desk, uploader, version)
  assert.deepEqual(desk.journalled('checkpoint'), [], 'the third is heard first')
  report(desk, honest, version)
  assert.deepEqual(
    desk.journalled('checkpoint').map((entry) => [entry.version.v, entry.witnessed, entry.agreeing]),
    [[version.v, true, 2]],
  )
  assert.deepEqual(desk.refusals, [`${liar} digest-mismatch`])
  assert.deepEqual([isOut(desk, liar), isOut(desk, uploader), isOut(desk, honest)], [true, false, false])
  assert.ok(desk.state.members.has(memberId(liar)), 'it is not expelled for good')
})

test('threat 43: an uploader whose state differs from that of two others is named, and another is asked', () => {
  const desk = ringOf(['a', 'b', 'c'])
  const { version, uploader, others } = atCheckpoint(desk)
  upload(desk, uploader, version, 'false')
  for (const name of others) report(desk, name, version)
  assert.deepEqual(desk.refusals, [`${uploader} digest-mismatch`])
  assert.equal(desk.state.checkpoints.length, 1)
  for (const name of ['a', 'b', 'c']) desk.answer(name, [])
  for (const name of desk.members) desk.confirm(name)
  const next = atCheckpoint(desk)
  assert.notEqual(next.uploader, uploader)
})

test('a false digest that comes after two members agreed is named, too', () => {
  const desk = ringOf(['a', 'b', 'c'])
  const {
    version,
    uploader,
    others: [honest = '', liar = ''],
  } = atCheckpoint(desk)
  upload(desk, uploader, version)
  report(desk, honest, version)
  desk.wait(2000)
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, version.v)
  report(desk, liar, version, 'false')
  assert.deepEqual(desk.refusals, [`${liar} digest-mismatch`])
  assert.ok(isOut(desk, liar))
})

/** All members tell the digest of the head, and the uploader brings it; the liar's is another. */
function tellVersion(desk: ReturnType<typeof ringOf>, uploader: string, liar: string): void {
  const { head } = desk.state.chain
  for (const name of desk.members) if (name !== uploader) report(desk, name, head, name === liar ? 'false' : 'right')
  upload(desk, uploader, head, uploader === liar ? 'false' : 'right')
}

test('a member that lies at every checkpoint costs ballots ever further apart, and the run ends', () => {
  const desk = ringOf(['a', 'b', 'c'], { blocks: 300, epochs: 1 })
  const liar = 'b'
  let ballots = 0
  for (let i = 0; i < 2000 && desk.state.finished === undefined; i++) {
    desk.now += 1000
    const { chain, checkpointing } = desk.state
    const { asked } = checkpointing
    const generation = desk.state.generation
    const isAsked = asked !== undefined && asked.v === chain.head.v
    if (desk.phase === 'freeze') for (const name of ['a', 'b', 'c']) desk.answer(name, [])
    else if (desk.phase === 'form') for (const name of desk.members) desk.confirm(name)
    else if (isAsked && desk.state.checkpoints.at(-1)?.version.v !== asked.v) tellVersion(desk, asked.uploader, liar)
    else if (desk.planned(chain.head.v + 1).length > 0) desk.step(chain.head.v + 1)
    desk.wait(0)
    ballots += desk.state.generation - generation
  }
  assert.ok(desk.state.finished !== undefined)
  assert.ok(ballots < 20, `${ballots} ballots`)
})

test('the last version does not wait for ever for one member that says nothing', () => {
  const desk = ringOf(['a', 'b', 'c'], { epochs: 1, blocks: 2 })
  desk.step(1)
  desk.step(2)
  const { head } = desk.state.chain
  upload(desk, 'a', head)
  report(desk, 'b', head)
  desk.wait(5000)
  assert.equal(desk.state.finished, undefined)
  desk.wait(5000)
  assert.ok(desk.state.finished !== undefined)
})

test('two members that differ twice: the one that came last waits outside, and the other goes on', () => {
  const desk = ringOf(['a', 'b'])
  desk.lose('b')
  desk.run('a')
  desk.now += 1
  desk.join('b')
  desk.admit()
  desk.run('a', 'b')
  for (const _ of [1, 2]) {
    const {
      version,
      uploader,
      others: [other = ''],
    } = atCheckpoint(desk)
    upload(desk, uploader, version)
    report(desk, other, version, 'false')
    assert.deepEqual(desk.phase, 'freeze')
    for (const name of ['a', 'b']) desk.answer(name, [])
    for (const name of desk.members) desk.confirm(name)
  }
  assert.deepEqual([isOut(desk, 'a'), isOut(desk, 'b'), desk.members], [false, true, ['a']])
  const { version } = atCheckpoint(desk)
  upload(desk, 'a', version)
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, version.v)
})

test('digests of strangers to the ring are no votes', () => {
  const desk = ringOf(['a', 'b'])
  const { version, uploader } = atCheckpoint(desk)
  desk.join('stranger')
  report(desk, 'stranger', version)
  upload(desk, uploader, version)
  assert.equal(desk.state.checkpoints.length, 1)
})

// ---- CONFIRM ----

test('the checkpoint decides which state is right, also against a majority; the others fetch it', () => {
  const desk = formed({ a: 'false', b: 'false', c: 'right' }, { steps: 2 })
  assert.deepEqual(desk.refusals.toSorted(), ['a digest-mismatch', 'b digest-mismatch'])
  assert.equal(desk.state.members.size, 3)
  for (const name of ['a', 'b', 'c']) desk.answer(name, [])
  const forms = desk.sent('form')
  assert.deepEqual(forms.map(({ to, anew }) => [to, anew]).toSorted(), [
    ['a', true],
    ['b', true],
    ['c', undefined],
  ])
  assert.deepEqual(forms[0]?.sources, ['c'])
  for (const name of ['a', 'b', 'c']) desk.confirm(name)
  assert.equal(desk.phase, 'ring')
})

test('one against two: no member is expelled, and all return to the last version that was confirmed', () => {
  const desk = formed({ a: 'false', b: 'false', c: 'right' })
  assert.deepEqual(
    desk.journalled('rewind').map(({ to, final }) => [to.v, final]),
    [[2, true]],
  )
  assert.equal(desk.state.members.size, 3)
  for (const name of ['a', 'b', 'c']) assert.ok(!isOut(desk, name))
})

test('what members disagreed about does not come back with them', () => {
  const desk = formed({ a: 'false', b: 'right' })
  assert.equal(desk.state.chain.head.v, 2)
  const { head } = desk.state.chain
  desk.answer(
    'a',
    desk.entries.flatMap(({ entry }) => (entry.type === 'commit' ? entry.records : [])).filter(({ v }) => v === 3),
    head,
  )
  desk.answer('b', [])
  assert.deepEqual(desk.sent('form')[0]?.target, head)
})

test('after a disagreement that no vote settles, each member concerned fetches its state anew', () => {
  const desk = formed({ a: 'false', b: 'right' })
  for (const name of ['a', 'b']) desk.answer(name, [])
  assert.deepEqual(
    desk.sent('form').map(({ to, anew, sources }) => [to, anew, sources]),
    [
      ['a', true, []],
      ['b', true, []],
    ],
  )
})

test('one against three: it fetches its state anew; when it differs again it waits outside', () => {
  const desk = formed({ a: 'right', b: 'right', c: 'right', d: 'false' })
  assert.deepEqual(desk.journalled('rewind'), [])
  assert.deepEqual(desk.refusals, ['d digest-mismatch'])
  const all = ['a', 'b', 'c', 'd']
  for (const name of all) desk.answer(name, [])
  for (const name of all) desk.confirm(name, name === 'd' ? 'false' : 'right')
  assert.ok(isOut(desk, 'd') && desk.state.members.has(memberId('d')))
  for (const name of all) desk.answer(name, [])
  for (const name of ['a', 'b', 'c']) desk.confirm(name)
  assert.deepEqual([desk.phase, desk.members.length], ['ring', 3])
})

test('a member that disagrees alone again and again waits outside and takes back no further step', () => {
  const desk = formed({ a: 'right', b: 'right', c: 'false' })
  const all = ['a', 'b', 'c']
  for (const name of all) desk.answer(name, [])
  for (const name of all) desk.confirm(name)
  assert.equal(desk.phase, 'ring')
  desk.step(3)
  desk.say('c', {
    type: 'abort',
    step: 4,
    blamed: null,
    why: 'stalled',
    links: [],
    code: 'reduce-timeout',
    message: 'test',
  })
  for (const name of all) desk.answer(name, [])
  for (const name of all) desk.confirm(name, name === 'c' ? 'false' : 'right')
  assert.ok(isOut(desk, 'c') && !isOut(desk, 'a') && !isOut(desk, 'b'))
})

test('at version 0 there is nothing to go back to: of two that differ the one that came last waits', () => {
  const desk = new Desk({ minVolunteers: 2 })
  desk.join('a')
  desk.now += 1
  desk.join('b')
  for (const name of ['a', 'b']) desk.answer(name)
  desk.confirm('a', 'false')
  desk.confirm('b')
  assert.deepEqual([isOut(desk, 'a'), isOut(desk, 'b'), desk.phase], [false, true, 'freeze'])
})

test('many say the same, and a tie is no agreement', () => {
  const said = (...digests: string[]) => new Map(digests.map((text, i) => [memberId(`m${i}`), hashOf(text)]))
  assert.equal(agreementOf(said()), undefined)
  assert.deepEqual(agreementOf(said('x', 'y', 'x'))?.few, ['m1'])
  assert.equal(agreementOf(said('x', 'y', 'x'))?.isClear, true)
  assert.equal(agreementOf(said('x', 'y'))?.isClear, false)
  assert.equal(agreementOf(said('x', 'y', 'x', 'y', 'z'))?.isClear, false)
})

// ---- A5 ----

test("threat 43: the parameter server takes a member's state when another holder confirms it", () => {
  const desk = handingOver({ a: [], b: [] })
  const requests = desk.sent('upload-request')
  assert.deepEqual(
    requests.map(({ to, uploader }) => [to, uploader]),
    [
      ['a', 'a'],
      ['b', 'a'],
    ],
  )
  const { version } = requests[0] ?? assert.fail()
  upload(desk, 'a', version)
  assert.equal(desk.phase, 'handover')
  report(desk, 'b', version)
  assert.deepEqual(
    desk.journalled('checkpoint').map(({ witnessed, agreeing }) => [witnessed, agreeing]),
    [[true, 2]],
  )
  assert.equal(desk.phase, 'async')
})

test('threat 43: a forged state of three holders is not taken, and another of them is asked', () => {
  const desk = handingOver({ a: [], b: [], c: [] })
  const { version, uploader } = desk.sent('upload-request')[0] ?? assert.fail()
  upload(desk, uploader, version, 'forged')
  for (const name of ['a', 'b', 'c']) if (name !== uploader) report(desk, name, version)
  assert.deepEqual(desk.journalled('checkpoint'), [])
  for (const name of ['a', 'b', 'c']) desk.answer(name, [])
  assert.notEqual(desk.sent('upload-request')[0]?.uploader, uploader)
})

test('threat 43: a state for which no second holder speaks is not taken on the word of its uploader', () => {
  const desk = handingOver({ a: [], b: [] })
  const { version, uploader } = desk.sent('upload-request')[0] ?? assert.fail()
  upload(desk, uploader, version, 'forged')
  for (let i = 0; i < 4 && desk.phase === 'handover'; i++) desk.wait(5001)
  assert.deepEqual([desk.phase, desk.journalled('checkpoint')], ['freeze', []])
  for (const name of ['a', 'b']) desk.answer(name, [])
  assert.notEqual(desk.sent('upload-request')[0]?.uploader, uploader, 'the other is asked')
})

test('threat 43: of two holders that differ none is believed: back to the last version that was vouched for', () => {
  const desk = handingOver({ a: [], b: [] })
  const { version, uploader } = desk.sent('upload-request')[0] ?? assert.fail()
  upload(desk, uploader, version, 'forged')
  report(desk, uploader === 'a' ? 'b' : 'a', version)
  assert.deepEqual(
    desk.journalled('rewind').map(({ to }) => to.v),
    [0],
  )
})

test('a step that one member alone holds is not what the server begins with', () => {
  const desk = handingOver({ a: [], b: [], c: 'ahead' })
  assert.deepEqual(
    desk.sent('upload-request').map(({ to, version }) => [to, version.v]),
    [
      ['a', 1],
      ['b', 1],
    ],
  )
})

test('a version with one holder: a ring makes a second, twice; then all go back', () => {
  const desk = handingOver({ a: [], b: undefined })
  assert.deepEqual(desk.sent('form')[0]?.sources, ['a'])
  for (let i = 0; i < 2; i++) {
    desk.say(desk.members[0] ?? assert.fail(), {
      type: 'abort',
      step: 2,
      blamed: null,
      why: 'own',
      links: [],
      code: 'link-lost',
      message: 'test',
    })
    desk.answer('a', [])
    desk.answer('b')
  }
  assert.deepEqual(
    desk.journalled('rewind').map(({ to }) => to.v),
    [0],
  )
})

test('an upload of a large model that began is waited for', () => {
  const desk = handingOver({ a: [], b: [] })
  const { version, uploader } = desk.sent('upload-request')[0] ?? assert.fail()
  Object.assign(desk.state.config, { versionBytes: 60_000_000 })
  desk.feed({ type: 'upload-begun', member: memberId(uploader), version })
  desk.wait(100_000)
  assert.equal(desk.phase, 'handover')
  desk.wait(100_000)
  assert.equal(desk.phase, 'freeze')
})

test('steps that one member brings back after a rewind are in what the parameter server takes over (A5)', () => {
  const desk = new Desk({ minVolunteers: 1, mode: 'auto', blocks: 6, batchBlocks: 1, epochs: 2 })
  desk.join('a', 'b', 'c')
  desk.run('a', 'b', 'c')
  desk.step(1)
  desk.checkpoint()
  desk.step(2)
  const last = desk.state.chain.record(2) ?? assert.fail()
  for (const name of ['a', 'b', 'c']) desk.lose(name)
  desk.wait(desk.state.config.timing.lostMs)
  const { head } = desk.state.chain
  assert.equal(head.v, 1)
  desk.state.health.consecutiveAborts = 100
  desk.join('d', 'e', 'f')
  desk.answer('d', [], head)
  desk.answer('e', [], head)
  desk.answer('f', [last], head)
  const loaded = desk.effects.flatMap((effect) => (effect.type === 'server-load' ? [effect.checkpoint.version.v] : []))
  assert.deepEqual([desk.state.chain.head.v, loaded], [2, []])
  assert.equal(desk.phase, 'form', 'a ring makes a second holder of it first')
})
