// Members say different states of one version: the coordinator derives the state, and the true one decides (decision
// 0020), however many say otherwise. Where it cannot be derived, votes decide, and the events say why.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { applyEntry } from '@starling-grid/coordinator/run'
import { memberId, SUMS_KEPT, type VersionRef } from '@starling-grid/protocol'
import { atCheckpoint, formed, handingOver, isOut, report, ringOf, upload } from './agreement-desk.ts'
import { Desk, hashOf, recordsAfter } from './run-desk.ts'

const ALL = ['a', 'b', 'c']

function derivations(desk: Desk) {
  return desk.effects.filter((effect) => effect.type === 'derive-state')
}

function notes(desk: Desk): string {
  return desk.effects.flatMap((effect) => (effect.type === 'note' ? [effect.text] : [])).join('\n')
}

/** A ring of three whose states are derived, at the version of a checkpoint. */
function ofThree(derives = 'right') {
  const desk = ringOf(ALL)
  desk.derives = derives
  const { version, uploader, others } = atCheckpoint(desk)
  const [first = '', second = ''] = others
  return { desk, version, uploader, first, second }
}

function outOf(desk: Desk, names: readonly string[]): readonly boolean[] {
  return names.map((name) => isOut(desk, name))
}

// ---- uploads ----

test('threat 43: two liars of three do not pass a false upload: both are named and left out', () => {
  const { desk, version, uploader, first: liar, second: honest } = ofThree()
  report(desk, liar, version, 'false')
  report(desk, honest, version)
  upload(desk, uploader, version, 'false')
  assert.deepEqual(desk.journalled('checkpoint'), [])
  assert.deepEqual(desk.refusals.toSorted(), [`${liar} digest-mismatch`, `${uploader} digest-mismatch`].toSorted())
  assert.deepEqual(outOf(desk, [liar, uploader, honest]), [true, true, false])
  assert.equal(desk.state.members.size, 3, 'no member is expelled for good')
  for (const name of ALL) desk.answer(name, [])
  assert.deepEqual(desk.members, [honest])
})

test('threat 43: an honest upload becomes a checkpoint although two liars of three say another digest', () => {
  const { desk, version, uploader, first, second } = ofThree()
  for (const liar of [first, second]) report(desk, liar, version, 'false')
  upload(desk, uploader, version)
  assert.deepEqual(
    desk.journalled('checkpoint').map((entry) => [entry.version.v, entry.blob, entry.witnessed, entry.agreeing]),
    [[version.v, hashOf('right'), true, 1]],
  )
  assert.deepEqual(outOf(desk, [first, second, uploader]), [true, true, false])
})

test('threat 43: a false checkpoint of two liars is taken back when the third member doubts it late', () => {
  const { desk, version, uploader, first: liar, second: honest } = ofThree('later')
  report(desk, liar, version, 'false')
  upload(desk, uploader, version, 'false')
  assert.equal(desk.state.checkpoints.length, 1, 'the third member is heard first')
  desk.wait(2000)
  assert.equal(desk.state.checkpoints.at(-1)?.blob, hashOf('false'))
  report(desk, honest, version)
  assert.deepEqual(
    derivations(desk).map(({ from }) => from.version.v),
    [0],
    'not from the checkpoint in doubt',
  )
  desk.derive(version, 'right')
  assert.deepEqual(
    desk.journalled('checkpoint-damaged').map((entry) => entry.version),
    [version],
  )
  assert.deepEqual([desk.state.checkpoints.length, desk.state.chain.head], [1, version], 'no step is repeated')
  assert.deepEqual(outOf(desk, [liar, uploader, honest]), [true, true, false])
  for (const name of ALL) desk.answer(name, [])
  assert.deepEqual(
    desk.sent('form').map(({ to, target, sources, coordinatorHolds }) => [to, target, sources, coordinatorHolds]),
    [[honest, version, [honest], false]],
  )
})

test('threat 43: a true checkpoint stays although more members doubt it than agreed on it', () => {
  const desk = ringOf(['a', 'b', 'c', 'd', 'e'])
  desk.derives = 'later'
  const {
    version,
    uploader,
    others: [honest = '', ...liars],
  } = atCheckpoint(desk)
  report(desk, honest, version)
  upload(desk, uploader, version)
  desk.wait(2000)
  for (const liar of liars) report(desk, liar, version, 'false')
  desk.derive(version, 'right')
  assert.equal(desk.state.checkpoints.at(-1)?.blob, hashOf('right'))
  assert.deepEqual(outOf(desk, [honest, uploader, ...liars]), [false, false, true, true, true])
})

