// Who holds a step up (R17): all are asked, what a member says of itself is believed, what it says of others is not.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { memberId, type MessageFrom } from '@starling-grid/protocol'
import { Desk, type DeskOptions } from './run-desk.ts'

type Answer = Pick<MessageFrom<'standing'>, 'stage'> & Partial<Pick<MessageFrom<'standing'>, 'received' | 'waitsFor'>>

/** A ring that has committed a step, so that its members are known to work. */
function deskOf(names: string, options: DeskOptions = {}): Desk {
  const desk = new Desk({ minVolunteers: names.length, blocks: 60, ...options })
  desk.join(...names)
  desk.run(...names)
  desk.step(1)
  return desk
}

/** Asked about its step, members answer what they say; the others do not. */
function answer(desk: Desk, answers: Readonly<Record<string, Answer>>): void {
  const step = desk.state.chain.head.v + 1
  for (const [name, { stage, received = 0, waitsFor = [] }] of Object.entries(answers))
    desk.say(name, { type: 'standing', step, stage, received, waitsFor })
}

/** Time passes until members are asked; true when they are. */
function asked(desk: Desk, ms: number): boolean {
  for (const end = desk.now + ms; desk.now < end;) {
    desk.wait(200)
    if (desk.sent('inquire').length > 0) return true
  }
  return false
}

const out = (desk: Desk): string[] =>
  [...desk.state.members.values()].filter(({ excludedUntil }) => excludedUntil > desk.now).map(({ id }) => id)
const COMPUTING: Answer = { stage: 'computing' }
const CONTRIBUTED: Answer = { stage: 'reducing', received: 3, waitsFor: [0] }

for (const asked_ of ['ring', 'direct'] as const)
  for (const names of ['ab', 'abc', 'abcd'])
    test(`threat 36: of ${names.length} members (${asked_}) one that computes while others wait is left out`, () => {
      const desk = deskOf(names, { exchange: { asked: asked_, bytes: 0 } })
      assert.ok(asked(desk, 11_000))
      const planned = desk.planned(2)
      answer(desk, { ...Object.fromEntries([...names].map((name) => [name, CONTRIBUTED])), b: COMPUTING })
      assert.deepEqual(out(desk), ['b'])
      assert.match(desk.state.phaseReason, /b held step 2 up for 1\d s/)
      const others = [...names].filter((name) => name !== 'b')
      desk.run(...names)
      assert.deepEqual(desk.members, others)
      assert.deepEqual(desk.planned(2), planned, 'its blocks are planned again')
    })

test('a member that is alone and makes no step is left out where another waits', () => {
  const desk = deskOf('a')
  desk.join('b') // its link opens to no member, so it proves nothing
  for (let waited = 0; desk.phase === 'ring' && waited < 400; waited++) desk.wait(1000)
  assert.deepEqual(out(desk), ['a'])
  desk.answer('a', [])
  desk.answer('b')
  assert.deepEqual(desk.members, ['b'])
  const alone = deskOf('a')
  for (let waited = 0; alone.phase === 'ring' && waited < 400; waited++) alone.wait(1000)
  assert.deepEqual(out(alone), [])
})

test('no member is asked before three times the expected duration of the step, planned or measured', () => {
  const slow = deskOf('ab', { blockSamples: 4000 }) // 12,000 samples at 200 a second: a minute
  assert.equal(asked(slow, 170_000), false)
  assert.ok(asked(slow, 20_000))
})

test('threat 36: a member that claims next to no speed does not make its silence a part of the plan', () => {
  for (const names of ['ab', 'abc']) {
    const desk = deskOf(names)
    desk.feed({ type: 'speed', member: memberId('b'), samplesPerSecond: 1e-9 })
    assert.ok(asked(desk, 370_000), `of ${names.length}`)
    answer(desk, { ...Object.fromEntries([...names].map((name) => [name, CONTRIBUTED])), b: COMPUTING })
    assert.deepEqual(out(desk), ['b'])
  }
})

