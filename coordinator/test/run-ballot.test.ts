// From a disturbance to a running ring: who is waited for, whose claim wins, who is left out (R2–R8, R17).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { applyEntry } from '@starling-grid/coordinator/run'
import { type BlockId, memberId, trainingBlock, validationBlock, type VersionId } from '@starling-grid/protocol'
import { remaining, trainingIsOver } from '../src/run/queue/scheduler.ts'
import { Desk, hashOf, recordsAfter, versionAfter } from './run-desk.ts'

/** A ring of two that holds version 1, which is committed. */
function runningDesk(options: ConstructorParameters<typeof Desk>[0] = {}): Desk {
  const desk = new Desk({ minVolunteers: 2, ...options })
  desk.join('a', 'b')
  desk.run('a', 'b')
  desk.step(1)
  return desk
}

test('a ring starts when all members confirmed, not before, and the start commits what they hold', () => {
  const desk = new Desk({ minVolunteers: 2 })
  desk.join('a')
  assert.equal(desk.phase, 'waiting')
  desk.join('b')
  desk.answer('a')
  desk.answer('b')
  desk.confirm('a')
  assert.equal(desk.phase, 'form')
  desk.confirm('b')
  assert.deepEqual(
    desk.journalled('start').map(({ members }) => members),
    [['a', 'b']],
  )
  assert.deepEqual(
    desk.sent('start').map(({ to }) => to),
    ['a', 'b'],
  )
})

test('the ballot is in the journal before anybody hears of it', () => {
  const desk = runningDesk()
  desk.lose('b')
  const order = desk.effects.map((effect) => (effect.type === 'send' ? effect.message.type : effect.type))
  assert.ok(order.indexOf('journal') < order.indexOf('freeze'))
})

test('messages of an older ballot change nothing', () => {
  const desk = runningDesk()
  const { generation } = desk.state
  const record = desk.record(2)
  desk.lose('b')
  assert.deepEqual(desk.say('a', { type: 'held', record }, generation), [])
  assert.deepEqual(
    desk.say(
      'a',
      { type: 'abort', step: 2, blamed: null, why: 'stalled', links: [], code: 'reduce-timeout', message: 'late' },
      generation,
    ),
    [],
  )
  assert.equal(desk.phase, 'freeze')
})

/** A ring of three that holds version 1, whose member a broke off. */
function brokenRingOfThree(): Desk {
  const desk = new Desk({ minVolunteers: 3, blocks: 60 })
  desk.join('a', 'b', 'c')
  desk.run('a', 'b', 'c')
  desk.step(1)
  return desk
}

/** Members that alone claim other steps 2 than each other; nothing else holds version 1. Who is the source? */
function winnerOf(names: readonly [string, string, string], heldBy?: string): string | undefined {
  const desk = new Desk({ minVolunteers: 3, blocks: 60 })
  desk.join(...names)
  desk.run(...names)
  desk.step(1)
  const [first, second, third] = names
  const right = desk.record(2)
  if (heldBy !== undefined) for (const name of [second, heldBy]) desk.hold(name, right)
  desk.lose(third)
  desk.answer(first, [{ ...right, gradDigest: hashOf(`made up by ${first}`) }])
  desk.answer(second, [right])
  return desk.sent('form')[0]?.sources[0]
}

test('of two members that alone claim a step the one wins for which a third vouched, whatever its id', () => {
  assert.equal(winnerOf(['a', 'b', 'c'], 'c'), 'b')
})

test('of two members that alone claim a step the lower id has no advantage: ids can be made until they are low', () => {
  const names = Array.from({ length: 32 }, (_, i) => [`a${i}`, `b${i}`, `c${i}`] as const)
  const lower = names.filter((three) => winnerOf(three)?.startsWith('a')).length
  assert.ok(lower > 4 && lower < 28, `the lower id wins ${lower} of 32 times`)
})

test('the highest claim wins, and those behind it get it from its holders', () => {
  const desk = brokenRingOfThree()
  const ahead = desk.record(2)
  desk.accuse('a', 'b', 'closed')
  desk.answer('a', [])
  desk.answer('b', [ahead])
  desk.answer('c', [ahead])
  const [form] = desk.sent('form')
  assert.equal(form?.target.v, 2)
  assert.deepEqual(form?.sources, ['b', 'c'])
  assert.deepEqual(form?.members.toSorted(), ['a', 'b', 'c'])
  assert.equal(desk.state.chain.head.v, 1, 'nothing is committed before all confirmed')
})