/** A ring of two that left the third member out for its slowness. */
function withoutThird(derives: string | null) {
  const desk = ringOf(ALL)
  desk.step(1)
  desk.derives = derives
  const out = desk.state.members.get(memberId('c')) ?? assert.fail('c is not here')
  out.excludedUntil = desk.now + 1e6
  desk.accuse('a', 'b', 'own')
  for (const name of ALL) desk.answer(name, [])
  for (const name of ['a', 'b']) desk.confirm(name)
  const { version, uploader, others } = atCheckpoint(desk)
  desk.feed({ type: 'upload-begun', member: memberId(uploader), version })
  report(desk, others[0] ?? '', version, 'false')
  upload(desk, uploader, version, 'false')
  return { desk, version, uploader }
}

test('threat 43: two liars pass no false state while the third member is left out', () => {
  const { desk, uploader } = withoutThird('right')
  assert.deepEqual(desk.members.toSorted(), ['a', 'b'])
  desk.wait(3000)
  assert.deepEqual([desk.state.checkpoints.at(-1)?.version.v, desk.state.checkpointing.upload], [0, undefined])
  assert.deepEqual(desk.sent('checkpoint-at'), [], 'no upload after upload')
  desk.wait(20_000)
  assert.ok(desk.sent('checkpoint-at').some((asked) => asked.uploader !== uploader))
})

test('two members of a ring that left a third out are believed where the state is derived so, or cannot be', () => {
  for (const derives of ['false', null]) {
    const { desk, version } = withoutThird(derives)
    assert.equal(desk.state.checkpoints.at(-1)?.version.v, version.v)
  }
})

for (const bytes of ['right', 'false'])
  test(`threat 43: of two members the liar is named, where ${bytes === 'right' ? 'the other' : 'it'} uploads`, () => {
    const desk = ringOf(['a', 'b'])
    desk.derives = 'right'
    const {
      version,
      uploader,
      others: [other = ''],
    } = atCheckpoint(desk)
    const liar = bytes === 'right' ? other : uploader
    report(desk, other, version, bytes === 'right' ? 'false' : 'right')
    upload(desk, uploader, version, bytes)
    assert.equal(desk.journalled('checkpoint').length, bytes === 'right' ? 1 : 0)
    assert.deepEqual(
      ['a', 'b'].map((name) => isOut(desk, name)),
      ['a', 'b'].map((name) => name === liar),
    )
  })

test('the ring trains on while a state is derived, and asks for no other upload', () => {
  const { desk, version, uploader, first, second } = ofThree('later')
  report(desk, first, version, 'false')
  report(desk, second, version)
  upload(desk, uploader, version)
  for (let i = 0; i < 3; i++) {
    desk.step(desk.state.chain.head.v + 1)
    desk.wait(9000)
    assert.deepEqual([desk.phase, desk.refusals, desk.sent('checkpoint-at'), derivations(desk)], ['ring', [], [], []])
  }
  assert.equal(desk.state.checkpoints.length, 1)
  desk.derive(version, 'right')
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, version.v)
  assert.deepEqual(outOf(desk, [first, second, uploader]), [true, false, false])
})

test('a ballot while a state is derived loses neither the upload nor who said what', () => {
  const { desk, version, uploader, first: liar, second: honest } = ofThree('later')
  report(desk, liar, version, 'false')
  report(desk, honest, version)
  upload(desk, uploader, version)
  desk.join('d')
  desk.admit()
  desk.derive(version, 'right')
  desk.run(...ALL, 'd')
  desk.wait(0)
  assert.equal(desk.state.checkpoints.at(-1)?.version.v, version.v)
  assert.ok(isOut(desk, liar))
})

// ---- CONFIRM ----

test('threat 43: two liars of three that confirm a false state take no step back', () => {
  const desk = formed({ a: 'false', b: 'false', c: 'right' }, { derives: 'right' })
  assert.deepEqual(desk.refusals.toSorted(), ['a digest-mismatch', 'b digest-mismatch'])
  assert.deepEqual([desk.journalled('rewind'), desk.state.chain.head.v], [[], 3])
  for (const name of ALL) desk.answer(name, [])
  assert.deepEqual(
    desk.sent('form').map(({ to, anew, sources }) => [to, anew, sources]),
    [
      ['a', true, ['c']],
      ['b', true, ['c']],
      ['c', undefined, ['c']],
    ],
  )
  desk.confirm('a', 'false')
  desk.confirm('b')
  desk.confirm('c')
  assert.deepEqual(derivations(desk), [], 'the answer is remembered')
  assert.deepEqual(outOf(desk, ALL), [true, false, false])
})

