// What a chain of records means: numbers follow each other, and a version is its number together with all that led to
// it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  decodeToCoordinator,
  decodeToVolunteer,
  extend,
  fold,
  genesis,
  GridError,
  jobId,
  sameVersion,
  sha256Name,
  type StepRecord,
  trainingBlock,
} from '@starling-grid/protocol'

const ROOT = genesis(jobId('job'), 'f'.repeat(64), 7)

function record(v: number, change: Partial<StepRecord> = {}): StepRecord {
  return {
    v,
    generation: 1,
    modeEpoch: 0,
    kind: 'ring',
    blocks: [trainingBlock(0, v)],
    samples: 8,
    targets: 8,
    lossSum: 1.5,
    correct: 3,
    gradDigest: sha256Name('a'.repeat(64)),
    ...change,
  }
}

test('records whose numbers have a gap, repeat or begin elsewhere make no version', () => {
  for (const numbers of [[2], [0], [1, 3], [1, 1], [1, 2, 2]])
    assert.equal(
      fold(
        ROOT,
        numbers.map((v) => record(v)),
      ),
      undefined,
      numbers.join(),
    )
  assert.deepEqual(fold(ROOT, []), ROOT)
  assert.deepEqual(fold(ROOT, [record(1), record(2)]), extend(extend(ROOT, record(1)), record(2)))
  assert.throws(() => extend(ROOT, record(2)), /internal/)
})

test('a version is its number and its whole past: every field of every record is in its name', () => {
  const version = fold(ROOT, [record(1), record(2)]) ?? assert.fail()
  const changes: Partial<StepRecord>[] = [
    { generation: 2 },
    { modeEpoch: 1 },
    { kind: 'round' },
    { blocks: [] },
    { samples: 9 },
    { targets: 9 },
    { lossSum: 1.25 },
    { correct: 4 },
    { gradDigest: sha256Name('b'.repeat(64)) },
  ]
  for (const change of changes) {
    const other = fold(ROOT, [record(1, change), record(2)]) ?? assert.fail()
    assert.equal(sameVersion(version, other), false, JSON.stringify(change))
  }
  assert.ok(sameVersion(version, { ...version }))
  assert.equal(sameVersion(version, { ...version, v: 3 }), false)
})

test('what every object has is no type of message', () => {
  for (const type of ['toString', 'constructor', '__proto__', 'hasOwnProperty', 'valueOf'])
    for (const decode of [decodeToCoordinator, decodeToVolunteer])
      assert.throws(
        () => decode(JSON.stringify({ type })),
        (error) => error instanceof GridError && error.code === 'message-malformed' && /known type/.test(error.message),
        type,
      )
})
