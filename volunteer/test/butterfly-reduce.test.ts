// The butterfly against a plain sum, under shuffled, repeated and hostile frames; and slices that no honest member sends.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GridError, type ErrorCode, type Frame } from '@starling-grid/protocol'
import { ButterflyReduce, FAR_OUTSIDE, RankFailure, type ButterflyOptions } from '@starling-grid/volunteer'
import { at, Group, manifestOf, testStepReduce } from './step-reduce-suite.ts'

testStepReduce('butterfly', 2)

// Member 1 of 3, 30 floats in one bucket, parts of 10, chunks of 5: it owns floats 10 to 19, and gets sums of all others.
const victimOptions: ButterflyOptions = {
  generation: 7, step: 3, position: { index: 1, size: 3 }, length: 30, chunkBytes: 20, buckets: [{ start: 0, end: 30 }],
}
const honest: Frame = { type: 'partial', generation: 7, step: 3, bucket: 0, hop: 0, offset: 10, payload: floats(5, 1) }
const manifest = (fields: object): Uint8Array => new TextEncoder().encode(JSON.stringify({ ...manifestOf(0), ...fields }))

/** All come from member 0. The last word says when it is hostile, if not always: before or after the victim contributed. */
const hostile: readonly [what: string, frame: Frame, code: ErrorCode, when?: 'before' | 'after'][] = [
  ['another generation', { ...honest, generation: 8 }, 'message-unexpected'],
  ['another step', { ...honest, step: 4 }, 'message-unexpected'],
  ['a type that is not part of a reduce', { ...honest, type: 'chunk' }, 'message-unexpected'],
  ['a bucket that does not exist', { ...honest, bucket: 1 }, 'message-malformed'],
  ['an offset between chunks', { ...honest, offset: 13 }, 'message-malformed'],
  ['the largest offset', { ...honest, offset: 0xffffffff }, 'message-malformed'],
  ['a chunk that is too long', { ...honest, payload: floats(6, 1) }, 'message-malformed'],
  ['a chunk that is too short', { ...honest, payload: floats(4, 1) }, 'message-malformed'],
  ['a chunk of bytes that are no floats', { ...honest, payload: new Uint8Array(19) }, 'message-malformed'],
  ['a second hop', { ...honest, hop: 1 }, 'message-malformed'],
  ['a slice of a part that another owns', { ...honest, offset: 20 }, 'message-malformed'],
  ['a slice of its own part', { ...honest, offset: 0 }, 'message-malformed'],
  ['a sum of a part that we own', { ...honest, type: 'reduced' }, 'message-malformed'],
  ['a sum of a part that a third one owns', { ...honest, type: 'reduced', offset: 20 }, 'message-malformed'],
  ['a sum before our share is in it', { ...honest, type: 'reduced', offset: 0 }, 'message-unexpected', 'before'],
  ['NaN in a slice', { ...honest, payload: floats(5, Number.NaN) }, 'gradient-not-finite'],
  ['infinity in a slice', { ...honest, payload: floats(5, Number.NEGATIVE_INFINITY) }, 'gradient-not-finite'],
  ['NaN in a sum', { ...honest, type: 'reduced', offset: 0, payload: floats(5, Number.NaN) }, 'gradient-not-finite', 'after'],
  ['a manifest of a third one', { ...honest, type: 'manifest', bucket: 2, offset: 0, payload: manifest({}) }, 'message-malformed'],
  ['a manifest in our own name', { ...honest, type: 'manifest', bucket: 1, offset: 0, payload: manifest({}) }, 'message-malformed'],
  ['a manifest that is not JSON', { ...honest, type: 'manifest', offset: 0, payload: Uint8Array.of(123) }, 'message-malformed'],
  ['a manifest with a negative count', { ...honest, type: 'manifest', offset: 0, payload: manifest({ samples: -1 }) }, 'message-malformed'],
  ['a huge manifest', { ...honest, type: 'manifest', offset: 0, payload: new Uint8Array(40_000) }, 'message-too-large'],
]

function floats(count: number, value: number): Uint8Array {
  return new Uint8Array(new Float32Array(count).fill(value).buffer)
}

for (const [what, frame, code, when] of hostile)
  test(`refused without harm: ${what}`, () => {
    const group = new Group('butterfly', { size: 3, length: 30, chunkBytes: 20, bucketFloats: 30 }, (member, i) => member + i)
    const take = (): void => group.deliver({ from: 0, to: 1, frame })
    if (when !== 'after') assert.throws(take, isCode(code))
    group.contribute(1)
    if (when !== 'before') assert.throws(take, isCode(code))
    group.contribute(0)
    group.contribute(2)
    group.deliverAll()
    group.check()
  })

