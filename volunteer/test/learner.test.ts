// A newcomer beside a running ring: it fetches, follows, and lets nothing change its version that is not committed.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  extend,
  genesis,
  jobId,
  memberId,
  type MessageTo,
  sha256Name,
  type StepRecord,
  trainingBlock,
  type VersionRef,
} from '@starling-grid/protocol'
import { formOf } from '@starling-grid/volunteer/testing'
import type { MemberCore, MemberEffect } from '../src/member/member-state.ts'
import { createMember, goOnFrom, react } from '../src/member/member.ts'

const ZERO = genesis(jobId('test'), 'model', 1)
const [A, B] = [memberId('a'), memberId('b')]
const record = (v: number): StepRecord => ({
  v,
  generation: 1,
  modeEpoch: 0,
  kind: 'ring',
  blocks: [trainingBlock(0, v)],
  samples: 1,
  targets: 1,
  lossSum: 1,
  correct: 0,
  gradDigest: sha256Name('0'.repeat(64)),
})
const VERSIONS = [1, 2, 3, 4, 5].reduce<VersionRef[]>(
  (all, v) => [...all, extend(all.at(-1) ?? ZERO, record(v))],
  [ZERO],
)
const version = (v: number): VersionRef => VERSIONS[v] ?? ZERO

const newcomer = (): MemberCore => createMember(A, ZERO)
const order = (core: MemberCore, message: MessageTo<'prefetch' | 'follow' | 'freeze' | 'form'>): MemberEffect[] =>
  react(core, { type: 'order', order: message })
const prefetch = (core: MemberCore, v: number, generation = 1) =>
  order(core, { type: 'prefetch', fence: 1, generation, version: version(v), sources: [B], coordinatorHolds: false })
const follow = (core: MemberCore, vs: readonly number[], generation = 1) =>
  order(core, { type: 'follow', fence: 1, generation, records: vs.map(record), sources: [B] })
const fetched = (core: MemberCore, v: number, generation = 1) =>
  react(core, { type: 'reduced-fetched', generation, version: version(v) })
const kinds = (effects: readonly MemberEffect[]) =>
  effects.map((effect) => (effect.type === 'send' ? effect.message.type : effect.type))

function learner(): MemberCore {
  const core = newcomer()
  prefetch(core, 1)
  react(core, { type: 'state-fetched', generation: 1, version: version(1) })
  return core
}

test('a newcomer fetches the version that is offered, adopts it, and says so', () => {
  const core = newcomer()
  assert.deepEqual(kinds(prefetch(core, 1)), ['fetch-state'])
  assert.deepEqual(kinds(react(core, { type: 'state-fetched', generation: 1, version: version(1) })), [
    'adopt',
    'prefetched',
  ])
  assert.deepEqual([core.version, core.base, core.tail], [version(1), version(1), []])
})

test('it follows one step after the other, in order, each applied at its parent', () => {
  const core = learner()
  const fetches = (effects: readonly MemberEffect[]) =>
    effects.flatMap((effect) => (effect.type === 'fetch-reduced' ? [effect.target.v] : []))
  assert.deepEqual(fetches(follow(core, [2, 3])), [2])
  assert.deepEqual(follow(core, [3, 4]), [], 'one at a time')
  assert.deepEqual(kinds(fetched(core, 2)), ['apply', 'prefetched', 'fetch-reduced'])
  assert.deepEqual(fetched(core, 2), [], 'an answer that comes twice')
  assert.deepEqual(kinds(fetched(core, 3)), ['apply', 'fetch-reduced'])
  assert.deepEqual(kinds(fetched(core, 4)), ['apply', 'prefetched'], 'and says so when it knows of no more')
  assert.deepEqual([core.version, core.base, core.tail], [version(4), version(4), []])
})

