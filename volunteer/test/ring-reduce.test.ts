// The ring all-reduce against a plain sum, under shuffled, repeated and hostile frames.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GridError, type ErrorCode, type Frame } from '@starling-grid/protocol'
import { RingReduce, type RingReduceOptions } from '@starling-grid/volunteer'
import { at, Group, manifestOf, testStepReduce, wave } from './step-reduce-suite.ts'

testStepReduce('ring', 1)

test('a lone member is done at once', () => {
  const ring = new Group('ring', { size: 1, length: 5, chunkBytes: 8, bucketFloats: 10 }, wave)
  assert.equal(at(ring.members, 0).done, false)
  ring.contribute(0)
  ring.check()
  assert.equal(ring.inFlight.length, 0)
})

test('the sum can be built in an array of the caller', () => {
  const into = new Float32Array(3)
  const alone = new RingReduce({ generation: 1, step: 1, position: { index: 0, size: 1 }, length: 3, into })
  alone.contribute(Float32Array.of(1, 2, 3), manifestOf(0))
  assert.equal(alone.sum, into)
  assert.deepEqual([...into], [1, 2, 3])
})

// Member 1 of 3, 30 floats in one bucket of 10-float segments, chunks of 5 floats: what it may get from member 0 is
// partial sums of segment 0 at hop 0 and segment 2 at hop 1, sums of segment 1 at hop 0 and segment 0 at hop 1.
const victimOptions: RingReduceOptions = {
  generation: 7, step: 3, position: { index: 1, size: 3 }, length: 30, chunkBytes: 20, buckets: [{ start: 0, end: 30 }],
}
const honest: Frame = { type: 'partial', generation: 7, step: 3, bucket: 0, hop: 0, offset: 0, payload: floats(5, 1) }
const manifest = (fields: object): Uint8Array => new TextEncoder().encode(JSON.stringify({ ...manifestOf(0), ...fields }))

/** The last word says when it is hostile, if not always: before or after the member contributed. */
const hostile: readonly [what: string, frame: Frame, code: ErrorCode, when?: 'before' | 'after'][] = [
  ['another generation', { ...honest, generation: 8 }, 'message-unexpected'],
  ['another step', { ...honest, step: 4 }, 'message-unexpected'],
  ['a type that is not part of a reduce', { ...honest, type: 'chunk' }, 'message-unexpected'],
  ['a bucket that does not exist', { ...honest, bucket: 1 }, 'message-malformed'],
  ['an offset between chunks', { ...honest, offset: 3 }, 'message-malformed'],
  ['an offset past the end', { ...honest, offset: 30 }, 'message-malformed'],
  ['the largest offset', { ...honest, offset: 0xffffffff }, 'message-malformed'],
  ['a chunk that overlaps the next', { ...honest, payload: floats(6, 1) }, 'message-malformed'],
  ['a chunk that is too short', { ...honest, payload: floats(4, 1) }, 'message-malformed'],
  ['a chunk of bytes that are no floats', { ...honest, payload: new Uint8Array(19) }, 'message-malformed'],
  ['a wrong hop', { ...honest, hop: 1 }, 'message-malformed'],
  ['the largest hop', { ...honest, hop: 0xffffffff }, 'message-malformed'],
  ['a partial sum of our own segment', { ...honest, offset: 10, hop: 2 }, 'message-malformed'],
  ['a sum of the segment that we complete', { ...honest, type: 'reduced', offset: 20, hop: 2 }, 'message-malformed'],
  ['a sum before our share is in it', { ...honest, type: 'reduced', hop: 1 }, 'message-unexpected', 'before'],
  ['NaN in a partial sum', { ...honest, payload: floats(5, Number.NaN) }, 'gradient-not-finite'],
  ['infinity in a partial sum', { ...honest, payload: floats(5, Number.NEGATIVE_INFINITY) }, 'gradient-not-finite'],
  ['NaN in a sum', { ...honest, type: 'reduced', offset: 10, payload: floats(5, Number.NaN) }, 'gradient-not-finite', 'after'],
  ['a partial sum that overflows', { ...honest, payload: floats(5, 3.4e38) }, 'gradient-not-finite', 'after'],
  ['a manifest of nobody', { ...honest, type: 'manifest', bucket: 3, payload: manifest({}) }, 'message-malformed'],
  ['a manifest in our own name', { ...honest, type: 'manifest', bucket: 1, hop: 2, payload: manifest({}) }, 'message-malformed'],
  ['a manifest at a wrong hop', { ...honest, type: 'manifest', bucket: 0, hop: 1, payload: manifest({}) }, 'message-malformed'],
  ['a manifest that is not JSON', { ...honest, type: 'manifest', payload: Uint8Array.of(123) }, 'message-malformed'],
  ['a manifest with a negative count', { ...honest, type: 'manifest', payload: manifest({ samples: -1 }) }, 'message-malformed'],
  ['a manifest with half a sample', { ...honest, type: 'manifest', payload: manifest({ samples: 0.5 }) }, 'message-malformed'],
  ['a manifest without a finite loss', { ...honest, type: 'manifest', payload: manifest({ lossSum: null }) }, 'message-malformed'],
  ['a manifest with more in it', { ...honest, type: 'manifest', payload: manifest({ admin: true }) }, 'message-malformed'],
  ['a manifest with a strange block', { ...honest, type: 'manifest', payload: manifest({ blocks: ['../x'] }) }, 'message-malformed'],
  ['a huge manifest', { ...honest, type: 'manifest', payload: new Uint8Array(40_000) }, 'message-too-large'],
]