test('CONFIRM waits for the derived state, longer than for a member that is late', () => {
  const desk = formed({ a: 'false', b: 'right' }, { derives: 'later' })
  const { target } = desk.state.phase as { readonly target: VersionRef }
  desk.wait(60_000)
  assert.equal(desk.phase, 'form')
  desk.derive(target, 'right')
  assert.deepEqual([desk.refusals, desk.journalled('rewind')], [['a digest-mismatch'], []])
})

test('steps that are not committed yet belong to what is derived', () => {
  const desk = ringOf(['a', 'b'])
  desk.derives = 'later'
  desk.step(1)
  const ahead = desk.record(2)
  desk.hold('a', ahead)
  desk.accuse('b', 'a', 'stalled')
  for (const name of ['a', 'b']) desk.answer(name, [ahead])
  desk.confirm('a', 'false')
  desk.confirm('b')
  assert.deepEqual(
    derivations(desk).map(({ version, steps }) => [version.v, steps.map(({ record }) => record.v)]),
    [[2, [1, 2]]],
  )
})

test('version 0 is derived from the seed, without any sum', () => {
  const desk = new Desk({ minVolunteers: 2 })
  desk.derives = 'right'
  desk.join('a', 'b')
  for (const name of ['a', 'b']) desk.answer(name)
  desk.confirm('a', 'false')
  desk.confirm('b')
  const [asked] = derivations(desk)
  assert.deepEqual([asked?.from.blob, asked?.steps], [undefined, []])
  assert.deepEqual([desk.refusals, outOf(desk, ['a', 'b'])], [['a digest-mismatch'], [false, false]])
})

test('a coordinator that ended before the answer derives the state again', () => {
  const before = formed({ a: 'false', b: 'false', c: 'right' }, { derives: 'later' })
  assert.equal(derivations(before).length, 1)
  const desk = new Desk({ minVolunteers: 3, blocks: 300, batchBlocks: 1, epochs: 3 }, before)
  desk.derives = 'later'
  desk.join(...ALL)
  for (const name of ALL) desk.answer(name, [])
  for (const name of ALL) desk.confirm(name, name === 'c' ? 'right' : 'false')
  const [asked] = derivations(desk)
  assert.equal(asked?.version.v, 3)
  desk.derive(asked?.version ?? assert.fail(), 'right')
  assert.deepEqual(desk.refusals.toSorted(), ['a digest-mismatch', 'b digest-mismatch'])
})

// ---- A5 ----

test('threat 43: two of three holders that lie hand no false state over to the parameter server', () => {
  const desk = handingOver({ a: [], b: [], c: [] })
  desk.derives = 'right'
  const { version, uploader } = desk.sent('upload-request')[0] ?? assert.fail()
  const [liar = '', honest = ''] = ALL.filter((name) => name !== uploader)
  report(desk, liar, version, 'false')
  upload(desk, uploader, version, 'false')
  assert.equal(desk.phase, 'handover', 'the third holder is heard')
  report(desk, honest, version)
  assert.deepEqual([desk.journalled('checkpoint'), desk.phase], [[], 'freeze'])
  for (const name of ALL) desk.answer(name, [])
  assert.notEqual(desk.sent('upload-request')[0]?.uploader, uploader)
})

test('threat 43: an honest upload is handed over although two of three holders say another digest', () => {
  const desk = handingOver({ a: [], b: [], c: [] })
  desk.derives = 'right'
  const { version, uploader } = desk.sent('upload-request')[0] ?? assert.fail()
  for (const name of ALL) if (name !== uploader) report(desk, name, version, 'false')
  upload(desk, uploader, version)
  assert.deepEqual(
    desk.journalled('checkpoint').map(({ blob, witnessed }) => [blob, witnessed]),
    [[hashOf('right'), true]],
  )
  assert.equal(desk.phase, 'async')
})

