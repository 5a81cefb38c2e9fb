// Generation fencing: a frame of another generation changes nothing, whatever it is (R3).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FRAME_TYPES, type FrameType, genesis, jobId, memberId } from '@starling-grid/protocol'
import { formOf } from '@starling-grid/volunteer/testing'
import { fateOf } from '../src/member/frame-fate.ts'
import { createMember, react } from '../src/member/member.ts'

const ZERO = genesis(jobId('test'), 'model', 1)
const [before, self, after, stranger] = ['a', 'b', 'c', 'd'].map(memberId) as [
  ReturnType<typeof memberId>,
  ReturnType<typeof memberId>,
  ReturnType<typeof memberId>,
  ReturnType<typeof memberId>,
]
const RING: readonly FrameType[] = ['partial', 'reduced', 'manifest']
const ANSWERS: readonly FrameType[] = ['chunk', 'hashes', 'refusal']

/** In the ring a, b, c of generation 7. */
function inRing() {
  const core = createMember(self, ZERO)
  react(core, { type: 'order', order: { type: 'freeze', fence: 1, generation: 7, committed: 0 } })
  react(core, { type: 'order', order: formOf([before, self, after], ZERO, { generation: 7 }) })
  return core
}

/** What happens to frames of another generation; all others are stale. */
const HARMLESS: Partial<Record<FrameType, string>> = {
  fetch: 'serve',
  shard: 'share',
  heartbeat: 'ignore',
  greeting: 'ignore',
}

test('every kind of frame is fenced: none of an older or newer generation is taken', () => {
  const core = inRing()
  for (const type of Object.keys(FRAME_TYPES) as FrameType[])
    for (const generation of [0, 6, 8, 0xffffffff]) {
      const fate = fateOf(core, before, { type, generation })
      assert.equal(fate, HARMLESS[type] ?? 'generation-stale', `${type} of generation ${generation}`)
    }
})

test('frames of the reduce come from the predecessor only', () => {
  const core = inRing()
  for (const type of RING)
    assert.deepEqual(
      [before, after, stranger].map((from) => fateOf(core, from, { type, generation: 7 })),
      ['reduce', 'message-unexpected', 'message-unexpected'],
    )
})

test('answers to a fetch are taken in the promised ballot, from any member', () => {
  const core = inRing()
  for (const type of ANSWERS) assert.equal(fateOf(core, stranger, { type, generation: 7 }), 'answer')
})

test('after a freeze nothing of the ring is taken any more, also what was sent before it', () => {
  const core = inRing()
  react(core, { type: 'order', order: { type: 'freeze', fence: 1, generation: 8, committed: 0 } })
  for (const type of RING)
    for (const generation of [7, 8]) assert.equal(fateOf(core, before, { type, generation }), 'ignore')
  for (const type of ANSWERS)
    assert.deepEqual(
      [7, 8].map((generation) => fateOf(core, before, { type, generation })),
      ['generation-stale', 'answer'],
    )
})

test('a member that gave its generation up takes no more frames of it', () => {
  const core = inRing()
  react(core, { type: 'trouble', generation: 7, blamed: before, why: 'silent', code: 'link-lost', message: 'gone' })
  for (const type of RING) assert.equal(fateOf(core, before, { type, generation: 7 }), 'ignore')
})