function floats(count: number, value: number): Uint8Array {
  return new Uint8Array(new Float32Array(count).fill(value).buffer)
}

for (const [what, frame, code, when] of hostile)
  test(`refused without harm: ${what}`, () => {
    const ring = new Group('ring', { size: 3, length: 30, chunkBytes: 20, bucketFloats: 30 }, (member, i) => (i === 0 ? 2e38 : member + i) / 2)
    if (when !== 'after') assert.throws(() => ring.deliver({ from: 0, to: 1, frame }), isCode(code))
    ring.contribute(1)
    if (when !== 'before') assert.throws(() => ring.deliver({ from: 0, to: 1, frame }), isCode(code))
    ring.contribute(0)
    ring.contribute(2)
    ring.deliverAll()
    ring.check()
  })

test('a gradient with NaN does not leave its member', () => {
  const member = new RingReduce(victimOptions)
  assert.throws(() => member.contribute(new Float32Array(30).fill(Number.NaN), manifestOf(1)), isCode('gradient-not-finite'))
})

test('a manifest that peers would refuse does not leave its member', () => {
  const member = new RingReduce(victimOptions)
  assert.throws(() => member.contribute(new Float32Array(30), { ...manifestOf(1), lossSum: Number.NaN }), isCode('message-malformed'))
})

test('misuse is a bug, not a refusal', () => {
  const member = new RingReduce(victimOptions)
  assert.throws(() => member.sum, /internal/)
  assert.throws(() => member.contribute(new Float32Array(29), manifestOf(1)), /internal/)
  member.contribute(new Float32Array(30), manifestOf(1))
  assert.throws(() => member.contribute(new Float32Array(30), manifestOf(1)), /internal/)
  assert.throws(() => new RingReduce({ ...victimOptions, position: { index: 3, size: 3 } }), /internal/)
  assert.throws(() => new RingReduce({ ...victimOptions, chunkBytes: 10 }), /internal/)
  for (const buckets of [[], [{ start: 0, end: 29 }], [{ start: 0, end: 30 }, { start: 29, end: 30 }], [{ start: 0, end: 10 }, { start: 11, end: 30 }]])
    assert.throws(() => new RingReduce({ ...victimOptions, buckets }), /internal/)
  const inPieces = new RingReduce(victimOptions)
  inPieces.contributeBucket(0, new Float32Array(30))
  assert.throws(() => inPieces.contributeBucket(0, new Float32Array(30)), /internal/)
  assert.throws(() => inPieces.contributeBucket(1, new Float32Array(30)), /internal/)
})

function isCode(code: ErrorCode): (error: unknown) => boolean {
  return (error) => error instanceof GridError && error.code === code
}