test('a local round is borne for as long as its inner steps take', () => {
  const desk = new Desk({ mode: 'local', roundSteps: 8, minVolunteers: 2, blocks: 60, blockSamples: 500 })
  desk.join('a', 'b')
  desk.run('a', 'b')
  assert.equal(desk.planned(1).length, 24)
  assert.equal(asked(desk, 175_000), false)
  assert.ok(asked(desk, 10_000))
})

test('it stays out longer each time', () => {
  const desk = deskOf('ab')
  const outMs: number[] = []
  for (let i = 0; i < 3; i++) {
    assert.ok(asked(desk, 30_000))
    answer(desk, { a: CONTRIBUTED, b: COMPUTING })
    outMs.push((desk.state.members.get(memberId('b'))?.excludedUntil ?? 0) - desk.now)
    desk.run('a', 'b')
    desk.now += outMs.at(-1) ?? 0
    desk.step(desk.state.chain.head.v + 1)
    desk.admit()
    desk.run('a', 'b')
    desk.step(desk.state.chain.head.v + 1)
  }
  assert.deepEqual(outMs, [60_000, 120_000, 240_000])
})

test('a member that does not answer at all is left out, and its silence costs four seconds', () => {
  const desk = deskOf('abc')
  assert.ok(asked(desk, 11_000))
  answer(desk, { a: CONTRIBUTED, b: CONTRIBUTED })
  desk.wait(4000)
  assert.deepEqual(out(desk), ['c'])
})

test('when no member answers, the fault is elsewhere: no member is left out', () => {
  const desk = deskOf('abc')
  assert.ok(asked(desk, 11_000))
  desk.wait(5000)
  assert.deepEqual(out(desk), [])
})

test('a plan that was wrong for most gives all more time, but not for ever', () => {
  const desk = deskOf('abc')
  for (let i = 0; i < 2; i++) {
    assert.ok(asked(desk, 60_000))
    answer(desk, { a: CONTRIBUTED, b: COMPUTING, c: COMPUTING })
    assert.deepEqual(out(desk), [], `question ${i + 1}`)
  }
  assert.ok(asked(desk, 60_000))
  answer(desk, { a: CONTRIBUTED, b: COMPUTING, c: COMPUTING })
  assert.deepEqual(out(desk), ['b', 'c'])
})

test('a member at its first step has twice the time: it fetches shards and builds kernels', () => {
  const desk = new Desk({ minVolunteers: 2, blocks: 60 })
  desk.join('a', 'b')
  desk.run('a', 'b')
  assert.ok(asked(desk, 11_000))
  answer(desk, { a: CONTRIBUTED, b: COMPUTING })
  assert.deepEqual(out(desk), [])
  assert.ok(asked(desk, 11_000))
  answer(desk, { a: CONTRIBUTED, b: COMPUTING })
  assert.deepEqual(out(desk), ['b'])
})

test('as long as frames move no member is blamed, however slow the link is', () => {
  const desk = deskOf('ab')
  assert.ok(asked(desk, 11_000))
  for (let received = 1; received < 8; received++) {
    answer(desk, {
      a: { stage: 'reducing', received, waitsFor: [1] },
      b: { stage: 'reducing', received, waitsFor: [0] },
    })
    assert.ok(asked(desk, 5000))
  }
  assert.equal(desk.phase, 'ring')
})

test('a member that has all frames of a step and does not hold it is left out', () => {
  const desk = deskOf('abc')
  const holding: Answer = { stage: 'held' }
  for (let i = 0; i < 2; i++) {
    assert.ok(asked(desk, 11_000))
    answer(desk, { a: holding, b: holding, c: { stage: 'reducing', received: 9 } })
  }
  assert.deepEqual(out(desk), ['c'])
})