test('threat 45: a step that one member alone claims is repeated, and no member is refused for it', () => {
  const desk = brokenRingOfThree()
  const ahead = desk.record(2)
  desk.accuse('a', 'b', 'closed')
  desk.answer('a', [])
  desk.answer('c', [])
  desk.answer('b', [ahead])
  assert.deepEqual(desk.refusals, [])
  const [form] = desk.sent('form')
  assert.deepEqual([form?.target.id, form?.sources], [desk.state.chain.head.id, ['a', 'c']])
  assert.ok(desk.effects.some((effect) => effect.type === 'note' && /^b alone holds version 2/.test(effect.text)))
})

test('threat 45: of a claim two steps ahead the step that a second member holds is the target', () => {
  const desk = brokenRingOfThree()
  const [second, third] = [desk.record(2), desk.record(3)]
  desk.accuse('a', 'b', 'closed')
  desk.answer('a', [])
  desk.answer('b', [second, third])
  desk.answer('c', [second])
  const [form] = desk.sent('form')
  assert.deepEqual([form?.target.v, form?.sources], [2, ['c']])
})

test('a claim that one member alone makes is taken when a second said before the ballot that it holds the same', () => {
  const desk = brokenRingOfThree()
  const ahead = desk.record(2)
  desk.hold('b', ahead)
  desk.hold('c', ahead)
  desk.lose('c')
  desk.answer('a', [])
  desk.answer('b', [ahead])
  assert.equal(desk.sent('form')[0]?.target.v, 2)
})

test('what the claimant alone said before the ballot does not back its claim', () => {
  const desk = brokenRingOfThree()
  const ahead = desk.record(2)
  desk.hold('b', ahead)
  desk.lose('c')
  desk.answer('a', [])
  desk.answer('b', [ahead])
  assert.equal(desk.sent('form')[0]?.target.v, 1)
})

test('no committed step is lost: a lone claim counts when no other member holds the committed version', () => {
  const desk = brokenRingOfThree()
  const ahead = desk.record(2)
  desk.lose('a')
  desk.lose('c')
  desk.join('a', 'c')
  desk.answer('a')
  desk.answer('c')
  desk.answer('b', [ahead])
  assert.deepEqual([desk.sent('form')[0]?.target.v, desk.sent('form')[0]?.sources], [2, ['b']])
})

test('a step that one member alone claims is repeated from the checkpoint, when the committed version is one', () => {
  const desk = brokenRingOfThree()
  desk.checkpoint()
  const ahead = desk.record(2)
  desk.lose('a')
  desk.lose('c')
  desk.join('a', 'c')
  desk.answer('a')
  desk.answer('c')
  desk.answer('b', [ahead])
  const [form] = desk.sent('form')
  assert.deepEqual([form?.target.v, form?.coordinatorHolds, form?.sources], [1, true, []])
})

test('of two claims for the same number, which no other backs, the one of the newer generation wins', () => {
  const desk = runningDesk()
  const older = recordsAfter(desk.state.chain.head, desk.state.generation, 1)
  desk.lose('b')
  desk.join('b')
  desk.run('a', 'b')
  const newer = recordsAfter(desk.state.chain.head, desk.state.generation, 1)
  desk.lose('b')
  desk.join('b')
  desk.answer('a', older)
  desk.answer('b', newer)
  const { phase } = desk.state
  assert.equal(phase.type === 'form' && phase.target.id, versionAfter(desk.state.chain.head, newer).id)
})

test('a member that is a little behind the committed version gets the records that it lacks', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 60 })
  desk.join('a', 'b')
  desk.run('a', 'b')
  for (let v = 1; v <= 12; v++) desk.step(v)
  const held = (v: number) => desk.state.chain.at(v) ?? desk.state.chain.genesis
  for (const [behind, replayed] of [
    [2, 2],
    [9, 0],
  ] as const) {
    desk.lose('b')
    desk.join('b')
    desk.answer('a', [])
    desk.answer('b', [], held(12 - behind))
    const [toA, toB] = ['a', 'b'].map((name) => desk.sent('form').find(({ to }) => to === memberId(name)))
    assert.deepEqual([toA?.records.length, toB?.records.length], [0, replayed])
    assert.deepEqual([toB?.committed, toB?.sources], [held(12 - replayed), [memberId('a')]])
  }
})

