// A straggler costs a bounded delay: who is asked, what moves, and that nothing moves without the word of the one who
// had it.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { planTransfers, type AssignmentProgress } from '@starling-grid/coordinator/run'
import { type BlockId, splitBlocks } from '@starling-grid/protocol'
import { Desk } from './run-desk.ts'

const NAMES = ['a', 'b', 'c']

/** A ring of three, each with four blocks of step 1; the assignments in ring order. */
function ring(): { readonly desk: Desk; readonly assignments: readonly BlockId[][] } {
  const desk = new Desk({ minVolunteers: 3, blocks: 24, batchBlocks: 12 })
  desk.join(...NAMES)
  desk.run(...NAMES)
  return { desk, assignments: splitBlocks(desk.planned(1), [1, 1, 1]) }
}

const nameAt = (desk: Desk, rank: number): string => desk.members[rank] ?? ''
const say = (desk: Desk, rank: number, progress: Partial<AssignmentProgress>, round = 1) =>
  desk.say(nameAt(desk, rank), {
    type: 'rebalance-progress',
    step: 1,
    round,
    open: true,
    left: 0,
    blockMs: 100,
    ...progress,
  })

/** The first member is behind with three blocks not begun; the second is done, the third contributed. */
function asked(): ReturnType<typeof ring> {
  const all = ring()
  all.desk.say(nameAt(all.desk, 0), { type: 'behind', step: 1 })
  say(all.desk, 0, { left: 3, blockMs: 1000 })
  say(all.desk, 1, {})
  say(all.desk, 2, { open: false })
  return all
}

test('a member that is behind makes all members pause and report their progress', () => {
  const { desk } = ring()
  desk.say(nameAt(desk, 0), { type: 'behind', step: 1 })
  assert.deepEqual(
    desk.sent('rebalance').map(({ to, step, round }) => [to, step, round]),
    desk.members.map((id) => [id, 1, 1]),
  )
})

test('when all have answered, the slow member is asked to release blocks, and no member has them yet', () => {
  const { desk } = asked()
  assert.deepEqual(
    desk.sent('rebalance-release').map(({ to, count }) => [to, count]),
    [[desk.members[0], 3]],
  )
  assert.deepEqual(desk.sent('rebalance-done'), [])
})

test('what was released goes to the member that waits, and all hear of it', () => {
  const { desk, assignments } = asked()
  const blocks = assignments[0]?.slice(1) ?? []
  desk.say(nameAt(desk, 0), { type: 'rebalance-released', step: 1, round: 1, blocks })
  assert.deepEqual(
    desk.sent('rebalance-done').map(({ to }) => to),
    desk.members,
  )
  assert.deepEqual(desk.sent('rebalance-done')[0]?.moves, [{ from: 0, to: 1, blocks }])
})

test('who begun its blocks meanwhile releases fewer, and only these move', () => {
  const { desk, assignments } = asked()
  const blocks = assignments[0]?.slice(3) ?? []
  desk.say(nameAt(desk, 0), { type: 'rebalance-released', step: 1, round: 1, blocks })
  assert.deepEqual(desk.sent('rebalance-done')[0]?.moves, [{ from: 0, to: 1, blocks }])
})

test('a release of blocks of another member, or of more than asked for, is refused', () => {
  for (const [of, count] of [
    [1, 3],
    [0, 4],
  ] as const) {
    const { desk, assignments } = asked()
    desk.say(nameAt(desk, 0), {
      type: 'rebalance-released',
      step: 1,
      round: 1,
      blocks: assignments[of]?.slice(0, count) ?? [],
    })
    assert.deepEqual(desk.refusals, [`${nameAt(desk, 0)} message-unexpected`])
    assert.deepEqual(desk.sent('rebalance-done')[0]?.moves, [])
  }
})

test('a repeated answer moves nothing twice', () => {
  const { desk, assignments } = asked()
  const released = { type: 'rebalance-released', step: 1, round: 1, blocks: assignments[0]?.slice(3) ?? [] } as const
  desk.say(nameAt(desk, 0), released)
  desk.say(nameAt(desk, 0), released)
  assert.deepEqual(desk.effects, [])
})

