// Frames of a member who lies, and assignments that must not leave: one table for every way that a step's sum can be
// built. Run by step-reduce-suite.ts.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ErrorCode, type Frame, type FrameType, GridError } from '@starling-grid/protocol'
import { DirectReduce } from '../src/reduce/direct-reduce.ts'
import type { Reduce, StepReduceOptions } from '../src/reduce/reduce.ts'
import { RingReduce } from '../src/reduce/ring-reduce.ts'
import { Group, manifestOf, type Way } from './step-reduce-group.ts'

// The victim is member 1 of 3, with 30 floats in one bucket of 10-float segments and chunks of 5 floats. All frames
// come from member 0. In a ring it may send partial sums of segment 0 at hop 0 and of segment 2 at hop 1. It may also
// send sums of segment 1 at hop 0 and of segment 0 at hop 1. In a direct exchange it may send its slices of segment 1,
// which the victim owns, and sums of segment 0, its own.
const victimOptions: StepReduceOptions = {
  generation: 7,
  step: 3,
  world: { rank: 1, size: 3 },
  length: 30,
  chunkBytes: 20,
  buckets: [{ start: 0, end: 30 }],
}
/** Of the first chunk that the liar may send of each kind. */
const OFFSETS: Readonly<Record<Way, { readonly partial: number; readonly reduced: number }>> = {
  ring: { partial: 0, reduced: 10 },
  direct: { partial: 10, reduced: 0 },
}

interface Lie {
  readonly what: string
  /** what differs from an honest frame of that type */
  readonly type?: FrameType
  readonly change: Partial<Frame>
  readonly code: ErrorCode
  /** when it is one: before or after the victim contributed; absent: always */
  readonly when?: 'before' | 'after'
  /** absent: both ways */
  readonly way?: Way
}

const HOSTILE: readonly Lie[] = [
  { what: 'another generation', change: { generation: 8 }, code: 'message-unexpected' },
  { what: 'another step', change: { step: 4 }, code: 'message-unexpected' },
  { what: 'a type that is not part of a reduce', change: { type: 'chunk' }, code: 'message-unexpected' },
  { what: 'a bucket that does not exist', change: { bucket: 1 }, code: 'message-malformed' },
  { what: 'an offset between chunks', change: { offset: 13 }, code: 'message-malformed' },
  { what: 'an offset past the end', change: { offset: 30 }, code: 'message-malformed' },
  { what: 'the largest offset', change: { offset: 0xffffffff }, code: 'message-malformed' },
  { what: 'a chunk that overlaps the next', change: { payload: floats(6, 1) }, code: 'message-malformed' },
  { what: 'a chunk that is too short', change: { payload: floats(4, 1) }, code: 'message-malformed' },
  { what: 'a chunk of bytes that are no floats', change: { payload: new Uint8Array(19) }, code: 'message-malformed' },
  { what: 'a wrong hop', change: { hop: 1 }, code: 'message-malformed' },
  { what: 'the largest hop', change: { hop: 0xffffffff }, code: 'message-malformed' },
  { what: 'a sum before our share is in it', type: 'reduced', change: {}, code: 'message-unexpected', when: 'before' },
  { what: 'NaN in what is to be added', change: { payload: floats(5, Number.NaN) }, code: 'gradient-not-finite' },
  {
    what: 'infinity in what is to be added',
    change: { payload: floats(5, Number.NEGATIVE_INFINITY) },
    code: 'gradient-not-finite',
  },
  {
    what: 'NaN in a sum',
    type: 'reduced',
    change: { payload: floats(5, Number.NaN) },
    code: 'gradient-not-finite',
    when: 'after',
  },

  { what: 'a partial sum of our own segment', change: { offset: 10, hop: 2 }, code: 'message-malformed', way: 'ring' },
  {
    what: 'a sum of the segment that we complete',
    type: 'reduced',
    change: { offset: 20, hop: 2 },
    code: 'message-malformed',
    way: 'ring',
  },
  {
    what: 'a sum of a later hop before our share is in it',
    type: 'reduced',
    change: { offset: 0, hop: 1 },
    code: 'message-unexpected',
    when: 'before',
    way: 'ring',
  },
  {
    what: 'a partial sum that overflows',
    change: { payload: floats(5, 3.4e38) },
    code: 'gradient-not-finite',
    when: 'after',
    way: 'ring',
  },
  { what: 'a slice of a part that another owns', change: { offset: 20 }, code: 'message-malformed', way: 'direct' },
  { what: 'a slice of its own part', change: { offset: 0 }, code: 'message-malformed', way: 'direct' },
  {
    what: 'a sum of a part that we own',
    type: 'reduced',
    change: { offset: 10 },
    code: 'message-malformed',
    way: 'direct',
  },
  {
    what: 'a sum of a part that a third one owns',
    type: 'reduced',
    change: { offset: 20 },
    code: 'message-malformed',
    way: 'direct',
  },

  { what: 'a manifest of nobody', type: 'manifest', change: { bucket: 3 }, code: 'message-malformed' },
  {
    what: 'a manifest of a third one at the first hop',
    type: 'manifest',
    change: { bucket: 2 },
    code: 'message-malformed',
  },
  { what: 'a manifest in our own name', type: 'manifest', change: { bucket: 1 }, code: 'message-malformed' },
  {
    what: 'a manifest in our own name at a hop that does not exist',
    type: 'manifest',
    change: { bucket: 1, hop: 2 },
    code: 'message-malformed',
  },
  { what: 'a manifest at a wrong hop', type: 'manifest', change: { hop: 1 }, code: 'message-malformed' },
  { what: 'a manifest with an offset', type: 'manifest', change: { offset: 5 }, code: 'message-malformed' },
  {
    what: 'a manifest that is not JSON',
    type: 'manifest',
    change: { payload: Uint8Array.of(123) },
    code: 'message-malformed',
  },
  {
    what: 'a manifest with a negative count',
    type: 'manifest',
    change: { payload: manifest({ samples: -1 }) },
    code: 'message-malformed',
  },
  {
    what: 'a manifest with half a sample',
    type: 'manifest',
    change: { payload: manifest({ samples: 0.5 }) },
    code: 'message-malformed',
  },
  {
    what: 'a manifest without a finite loss',
    type: 'manifest',
    change: { payload: manifest({ lossSum: null }) },
    code: 'message-malformed',
  },
  {
    what: 'a manifest with more in it',
    type: 'manifest',
    change: { payload: manifest({ admin: true }) },
    code: 'message-malformed',
  },
  {
    what: 'a manifest with a strange block',
    type: 'manifest',
    change: { payload: manifest({ blocks: ['../x'] }) },
    code: 'message-malformed',
  },
  { what: 'a huge manifest', type: 'manifest', change: { payload: new Uint8Array(40_000) }, code: 'message-too-large' },
]