test('nobody sends in our name, and nobody who is not there', () => {
  for (const from of [1, 3, -1, Number.NaN]) assert.throws(() => new ButterflyReduce(victimOptions).accept(honest, from), isCode('message-malformed'))
})

/** Members of whom the last sends `times` what the others do, in one float of each part. */
function withLiar(size: number, times: number, options: Pick<ButterflyOptions, 'weights' | 'harmless'> = {}): { readonly run: () => void; readonly members: readonly ButterflyReduce[] } {
  const length = 10 * size
  const members = Array.from({ length: size }, (_, index) => new ButterflyReduce({ generation: 1, step: 1, position: { index, size }, length, ...options }))
  const run = (): void => {
    const waiting = members.flatMap((member, from) => {
      const gradient = Float32Array.from({ length }, (_, i) => 1 + ((i + from) % 3))
      if (from === size - 1) for (let i = 0; i < length; i += 10) gradient[i] = times
      return member.contribute(gradient, manifestOf(from)).map((sent) => ({ ...sent, from }))
    })
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const { to, from, frame } = next
      waiting.push(...at(members, to).accept(frame, from).map((sent) => ({ ...sent, from: to })))
    }
  }
  return { run, members }
}

test('a slice that is far longer than those of all others ends the step and names who sent it, before any sum of it leaves', () => {
  for (const size of [3, 4, 8]) {
    const { run, members } = withLiar(size, 1e6)
    assert.throws(run, (error) => error instanceof RankFailure && error.code === 'gradient-outlier' && error.rank === size - 1)
    assert.ok(members.every(({ done }) => !done))
  }
})

test('a slice that is longer, as of a batch that is harder, is a slice like others', () => {
  const { run, members } = withLiar(4, FAR_OUTSIDE / 10)
  run()
  assert.ok(members.every(({ done }) => done))
})

test('a member with many more samples may send that much more', () => {
  const many = 2 * FAR_OUTSIDE
  assert.throws(withLiar(4, 10 * many).run, RankFailure)
  const { run, members } = withLiar(4, 10 * many, { weights: [1, 1, 1, many] })
  run()
  assert.ok(members.every(({ done }) => done))
})

test('a slice that does no harm is not refused, however long beside others', () => {
  const { run, members } = withLiar(4, 1e6, { harmless: () => 2e6 })
  run()
  assert.ok(members.every(({ done }) => done))
})

test('of two members neither can tell who is right, so only what is no number is refused', () => {
  const { run, members } = withLiar(2, 1e6)
  run()
  assert.ok(members.every(({ done }) => done))
})

test('finite slices whose sum is not: the member is named that sent the longest', () => {
  const [one, other] = [0, 1].map((index) => new ButterflyReduce({ generation: 1, step: 1, position: { index, size: 2 }, length: 4 }))
  const huge = new Float32Array(4).fill(3e38)
  const sent = other?.contribute(huge, manifestOf(1)) ?? []
  one?.contribute(huge, manifestOf(0))
  assert.throws(() => sent.forEach(({ frame }) => one?.accept(frame, 1)), (error) => error instanceof RankFailure && error.code === 'gradient-not-finite' && error.rank === 1)
})

test('misuse is a bug, not a refusal', () => {
  const member = new ButterflyReduce(victimOptions)
  assert.throws(() => member.sum, /internal/)
  assert.throws(() => member.contribute(new Float32Array(29), manifestOf(1)), /internal/)
  assert.throws(() => new ButterflyReduce({ ...victimOptions, position: { index: 0, size: 1 } }), /internal/)
  assert.throws(() => new ButterflyReduce({ ...victimOptions, position: { index: 3, size: 3 } }), /internal/)
  member.contribute(new Float32Array(30), manifestOf(1))
  assert.throws(() => member.contribute(new Float32Array(30), manifestOf(1)), /internal/)
})

test('a gradient with NaN does not leave its member', () => {
  assert.throws(() => new ButterflyReduce(victimOptions).contribute(new Float32Array(30).fill(Number.NaN), manifestOf(1)), isCode('gradient-not-finite'))
})

function isCode(code: ErrorCode): (error: unknown) => boolean {
  return (error) => error instanceof GridError && error.code === code
}