test('one that follows as fast as steps are committed, and never holds the last of them, says how far it is', () => {
  const core = learner()
  follow(core, [2, 3])
  const said: unknown[] = []
  for (const v of [2, 3]) {
    follow(core, [v + 2])
    for (const effect of fetched(core, v))
      if (effect.type === 'send' && effect.message.type === 'prefetched') said.push(effect.message.version)
  }
  assert.deepEqual(said, [version(2)], 'and again at version 4, the last that it knew of then')
  assert.deepEqual(kinds(fetched(core, 4)), ['apply', 'prefetched', 'fetch-reduced'])
})

test('a step is applied only to its parent: a sum of another branch changes nothing (R7)', () => {
  const core = learner()
  follow(core, [2])
  const otherBranch = extend(version(1), { ...record(2), blocks: [trainingBlock(0, 9)] })
  assert.deepEqual(react(core, { type: 'reduced-fetched', generation: 1, version: otherBranch }), [])
  assert.deepEqual(core.version, version(1))
  assert.deepEqual(kinds(fetched(core, 2)), ['apply', 'prefetched'], 'the right one still counts')
})

test('a ballot ends it, its claim is the version that it holds whole, and what is still brought is ignored', () => {
  const core = learner()
  follow(core, [2])
  const [, state] = order(core, { type: 'freeze', fence: 1, generation: 2, committed: 0 })
  assert.deepEqual(state?.type === 'send' && state.message.type === 'state' && state.message.claim, {
    base: version(1),
    records: [],
  })
  assert.deepEqual(fetched(core, 2), [])
  assert.deepEqual(core.version, version(1))
})

test('after a ballot that left it out it goes on with the next news', () => {
  const core = learner()
  order(core, { type: 'freeze', fence: 1, generation: 2, committed: 0 })
  assert.deepEqual(kinds(follow(core, [2], 2)), ['fetch-reduced'])
  assert.deepEqual(follow(core, [2], 1), [], 'news of an older ballot')
})

test('offers of older ballots, and to members of a ring, are ignored', () => {
  const core = learner()
  order(core, { type: 'freeze', fence: 1, generation: 2, committed: 0 })
  assert.deepEqual(prefetch(core, 3, 1), [])
  order(core, formOf([A], version(1), { generation: 2 }))
  assert.deepEqual([prefetch(core, 3, 2), follow(core, [2], 2)], [[], []])
})

test('what was never committed is not given up for an offer', () => {
  const core = newcomer()
  Object.assign(core, { version: version(2), base: version(1), tail: [record(2)] })
  const effects = prefetch(core, 3)
  assert.deepEqual(
    effects.map((effect) => effect.type === 'send' && effect.message.type === 'prefetched' && effect.message.version),
    [null],
  )
  assert.deepEqual(core.version, version(2))
})

test('what it kept is followed from when the coordinator said that it is committed, and not before', () => {
  const core = newcomer()
  assert.ok(goOnFrom(core, { base: version(1), records: [record(2)] }, version(2)))
  assert.deepEqual(follow(core, [3]), [])
  react(core, { type: 'order', order: { type: 'ack', fence: 1, generation: 1, committed: version(2) } })
  assert.deepEqual(kinds(follow(core, [3])), ['fetch-reduced'])
})

test('records that do not lead to the kept state prove nothing, and change nothing', () => {
  const core = newcomer()
  for (const claim of [
    { base: version(1), records: [record(3)] },
    { base: version(1), records: [] },
  ])
    assert.equal(goOnFrom(core, claim, version(2)), false)
  assert.deepEqual([core.version, core.base], [undefined, ZERO])
})

test('when no member can send the state or a step any more, the learner reports it and keeps its state', () => {
  const core = newcomer()
  prefetch(core, 1)
  const trouble = { type: 'trouble', generation: 1, blamed: null, why: 'own', code: 'link-lost', message: '' } as const
  assert.deepEqual(kinds(react(core, trouble)), ['prefetched'])
  const other = learner()
  follow(other, [2, 3])
  assert.deepEqual(kinds(react(other, { type: 'reduced-missing', generation: 1 })), ['prefetched'])
  assert.deepEqual(other.version, version(1))
})