test('a claim of another branch with the right number is a learner', () => {
  const desk = runningDesk()
  const other = recordsAfter(desk.state.config.genesis, 7, 1)
  desk.lose('b')
  desk.join('b')
  desk.answer('a', [])
  desk.answer('b', other, desk.state.config.genesis)
  const [form] = desk.sent('form')
  assert.deepEqual(form?.sources, ['a'])
  assert.equal(form?.target.id, desk.state.chain.head.id)
})

test('a claim many steps ahead of a fellow of its generation is not taken', () => {
  const desk = runningDesk()
  const lie = recordsAfter(desk.state.chain.head, desk.state.generation, 5)
  desk.say('a', {
    type: 'abort',
    step: 2,
    blamed: null,
    why: 'stalled',
    links: [],
    code: 'reduce-timeout',
    message: 'test',
  })
  desk.answer('a', [])
  desk.answer('b', lie)
  assert.equal(desk.sent('form')[0]?.target.v, 1)
})

for (const [what, lie, problem] of [
  [
    'blocks that are counted already',
    (desk: Desk) => recordsAfter(desk.state.chain.head, desk.state.generation, 1, desk.state.chain.records[0]?.blocks),
    /counted already/,
  ],
  [
    'a block twice',
    (desk: Desk) =>
      recordsAfter(desk.state.chain.head, desk.state.generation, 2, [trainingBlock(1, 0), trainingBlock(1, 0)]),
    /counted already/,
  ],
  [
    'blocks of an epoch that never comes',
    (desk: Desk) => recordsAfter(desk.state.chain.head, desk.state.generation, 1, [trainingBlock(9, 0)]),
    /does not exist/,
  ],
  [
    'blocks that the dataset does not have',
    (desk: Desk) => recordsAfter(desk.state.chain.head, desk.state.generation, 1, [trainingBlock(0, 6)]),
    /does not exist/,
  ],
  [
    'a validation block',
    (desk: Desk) => recordsAfter(desk.state.chain.head, desk.state.generation, 1, [validationBlock(0)]),
    /does not exist/,
  ],
  [
    'a generation that never ran',
    (desk: Desk) => recordsAfter(desk.state.chain.head, desk.state.generation + 7, 1),
    /generation 8, which never ran/,
  ],
] as const)
  test(`a claim one step ahead, with ${what}, is refused, and its member goes on from the committed version`, () => {
    const desk = runningDesk()
    const told = lie(desk) // before the ballot, which raises the generation
    desk.say('a', {
      type: 'abort',
      step: 2,
      blamed: null,
      why: 'stalled',
      links: [],
      code: 'reduce-timeout',
      message: 'test',
    })
    desk.answer('a', [])
    desk.answer('b', told)
    const refused = desk.effects.filter((effect) => effect.type === 'refuse')
    assert.deepEqual(desk.refusals, ['b message-unexpected'])
    assert.match(refused[0]?.message ?? '', problem)
    const form = desk.sent('form').find(({ to }) => to === memberId('b'))
    assert.deepEqual([form?.target.id, form?.sources], [desk.state.chain.head.id, ['a']])
  })

test('a member alone may come back further ahead than others that only fetched its version', () => {
  const desk = new Desk()
  desk.join('a')
  desk.run('a')
  desk.step(1)
  const ahead = recordsAfter(desk.state.chain.head, desk.state.generation, 3)
  desk.checkpoint()
  desk.lose('a')
  desk.join('b')
  desk.run('b')
  desk.join('a')
  desk.admit()
  desk.answer('b', [])
  desk.answer('a', ahead)
  assert.deepEqual(desk.refusals, [])
  assert.equal(desk.sent('form')[0]?.target.v, 4)
})