test('of two answers of one member the first counts, while another is still waited for', () => {
  const { desk, assignments } = ring()
  desk.say(nameAt(desk, 0), { type: 'behind', step: 1 })
  for (const rank of [0, 1]) say(desk, rank, { left: 3, blockMs: 1000 })
  say(desk, 2, { blockMs: 10 })
  assert.deepEqual(
    desk.sent('rebalance-release').map(({ to }) => to),
    desk.members.slice(0, 2),
  )
  const [first, second] = [assignments[0]?.slice(3) ?? [], assignments[1]?.slice(3) ?? []]
  desk.say(nameAt(desk, 0), { type: 'rebalance-released', step: 1, round: 1, blocks: first })
  desk.say(nameAt(desk, 0), { type: 'rebalance-released', step: 1, round: 1, blocks: [] })
  desk.say(nameAt(desk, 1), { type: 'rebalance-released', step: 1, round: 1, blocks: second })
  assert.deepEqual(
    desk.sent('rebalance-done')[0]?.moves.flatMap(({ blocks }) => blocks),
    [...first, ...second],
  )
})

test('who does not say how far it is takes no part, and the others do not wait for it', () => {
  const { desk } = ring()
  desk.say(nameAt(desk, 0), { type: 'behind', step: 1 })
  say(desk, 0, { left: 3, blockMs: 1000 })
  say(desk, 1, {})
  assert.deepEqual(desk.sent('rebalance-release'), [])
  desk.wait(1000)
  assert.equal(desk.sent('rebalance-release').length, 1)
})

test('when no member can help, all go on with the blocks they had', () => {
  const { desk } = ring()
  desk.say(nameAt(desk, 0), { type: 'behind', step: 1 })
  for (const rank of [0, 1, 2]) say(desk, rank, { open: rank === 0, left: 3 })
  assert.deepEqual(
    desk.sent('rebalance-done').map(({ moves }) => moves),
    [[], [], []],
  )
})

test('the record still names the planned blocks, and the step is committed', () => {
  const { desk, assignments } = asked()
  desk.say(nameAt(desk, 0), { type: 'rebalance-released', step: 1, round: 1, blocks: assignments[0]?.slice(1) ?? [] })
  desk.step(1)
  assert.equal(desk.state.chain.head.v, 1)
})

test('a step has eight rounds at most, and a committed step none', () => {
  const { desk } = ring()
  for (let round = 1; round <= 9; round++) {
    desk.say(nameAt(desk, 0), { type: 'behind', step: 1 })
    assert.equal(desk.sent('rebalance').length, round <= 8 ? 3 : 0)
    for (const rank of [0, 1, 2]) say(desk, rank, { open: false }, round)
  }
  desk.step(1)
  desk.say(nameAt(desk, 0), { type: 'behind', step: 1 })
  assert.deepEqual(desk.sent('rebalance'), [])
})

test('a ballot ends what was under way', () => {
  const { desk, assignments } = asked()
  desk.lose(nameAt(desk, 2))
  desk.say(
    'a',
    { type: 'rebalance-released', step: 1, round: 1, blocks: assignments[0]?.slice(1) ?? [] },
    desk.state.generation - 1,
  )
  assert.deepEqual(desk.effects, [])
})

describe('blocks go', () => {
  const progress = (left: number, blockMs: number, open = true): AssignmentProgress => ({ open, left, blockMs })

  test('from the last to the first until they would be done at the same time', () => {
    assert.deepEqual(planTransfers([progress(8, 1000), progress(0, 100)]), [{ from: 0, to: 1, count: 8 }])
    assert.deepEqual(planTransfers([progress(8, 200), progress(0, 100)]), [{ from: 0, to: 1, count: 6 }])
  })

  test('to no member when all are equally far', () => {
    assert.deepEqual(planTransfers([progress(3, 100), progress(3, 100), undefined]), [])
  })

  test('to several, who then have as much as they can do', () => {
    const transfers = planTransfers([progress(9, 400), progress(0, 400), progress(0, 400)])
    assert.deepEqual(
      transfers.map(({ from, to, count }) => [from, to, count]),
      [
        [0, 1, 3],
        [0, 2, 3],
      ],
    )
  })

  test('never to members that contributed already, nor from them', () => {
    assert.deepEqual(planTransfers([progress(9, 400), progress(0, 100, false), undefined]), [])
    assert.deepEqual(planTransfers([progress(9, 400, false), progress(0, 100)]), [])
  })

  test('from a member of unknown pace at the pace of the others', () => {
    assert.deepEqual(planTransfers([progress(4, 0), progress(0, 100)]), [{ from: 0, to: 1, count: 2 }])
  })
})
