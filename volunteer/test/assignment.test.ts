// Blocks that change members within a step: never after they were begun, never to two members, always announced (R12).
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import {
  type BlockId,
  extend,
  genesis,
  jobId,
  type Manifest,
  memberId,
  type MessageFrom,
  type MessageTo,
  sha256Name,
  assignmentsOfStep,
  trainingBlock,
} from '@starling-grid/protocol'
import { formOf, takeBlocks } from '@starling-grid/volunteer/testing'
import { blockMsNow, isBehind, pieceOf, plannedMs } from '../src/generation/assignment-pace.ts'
import type { MemberCore, MemberEffect } from '../src/member/member-state.ts'
import { createMember, react } from '../src/member/member.ts'

const ZERO = genesis(jobId('test'), 'model', 1)
const [A, B, C] = [memberId('a'), memberId('b'), memberId('c')]
const BLOCKS = [0, 1, 2, 3, 4, 5].map((i) => trainingBlock(0, i))
const BALLOT = { fence: 1, generation: 1 }
const AT = { ...BALLOT, step: 1 }

/** The first of three members in step 1; its assignment is blocks 0 and 1. */
function member(): MemberCore {
  const core = createMember(A, ZERO)
  react(core, { type: 'order', order: { type: 'freeze', ...BALLOT, committed: 0 } })
  react(core, { type: 'order', order: formOf([A, B, C], ZERO) })
  react(core, { type: 'links-open', generation: 1 })
  react(core, { type: 'state-fetched', generation: 1, version: ZERO })
  react(core, {
    type: 'order',
    order: {
      type: 'start',
      ...BALLOT,
      after: ZERO,
      plan: [
        { step: 1, blocks: BLOCKS },
        { step: 2, blocks: [] },
      ],
    },
  })
  return core
}

const order = (
  core: MemberCore,
  message: MessageTo<'rebalance' | 'rebalance-release' | 'rebalance-done'>,
): MemberEffect[] => react(core, { type: 'order', order: message })
const hold = (core: MemberCore, round = 1) =>
  said(order(core, { type: 'rebalance', ...AT, round }), 'rebalance-progress')
const release = (core: MemberCore, count: number, round = 1) =>
  said(order(core, { type: 'rebalance-release', ...AT, round, count }), 'rebalance-released')
const move = (core: MemberCore, moves: MessageTo<'rebalance-done'>['moves'], round = 1) =>
  order(core, { type: 'rebalance-done', ...AT, round, moves }).map(({ type }) => type)
const take = (core: MemberCore, most: number) => takeBlocks(core, { generation: 1, step: 1, most, blockMs: 10 })

function said<T extends 'rebalance-progress' | 'rebalance-released' | 'behind'>(
  effects: MemberEffect[],
  type: T,
): MessageFrom<T> | undefined {
  return effects.flatMap((effect) =>
    effect.type === 'send' && effect.message.type === type ? [effect.message as MessageFrom<T>] : [],
  )[0]
}

const manifest = (blocks: readonly BlockId[]): Manifest => ({
  blocks,
  samples: blocks.length,
  targets: blocks.length,
  lossSum: 1,
  correct: 0,
})

function reduced(core: MemberCore, assignments: readonly (readonly BlockId[])[]): MemberEffect[] {
  const gradDigest = sha256Name('0'.repeat(64))
  react(core, { type: 'computed', generation: 1, step: 1, manifest: manifest(assignments[0] ?? []), finite: true })
  return react(core, { type: 'reduced', generation: 1, step: 1, manifests: assignments.map(manifest), gradDigest })
}

const blamed = (effects: MemberEffect[]) =>
  effects.flatMap((effect) =>
    effect.type === 'send' && effect.message.type === 'abort' ? [effect.message.blamed] : [],
  )