test('threat 36: a member that gives blocks away and never says which is left out', () => {
  const desk = deskOf('abc')
  const step = 2
  desk.say('a', { type: 'behind', step })
  const { round } = desk.sent('rebalance')[0] ?? { round: 0 }
  desk.say('a', { type: 'rebalance-progress', step, round, open: true, left: 3, blockMs: 500 })
  for (const name of ['b', 'c'])
    desk.say(name, { type: 'rebalance-progress', step, round, open: true, left: 0, blockMs: 10 })
  assert.equal(desk.sent('rebalance-release').length, 1)
  assert.ok(asked(desk, 11_000))
  answer(desk, { a: COMPUTING, b: COMPUTING, c: COMPUTING })
  assert.deepEqual(out(desk), ['a'])
})

describe('threat 36: a member that says it contributed and holds frames back', () => {
  /** Two questions between which no frame moved; by place, what came and which members wait. */
  function stall(desk: Desk, answers: Readonly<Record<string, Answer>>): void {
    for (let i = 0; i < 2; i++) {
      assert.ok(asked(desk, 30_000))
      answer(desk, answers)
    }
  }

  test('a bad pair is kept apart by the next ring, and further bad pairs leave the member out', () => {
    const desk = deskOf('abcd')
    const stallOf = (culprit: string): Record<string, Answer> => {
      const rank = desk.members.indexOf(memberId(culprit))
      return Object.fromEntries(
        desk.members.map((id, i) => [
          id,
          {
            stage: 'reducing',
            received: i === (rank + 1) % desk.members.length ? 1 : 4,
            waitsFor: [(i + desk.members.length - 1) % desk.members.length],
          },
        ]),
      )
    }
    stall(desk, stallOf('b'))
    assert.match(desk.state.phaseReason, /no frames from b to c/)
    assert.deepEqual(out(desk), [], 'one pair proves nothing of either')
    desk.run('a', 'b', 'c', 'd')
    const [b, c] = [desk.members.indexOf(memberId('b')), desk.members.indexOf(memberId('c'))]
    assert.equal(Math.abs(b - c), 2, 'the two are no neighbours any more')
    for (let stalls = 2; stalls <= 4 && out(desk).length === 0; stalls++) {
      stall(desk, stallOf('b'))
      for (const name of 'abcd') desk.answer(name, [])
      for (const name of 'abcd') desk.confirm(name)
    }
    assert.deepEqual(out(desk), ['b'])
    assert.ok(desk.now < 90_000, `it took ${desk.now} ms`)
  })

  test('a liar that reports silence is in the reported pair itself, and evicts no other', () => {
    const desk = deskOf('abcd')
    const lie = (): Record<string, Answer> =>
      Object.fromEntries(
        desk.members.map((id, i) => [
          id,
          { stage: 'reducing', received: id === memberId('c') ? 0 : 5, waitsFor: [(i + 3) % 4] },
        ]),
      )
    for (let i = 0; i < 3; i++) {
      stall(desk, lie())
      for (const name of 'abcd') desk.answer(name, [])
      assert.ok(!out(desk).some((id) => id !== 'c'), out(desk).join())
      for (const name of 'abcd') desk.confirm(name)
    }
    assert.deepEqual(out(desk), ['c'])
  })

  test('in direct exchange the pairs are those that wait for a member which waits for no other', () => {
    const desk = deskOf('abcd', { exchange: { asked: 'direct', bytes: 0 } })
    const [a, b, c, d] = [0, 1, 2, 3]
    stall(desk, {
      a: { stage: 'reducing', waitsFor: [b, c, d] },
      b: { stage: 'reducing', waitsFor: [] },
      c: { stage: 'reducing', waitsFor: [a, b] },
      d: { stage: 'reducing', waitsFor: [a, b] },
    })
    assert.deepEqual(out(desk), ['b'], 'one that has all and does not hold it')
    const other = deskOf('abcd', { exchange: { asked: 'direct', bytes: 0 } })
    stall(other, {
      a: { stage: 'reducing', waitsFor: [b, c] },
      b: { stage: 'reducing', waitsFor: [a] },
      c: { stage: 'reducing', waitsFor: [b] },
      d: { stage: 'reducing', waitsFor: [b, c] },
    })
    assert.deepEqual(out(other), [])
    assert.match(other.state.phaseReason, /no frames from b to a$/)
  })
})