test('a holder whose only witness is mute hands over what the coordinator derives as well', () => {
  const desk = handingOver({ a: [], b: [] })
  desk.derives = 'right'
  const { version, uploader } = desk.sent('upload-request')[0] ?? assert.fail()
  upload(desk, uploader, version)
  assert.equal(desk.phase, 'handover')
  desk.wait(5001)
  assert.equal(desk.phase, 'async')
})

// ---- where it cannot be derived ----

test('without the sums votes decide, and journal and events say so in a sentence', () => {
  const { desk, version, uploader, first, second } = ofThree('later')
  report(desk, first, version, 'false')
  report(desk, second, version)
  upload(desk, uploader, version)
  desk.derive(version, null)
  assert.deepEqual(desk.journalled('derived'), [{ type: 'derived', version, why: 'no member serves the sums' }])
  assert.match(
    notes(desk),
    new RegExp(`the state of version ${version.v} is not derived, and votes decide: no member serves the sums`),
  )
  assert.deepEqual([desk.state.checkpoints.at(-1)?.blob, isOut(desk, first)], [hashOf('right'), true])
})

test('a derived state that no member holds is not believed: votes decide', () => {
  const { desk, version, uploader, first, second } = ofThree('something else')
  report(desk, first, version, 'false')
  report(desk, second, version)
  upload(desk, uploader, version)
  assert.match(notes(desk), /no member holds the state of version \d+ that was derived: votes decide/)
  assert.deepEqual([desk.state.checkpoints.at(-1)?.blob, isOut(desk, first)], [hashOf('right'), true])
})

test('a shell that never answers keeps no run from going on', () => {
  const desk = formed({ a: 'false', b: 'right' }, { derives: 'later' })
  desk.wait(150_001)
  assert.match(notes(desk), /is not derived, and votes decide: it took more than 150 s/)
  assert.deepEqual(
    desk.journalled('rewind').map(({ to }) => to.v),
    [2],
  )
})

test('from a checkpoint too many steps back no sum is asked for, and votes decide', () => {
  const far = ringOf(ALL, { timing: { checkpointSteps: SUMS_KEPT + 1, checkpointMs: 1e9 }, epochs: 3 })
  far.derives = 'right'
  const { version, uploader, others } = stepsUntilAsked(far)
  for (const name of others) report(far, name, version, 'false')
  upload(far, uploader, version)
  assert.deepEqual(derivations(far), [])
  assert.match(notes(far), /votes decide: the last checkpoint is \d+ steps back, and members keep 256 sums/)
})

test('steps of the parameter server have no sums: votes decide about what follows them', () => {
  const desk = new Desk({ minVolunteers: 2 })
  const [record] = recordsAfter(desk.state.chain.head, 1, 1)
  applyEntry(desk.state, { type: 'commit', records: [{ ...(record ?? assert.fail()), kind: 'async' }] }, 0)
  desk.join('a', 'b')
  for (const name of ['a', 'b']) desk.answer(name, [])
  desk.confirm('a', 'false')
  desk.confirm('b')
  assert.deepEqual(derivations(desk), [])
  assert.match(notes(desk), /votes decide: the parameter server, which keeps no sums, made steps since version 0/)
})

function stepsUntilAsked(desk: Desk): ReturnType<typeof atCheckpoint> {
  while (desk.state.checkpointing.asked === undefined) desk.step(desk.state.chain.head.v + 1)
  return atCheckpoint(desk)
}

test('one state at a time is derived, and members of both sides are asked first', () => {
  const { desk, version, uploader, first, second } = ofThree('later')
  report(desk, first, version, 'false')
  report(desk, second, version, 'false')
  upload(desk, uploader, version)
  const [asked] = derivations(desk)
  assert.deepEqual(asked?.members.toSorted(), [...ALL])
  assert.ok(asked?.members.slice(0, 2).includes(memberId(uploader)), 'one of the few is asked before all of the many')
  assert.deepEqual(
    asked?.steps.map(({ record }) => record.v),
    desk.state.chain.records.map(({ v }) => v).slice(0, version.v),
  )
  desk.step(version.v + 1)
  desk.accuse('a', 'b', 'stalled')
  for (const name of ALL) desk.answer(name, [])
  for (const name of ALL) desk.confirm(name, name === first ? 'right' : 'false')
  assert.deepEqual([desk.phase, derivations(desk)], ['form', []])
  desk.derive(version, 'right')
  assert.deepEqual(
    derivations(desk).map((one) => one.version.v),
    [version.v + 1],
  )
})
