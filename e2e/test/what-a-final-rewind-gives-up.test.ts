// What the world counts as lost work: committed versions that a member holds, and none that a final rewind gave up.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { digest, extend, genesis, jobId, type StepRecord, trainingBlock } from '@starling-grid/protocol'
import { Chronicle, CHRONICLED, type ChronicleCounts } from '../src/world/chronicle.ts'
import { History } from '../src/world/history.ts'
import { Violations } from '../src/world/violations.ts'

const record = (v: number, generation: number): StepRecord => ({
  v,
  generation,
  modeEpoch: 0,
  kind: 'ring',
  blocks: [trainingBlock(0, v)],
  samples: 1,
  targets: 1,
  lossSum: 1,
  correct: 0,
  gradDigest: digest(new TextEncoder().encode(`${generation} ${v}`)),
})

test('a version made by a step that a final rewind gave up saves no committed step, one made later does', () => {
  const first = genesis(jobId('world'), 'model', 1)
  const violations = new Violations(new Set())
  const history = new History(first, { blocks: 6, epochs: 1 }, violations)
  const counts = Object.fromEntries(CHRONICLED.map((name) => [name, 0])) as ChronicleCounts
  const config = { blocks: 6, shards: 1, epochs: 1, mode: 'ring', genesis: first } as const
  const chronicle = new Chronicle(config, {
    history,
    isDamped: () => false,
    violations,
    counts,
    replicaOf: () => undefined,
  })
  for (const generation of [1, 2]) chronicle.observe({ type: 'ballot', generation })
  chronicle.observe({ type: 'start', generation: 2, members: [], records: [record(1, 2)] })
  const givenUp = chronicle.head
  assert.ok(!chronicle.isGivenUp(givenUp))
  chronicle.observe({ type: 'rewind', to: first, final: true, generation: 2 })
  assert.ok(chronicle.isGivenUp(givenUp))
  const later = extend(first, record(1, 3))
  history.record(first, record(1, 3), later)
  assert.ok(!chronicle.isGivenUp(later))
  assert.ok(!chronicle.isGivenUp(first), 'the version that it went back to is held')
  assert.equal(violations.first, undefined)
})