export function testHostileFrames(way: Way): void {
  for (const lie of HOSTILE.filter((one) => (one.way ?? way) === way))
    test(`threat 33: ${way}: refused without harm: ${lie.what}`, () => {
      // Halves of floats near the largest: the honest sum of three still is one.
      const group = new Group(
        way,
        { size: 3, length: 30, chunkBytes: 20, bucketFloats: 30 },
        (member, i) => (i % 10 === 0 ? 2e38 : member + i) / 2,
      )
      const take = (): void => group.deliver({ from: 0, to: 1, frame: { ...honest(way, lie.type), ...lie.change } })
      if (lie.when !== 'after') assert.throws(take, isCode(lie.code))
      group.contribute(1)
      if (lie.when !== 'before') assert.throws(take, isCode(lie.code))
      group.contribute(0)
      group.contribute(2)
      group.deliverAll()
      group.check()
    })

  test(`${way}: frames that are as they should be are taken`, () => {
    for (const type of ['partial', 'reduced', 'manifest'] as const) {
      const member = victim(way)
      member.contribute(new Float32Array(30), manifestOf(1))
      member.accept(honest(way, type), 0)
      assert.equal(member.progress.received, 1, `an honest ${type} frame counts`)
    }
  })

  test(`threat 34: ${way}: a gradient with NaN does not leave its member`, () => {
    assert.throws(
      () => victim(way).contribute(new Float32Array(30).fill(Number.NaN), manifestOf(1)),
      isCode('gradient-not-finite'),
    )
  })

  test(`${way}: a manifest that peers would refuse does not leave its member`, () => {
    assert.throws(
      () => victim(way).contribute(new Float32Array(30), { ...manifestOf(1), lossSum: Number.NaN }),
      isCode('message-malformed'),
    )
  })

  test(`${way}: misuse is a bug, not a refusal`, () => {
    const member = victim(way)
    assert.throws(() => member.sum, /internal/)
    assert.throws(() => member.manifests, /internal/)
    assert.throws(() => member.contribute(new Float32Array(29), manifestOf(1)), /internal/)
    member.contribute(new Float32Array(30), manifestOf(1))
    assert.throws(() => member.contribute(new Float32Array(30), manifestOf(1)), /internal/)
    assert.throws(() => victim(way, { world: { rank: 3, size: 3 } }), /internal/)
    assert.throws(() => victim(way, { chunkBytes: 10 }), /internal/)
    assert.throws(() => victim(way, { into: new Float32Array(29) }), /internal/)
    for (const buckets of [
      [],
      [{ start: 0, end: 29 }],
      [
        { start: 0, end: 30 },
        { start: 29, end: 30 },
      ],
      [
        { start: 0, end: 10 },
        { start: 11, end: 30 },
      ],
    ])
      assert.throws(() => victim(way, { buckets }), /internal/)
    const inPieces = victim(way)
    inPieces.contributeBucket(0, new Float32Array(30))
    assert.throws(() => inPieces.contributeBucket(0, new Float32Array(30)), /internal/)
    assert.throws(() => inPieces.contributeBucket(1, new Float32Array(30)), /internal/)
  })
}

export function victim(way: Way, change: Partial<StepReduceOptions> = {}): Reduce {
  const options = { ...victimOptions, ...change }
  return way === 'ring' ? new RingReduce(options) : new DirectReduce(options)
}

/** What member 0 may send to the victim first. */
export function honest(way: Way, type: FrameType = 'partial'): Frame {
  const head = { type, generation: 7, step: 3, bucket: 0, hop: 0 }
  if (type === 'manifest') return { ...head, offset: 0, payload: manifest({}) }
  return { ...head, offset: type === 'reduced' ? OFFSETS[way].reduced : OFFSETS[way].partial, payload: floats(5, 1) }
}

export function isCode(code: ErrorCode): (error: unknown) => boolean {
  return (error) => error instanceof GridError && error.code === code
}

function manifest(fields: object): Uint8Array {
  return new TextEncoder().encode(JSON.stringify({ ...manifestOf(0), ...fields }))
}

function floats(count: number, value: number): Uint8Array {
  return new Uint8Array(new Float32Array(count).fill(value).buffer)
}