test('when all members vanish the run waits, and the first that returns gets the work', () => {
  const desk = runningDesk()
  desk.lose('a')
  desk.lose('b')
  assert.equal(desk.phase, 'lost')
  desk.wait(59_000)
  desk.join('b')
  desk.answer('b', [])
  assert.equal(desk.sent('form')[0]?.target.v, 1)
})

test('when no member comes back in time the run goes back to its checkpoint, with a new ballot', () => {
  const desk = runningDesk()
  for (let turn = 0; turn < 2; turn++) {
    desk.lose('b')
    desk.run('a')
    desk.join('b')
    desk.admit()
    desk.run('a', 'b')
  }
  const { generation } = desk.state
  assert.ok(generation > 3, 'R16: a rewind that counted ballots anew would be seen')
  desk.lose('a')
  desk.lose('b')
  desk.wait(60_000)
  assert.deepEqual(
    desk.journalled('rewind').map(({ to }) => to.v),
    [0],
  )
  assert.equal(desk.state.chain.head.v, 0)
  assert.ok(desk.state.generation > generation)
  assert.equal(desk.state.chain.doneIn(0), 0)
})

test('a holder that returns after a rewind brings its branch back, in records that fit a message', () => {
  const desk = new Desk({
    blocks: 400,
    batchBlocks: 1,
    epochs: 1,
    timing: { checkpointSteps: 1000, checkpointMs: 1e9, stallMs: 1e9 },
  })
  desk.join('a')
  desk.run('a')
  for (let v = 1; v <= 200; v++) desk.step(v)
  const {
    chain: { head: held },
    generation,
  } = desk.state
  const left = Array.from({ length: 400 }, (_, i) => trainingBlock(0, i)).filter(
    (block) => !desk.state.chain.isDone(block),
  )
  desk.lose('a')
  desk.wait(60_000)
  assert.equal(desk.state.chain.head.v, 0)
  desk.join('a')
  desk.answer('a', recordsAfter(held, generation, 2, left), held)
  assert.equal(desk.state.chain.head.id, held.id)
  assert.deepEqual(
    desk.sent('form').map(({ target, records }) => [target.v, records.length]),
    [[202, 2]],
  )
})

test('a member that does not answer is left behind, and asked again without being waited for', () => {
  const desk = runningDesk()
  desk.join('mute')
  desk.admit()
  desk.answer('a', [])
  desk.answer('b', [])
  assert.equal(desk.phase, 'freeze')
  desk.wait(2000)
  desk.confirm('a')
  desk.confirm('b')
  assert.equal(desk.phase, 'ring')
  desk.wait(30_000)
  assert.equal(desk.phase, 'ring', 'it is no newcomer')
  desk.lose('b')
  desk.answer('a', [])
  assert.equal(desk.phase, 'form', 'it is not waited for')
  desk.confirm('a')
  desk.answer('mute')
  desk.admit()
  assert.equal(desk.phase, 'freeze', 'it spoke: it may join')
})

test('a new socket of a member in the ring opens a ballot, even before the old one is missed', () => {
  const desk = runningDesk()
  desk.join('b')
  assert.equal(desk.phase, 'freeze')
  assert.deepEqual(
    desk
      .sent('freeze')
      .filter(({ generation }) => generation === desk.state.generation)
      .map(({ to }) => to),
    ['a', 'b'],
  )
})

test('who does not confirm in time is out of the next ring, and back after a while', () => {
  const desk = new Desk({ minVolunteers: 2, timing: { stallMs: 1e9 } })
  desk.join('a', 'b')
  desk.answer('a')
  desk.answer('b')
  desk.confirm('a')
  desk.wait(30_000)
  desk.run('a', 'b')
  assert.deepEqual(desk.members, ['a'])
  desk.wait(50_000)
  assert.equal(desk.phase, 'ring')
  desk.now += 10_000
  desk.admit()
  assert.equal(desk.phase, 'freeze', 'there is a newcomer to admit')
})

test('one accuser may be the culprit, two are believed', () => {
  const desk = new Desk({ minVolunteers: 3 })
  desk.join('a', 'b', 'c')
  const accuse = (by: string): void => {
    desk.run('a', 'b', 'c')
    desk.accuse(by, desk.members[2] ?? '', 'refused')
  }
  accuse('a')
  desk.run('a', 'b', 'c')
  assert.deepEqual(desk.members, ['a', 'b', 'c'])
  accuse('b')
  desk.run('a', 'b', 'c')
  assert.deepEqual(desk.members, ['a', 'b'])
})