describe('a share', () => {
  test('is given out block by block and is then sealed', () => {
    const core = member()
    assert.deepEqual([take(core, 1), take(core, 5), take(core, 5)], [[BLOCKS[0]], [BLOCKS[1]], 'complete'])
  })

  test('of a generation that ended has no more blocks', () => {
    const core = member()
    react(core, { type: 'order', order: { type: 'freeze', fence: 1, generation: 2, committed: 0 } })
    assert.equal(take(core, 1), 'over')
  })

  test('gives up only what is not begun, and never begins it afterwards', () => {
    const core = member()
    take(core, 1)
    hold(core)
    assert.deepEqual(release(core, 9)?.blocks, [BLOCKS[1]])
    assert.equal(take(core, 9), 'wait')
  })

  test('answers a repeated release with the same blocks', () => {
    const core = member()
    assert.deepEqual([release(core, 1)?.blocks, release(core, 1)?.blocks], [[BLOCKS[1]], [BLOCKS[1]]])
    assert.deepEqual(take(core, 9), [BLOCKS[0]])
  })

  test('that is sealed gives nothing, and says that it cannot wait', () => {
    const core = member()
    take(core, 9)
    take(core, 9)
    assert.deepEqual([hold(core)?.open, release(core, 9)?.blocks], [false, []])
  })

  test('that waits is complete when the round is over', () => {
    const core = member()
    take(core, 9)
    assert.deepEqual([hold(core)?.open, take(core, 9)], [true, 'wait'])
    assert.deepEqual(move(core, []), ['resume'])
    assert.equal(take(core, 9), 'complete')
  })

  test('gets blocks of others once, also when the message comes twice', () => {
    const core = member()
    hold(core)
    const moves = [{ from: 1, to: 0, blocks: [trainingBlock(0, 3)] }]
    assert.deepEqual([move(core, moves), move(core, moves)], [['resume'], []])
    assert.deepEqual([take(core, 9), take(core, 9)], [[BLOCKS[0], BLOCKS[1], BLOCKS[3]], 'complete'])
  })

  test('is not held by a hold that comes after the end of its round', () => {
    const core = member()
    move(core, [])
    assert.equal(hold(core), undefined)
    take(core, 9)
    assert.equal(take(core, 9), 'complete')
  })

  test('asks for help only while it has blocks that it has not begun, and only once', () => {
    const core = member()
    const ask = () => said(react(core, { type: 'behind', generation: 1, step: 1, blockMs: 900 }), 'behind')?.step
    assert.equal(ask(), 1)
    assert.equal(hold(core)?.blockMs, 900)
    assert.equal(ask(), undefined)
    move(core, [])
    take(core, 9)
    assert.equal(ask(), undefined)
  })
})

test('assignments of a plan are those that it says, and those of FORM otherwise', () => {
  const core = member()
  const blocks = [6, 7, 8, 9].map((i) => trainingBlock(0, i))
  react(core, {
    type: 'order',
    order: {
      type: 'plan',
      ...BALLOT,
      steps: [
        { step: 2, blocks: [] },
        { step: 3, blocks },
      ],
      weights: [3, 1, 0],
    },
  })
  assert.deepEqual(
    [1, 2, 3].map((step) => core.ring?.plan.get(step)?.weights),
    [
      [1, 1, 1],
      [1, 1, 1],
      [3, 1, 0],
    ],
  )
})

describe('manifests of a step', () => {
  const assignments = [BLOCKS.slice(0, 2), BLOCKS.slice(2, 4), BLOCKS.slice(4)]
  function sealed(): MemberCore {
    const core = member()
    take(core, 9)
    take(core, 9)
    return core
  }

  test('make the record of the planned blocks in their order, whichever member computed them', () => {
    const core = sealed()
    const effects = reduced(core, [BLOCKS.slice(0, 2), [BLOCKS[4] as BlockId, ...BLOCKS.slice(2, 4)], BLOCKS.slice(5)])
    const held = effects.find((effect) => effect.type === 'apply')
    assert.deepEqual(held?.record.blocks, BLOCKS)
    assert.deepEqual(core.version, extend(ZERO, held?.record as never))
  })

  test('that hold a block twice end the generation, and who should not have it is named', () => {
    const core = sealed()
    assert.deepEqual(
      blamed(
        reduced(core, [assignments[0] ?? [], assignments[1] ?? [], [...(assignments[2] ?? []), BLOCKS[2] as BlockId]]),
      ),
      [C],
    )
    assert.equal(core.version?.v, 0)
  })

  test('that still hold what their author gave up are its fault, when the move was told', () => {
    const core = sealed()
    order(core, {
      type: 'rebalance-done',
      ...AT,
      round: 1,
      moves: [{ from: 1, to: 2, blocks: [BLOCKS[3] as BlockId] }],
    })
    assert.deepEqual(
      blamed(
        reduced(core, [assignments[0] ?? [], assignments[1] ?? [], [...(assignments[2] ?? []), BLOCKS[3] as BlockId]]),
      ),
      [B],
    )
  })

  test('that leave a block out end the generation', () => {
    const core = sealed()
    assert.deepEqual(blamed(reduced(core, [assignments[0] ?? [], [], assignments[2] ?? []])), [B])
  })
})