test('who gives up again and again is out, unless those it accused were gone indeed', () => {
  const desk = new Desk({ minVolunteers: 2 })
  desk.join('a', 'b')
  for (let i = 0; i < 3; i++) {
    desk.run('a', 'b')
    desk.say('a', {
      type: 'abort',
      step: 1,
      blamed: null,
      why: 'stalled',
      links: [],
      code: 'reduce-timeout',
      message: 'test',
    })
  }
  desk.run('a', 'b')
  assert.deepEqual(desk.members, ['b'])

  const other = new Desk({ minVolunteers: 2 })
  other.join('a', 'b')
  for (let i = 0; i < 3; i++) {
    other.run('a', 'b')
    other.accuse('a', other.members[1] ?? '', 'closed')
    other.lose('b')
    other.join('b')
  }
  other.run('a', 'b')
  assert.deepEqual(other.members, ['a', 'b'])
})

test('a restarted coordinator raises its fence and waits for the last generation', () => {
  const desk = runningDesk()
  const restarted = new Desk({ minVolunteers: 2 }, desk)
  assert.equal(restarted.state.fence, desk.state.fence + 1)
  assert.equal(restarted.state.generation, desk.state.generation + 1)
  assert.equal(restarted.state.chain.head.id, desk.state.chain.head.id)
  restarted.join('a')
  restarted.answer('a', [])
  assert.equal(restarted.phase, 'freeze', 'b is waited for')
  restarted.wait(10_000)
  assert.equal(restarted.phase, 'form')
})

test('a journal with two names for one block leaves no epoch that never ends', () => {
  const desk = runningDesk({ epochs: 1 })
  const [record] = recordsAfter(desk.state.chain.head, desk.state.generation, 1)
  const twice = desk.state.chain.records[0]?.blocks.map((block) => block.replace(':', ':0') as BlockId) ?? []
  const rest = desk.planned(2)
  applyEntry(
    desk.state,
    { type: 'commit', records: [{ ...(record ?? assert.fail()), blocks: [...twice, ...rest] }] },
    0,
  )
  assert.equal(remaining(desk.state, 0), 0)
  assert.equal(trainingIsOver(desk.state), true)
})

test('a confirmation of another version than the target starts nothing', () => {
  const desk = new Desk({ minVolunteers: 2 })
  desk.join('a', 'b')
  desk.answer('a')
  desk.answer('b')
  desk.confirm('a')
  desk.say('b', { type: 'confirm', version: { v: 0, id: 'f'.repeat(64) as VersionId }, digest: hashOf('right') })
  assert.deepEqual([desk.refusals, desk.phase], [['b message-unexpected'], 'form'])
  desk.confirm('b')
  assert.equal(desk.phase, 'ring')
})

test('a claim that no honest member makes does not end the wait for a lost version', () => {
  const desk = runningDesk()
  const lie = recordsAfter(desk.state.chain.head, desk.state.generation + 7, 1)
  desk.lose('a')
  desk.lose('b')
  desk.join('liar')
  desk.answer('liar', lie)
  assert.deepEqual(desk.sent('freeze'), [], 'an answer to which would be the same lie, without end')
  assert.equal(desk.phase, 'lost')
  desk.wait(60_000)
  assert.deepEqual(
    desk.journalled('rewind').map(({ to }) => to.v),
    [0],
    'the time of the wait did not begin anew',
  )
})

test('a rewind takes newer checkpoints with it', () => {
  const desk = runningDesk()
  desk.checkpoint()
  desk.step(2)
  desk.checkpoint()
  assert.deepEqual(
    desk.state.checkpoints.map(({ version }) => version.v),
    [0, 1, 2],
  )
  applyEntry(desk.state, { type: 'rewind', to: desk.state.checkpoints[1]?.version ?? assert.fail() }, 0)
  assert.deepEqual(
    desk.state.checkpoints.map(({ version }) => version.v),
    [0, 1],
  )
})