describe('the pace of an assignment', () => {
  test('quick assignments are one piece, slow ones several, longer for large gradients', () => {
    const piece = (blockMs: number, gradientBytes = 4e5) => pieceOf({ blocks: 8, blockMs, gradientBytes })
    assert.deepEqual([piece(40), piece(100), piece(4000)], [Number.POSITIVE_INFINITY, 2, 1])
    assert.deepEqual([piece(100, 16e6), piece(200, 16e6)], [Number.POSITIVE_INFINITY, 2])
    const sideBySide = pieceOf({ blocks: 8, blockMs: 4000, gradientBytes: 4e5, atOnce: 3 })
    assert.equal(sideBySide, 3, 'no device waits for a block')
  })

  test('the plan expects all members to need the same time', () => {
    assert.equal(plannedMs(600, [100, 200]), 2000)
  })

  const onTime = { elapsedMs: 1000, pieceMs: 0, pieceBlocks: 0, left: 3, blockMs: 250, plannedMs: 2000 }
  test('a member that needs longer than planned is behind, also while its first piece takes for ever', () => {
    assert.equal(isBehind(onTime), false)
    assert.equal(isBehind({ ...onTime, blockMs: 800 }), true)
    assert.equal(isBehind({ ...onTime, blockMs: 0, pieceBlocks: 1, pieceMs: 1000 }), true)
    assert.equal(blockMsNow({ ...onTime, pieceBlocks: 2, pieceMs: 1000 }), 500)
  })

  test('a member whose blocks are all begun is never behind: no other could help', () => {
    assert.equal(isBehind({ ...onTime, left: 0, elapsedMs: 99_000 }), false)
  })
})

test('members keep what they learned from, and share the rest so that all have their part', () => {
  const kept = [[BLOCKS[4] as BlockId, BLOCKS[5] as BlockId], [], []]
  assert.deepEqual(assignmentsOfStep({ blocks: BLOCKS, kept }, [1, 1, 1]), [
    [BLOCKS[4], BLOCKS[5]],
    BLOCKS.slice(0, 2),
    BLOCKS.slice(2, 4),
  ])
  assert.deepEqual(assignmentsOfStep({ blocks: BLOCKS, kept: [[], [...BLOCKS], []] }, [1, 1, 1]), [[], BLOCKS, []])
})

describe('what off-ring members computed (A1)', () => {
  const LENT = [10, 11].map((i) => trainingBlock(0, i))
  const tell = (core: MemberCore, rank = 0) =>
    react(core, {
      type: 'order',
      order: { type: 'off-ring', ...BALLOT, id: 7, rank, blocks: LENT, samples: 4, targets: 4, lossSum: 2, correct: 1 },
    })
  const assignments = (mine: readonly BlockId[]) => [mine, BLOCKS.slice(2, 4), BLOCKS.slice(4)]

  test('is known at once, fetched when all know of it, and goes with the next share that is sealed', () => {
    const core = member()
    assert.deepEqual(
      tell(core).map((effect) => effect.type === 'send' && effect.message.type),
      ['off-ring-known'],
    )
    assert.deepEqual(
      react(core, { type: 'order', order: { type: 'off-ring-take', ...BALLOT, id: 7 } }).map(({ type }) => type),
      ['fetch-given'],
    )
    react(core, { type: 'given-fetched', generation: 1, id: 7 })
    take(core, 9)
    take(core, 9)
    assert.deepEqual(core.ring?.flight?.given?.blocks, LENT)
    const apply = reduced(core, assignments([...BLOCKS.slice(0, 2), ...LENT])).find((effect) => effect.type === 'apply')
    assert.deepEqual(apply?.record.blocks, [...BLOCKS, ...LENT])
  })

  test('goes into one step, also when everything is said twice', () => {
    const core = member()
    tell(core)
    react(core, { type: 'given-fetched', generation: 1, id: 7 })
    take(core, 9)
    take(core, 9)
    reduced(core, assignments([...BLOCKS.slice(0, 2), ...LENT]))
    tell(core)
    react(core, { type: 'given-fetched', generation: 1, id: 7 })
    takeBlocks(core, { generation: 1, step: 2, most: 9, blockMs: 1 })
    assert.equal(core.ring?.flight?.step, 2)
    assert.equal(core.ring?.flight?.given, undefined)
  })

  test('is right in the manifest of the member that was given it, and a lie in any other', () => {
    const cases: [number, readonly (readonly BlockId[])[], unknown][] = [
      [1, [BLOCKS.slice(0, 2), [...BLOCKS.slice(2, 4), ...LENT], BLOCKS.slice(4)], []],
      [1, [BLOCKS.slice(0, 2), BLOCKS.slice(2, 4), [...BLOCKS.slice(4), ...LENT]], [C]],
      [2, [BLOCKS.slice(0, 2), BLOCKS.slice(2, 4), [...BLOCKS.slice(4), LENT[0] as BlockId]], [C]],
    ]
    for (const [rank, found, wrong] of cases) {
      const core = member()
      tell(core, rank)
      take(core, 9)
      take(core, 9)
      assert.deepEqual(blamed(reduced(core, found)), wrong)
    }
  })
})
