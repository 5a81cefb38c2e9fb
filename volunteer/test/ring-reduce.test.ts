// The ring all-reduce against a plain sum, under shuffled, repeated and hostile frames.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { GridError, packFrame, trainingBlock, unpackFrame, type ErrorCode, type Frame, type Manifest } from '@starling-grid/protocol'
import { evenBuckets, RingReduce, type RingReduceOptions } from '@starling-grid/volunteer'

interface Shape {
  readonly size: number
  readonly length: number
  readonly chunkBytes: number
  readonly bucketFloats: number
}

interface InFlight {
  readonly to: number
  readonly frame: Frame
}

class Ring {
  readonly size: number
  readonly members: RingReduce[]
  readonly gradients: Float32Array[]
  readonly bytesSent: number[]
  inFlight: InFlight[] = []

  constructor({ size, length, chunkBytes, bucketFloats }: Shape, value: (member: number, i: number) => number) {
    this.size = size
    const buckets = evenBuckets(length, bucketFloats).reverse() // as backward finishes them
    const member = (_: unknown, index: number) => new RingReduce({ generation: 7, step: 3, position: { index, size }, length, chunkBytes, buckets })
    this.members = Array.from({ length: size }, member)
    this.gradients = Array.from({ length: size }, (_, m) => Float32Array.from({ length }, (_, i) => value(m, i)))
    this.bytesSent = new Array<number>(size).fill(0)
  }

  contribute(index: number): void {
    this.send(index, at(this.members, index).contribute(at(this.gradients, index), manifestOf(index)))
  }

  contributeBucket(index: number, bucket: number): void {
    this.send(index, at(this.members, index).contributeBucket(bucket, at(this.gradients, index)))
  }

  deliver({ to, frame }: InFlight): void {
    this.send(to, at(this.members, to).accept(frame))
  }

  send(from: number, frames: readonly Frame[]): void {
    for (const frame of frames) {
      if (frame.type !== 'manifest') this.bytesSent[from] = at(this.bytesSent, from) + frame.payload.byteLength
      // Packing copies, as a link does: what is read later must not depend on what the sender does meanwhile.
      this.inFlight.push({ to: (from + 1) % this.size, frame: unpackFrame(packFrame(frame)) })
    }
  }

  runInOrder(): void {
    for (let i = 0; i < this.size; i++) this.contribute(i)
    this.deliverAll()
  }

  deliverAll(): void {
    for (let next = this.inFlight.shift(); next !== undefined; next = this.inFlight.shift()) this.deliver(next)
  }

  /** Contributes and delivers in the order that `pick` chooses; repeats what `repeat` says. */
  runShuffled(pick: (choices: number) => number, repeat: () => boolean): void {
    const waiting = this.members.map((_, i) => i)
    while (waiting.length + this.inFlight.length > 0) {
      const choice = pick(waiting.length + this.inFlight.length)
      if (choice < waiting.length) {
        this.contribute(at(waiting.splice(choice, 1), 0))
        continue
      }
      const chosen = at(this.inFlight, choice - waiting.length)
      if (!repeat()) this.inFlight.splice(choice - waiting.length, 1)
      this.deliver(chosen)
    }
  }

  /** Members hold equal bytes, near enough to the sum in double precision, and equal manifests. */
  check(): void {
    const [first] = this.members
    assert.ok(first?.done)
    const manifests = this.members.map((_, i) => manifestOf(i))
    for (const member of this.members) {
      assert.ok(member.done)
      assert.deepEqual(bits(member.sum), bits(first.sum))
      assert.deepEqual(member.manifests, manifests)
      assert.equal(member.progress.received, member.progress.expected)
    }
    first.sum.forEach((sum, i) => {
      const terms = this.gradients.map((gradient) => at(gradient, i))
      const magnitude = terms.reduce((total, term) => total + Math.abs(term), 0)
      const exact = terms.reduce((total, term) => total + term, 0)
      // N−1 roundings of f32, each of relative size 2⁻²⁴ of a partial sum
      assert.ok(Math.abs(sum - exact) <= this.size * magnitude * 2 ** -24, `float ${i}: ${sum}, expected ${exact}`)
    })
  }
}

function manifestOf(index: number): Manifest {
  return { blocks: [trainingBlock(0, index)], samples: 10 + index, targets: 10 + index, lossSum: index / 3, correct: index }
}

function at<T>(values: ArrayLike<T>, index: number): T {
  const value = values[index]
  if (value === undefined) throw new Error(`no element ${index}`)
  return value
}

function bits(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length)
}

/** Park and Miller's generator: enough to shuffle, the same on every machine. */
function seeded(seed: number): (below: number) => number {
  let state = (seed % 2147483646) + 1
  return (below) => {
    state = (state * 48271) % 2147483647
    return state % below
  }
}

const wave = (member: number, i: number): number => Math.sin(1 + member * 31 + i * 0.7) * 10 ** ((i % 7) - 3)

for (let size = 1; size <= 8; size++)
  test(`a ring of ${size} sums to what one adder gets, bit-equal on all`, () => {
    for (const length of [0, 1, 2, size - 1, size, size + 1, 63, 64, 65, 1000]) {
      const ring = new Ring({ size, length, chunkBytes: 32, bucketFloats: 100 }, wave)
      ring.runInOrder()
      ring.check()
    }
  })

test('32 members and a vector of one frame per segment', () => {
  const ring = new Ring({ size: 32, length: 32 * 15, chunkBytes: 60, bucketFloats: 1000 }, wave)
  ring.runInOrder()
  ring.check()
})

test('frames in any order and repeated frames change nothing', () => {
  const shape = fc.record({
    size: fc.integer({ min: 1, max: 8 }),
    length: fc.integer({ min: 0, max: 120 }),
    chunkBytes: fc.integer({ min: 1, max: 12 }).map((floats) => 4 * floats),
    bucketFloats: fc.integer({ min: 1, max: 130 }),
  })
  fc.assert(
    fc.property(shape, fc.nat(), (cut, seed) => {
      const random = seeded(seed)
      const inOrder = new Ring(cut, wave)
      inOrder.runInOrder()
      const shuffled = new Ring(cut, wave)
      shuffled.runShuffled(random, () => random(4) === 0)
      shuffled.check()
      assert.deepEqual(bits(at(shuffled.members, 0).sum), bits(at(inOrder.members, 0).sum))
    }),
    { numRuns: 300 },
  )
})

test('buckets that enter one by one, whenever each member has them, give the bits of a gradient that enters whole', () => {
  const shape = fc.record({
    size: fc.integer({ min: 1, max: 6 }), length: fc.integer({ min: 1, max: 90 }),
    chunkBytes: fc.integer({ min: 1, max: 5 }).map((floats) => 4 * floats), bucketFloats: fc.integer({ min: 1, max: 40 }),
  })
  fc.assert(
    fc.property(shape, fc.nat(), (cut, seed) => {
      const random = seeded(seed)
      const whole = new Ring(cut, wave)
      whole.runInOrder()
      const pieces = new Ring(cut, wave)
      const buckets = Math.ceil(cut.length / cut.bucketFloats)
      // −1: the manifest, and with it what is left; some members hand all over only then
      const todo = pieces.members.flatMap((_, member) => [...(random(3) > 0 ? Array.from({ length: buckets }, (_unused, bucket) => ({ member, bucket })) : []), { member, bucket: -1 }])
      while (todo.length + pieces.inFlight.length > 0) {
        const choice = random(todo.length + pieces.inFlight.length)
        if (choice >= todo.length) {
          pieces.deliver(at(pieces.inFlight.splice(choice - todo.length, 1), 0))
          continue
        }
        const { member } = at(todo, choice)
        const next = at(todo.splice(todo.findIndex((piece) => piece.member === member), 1), 0)
        if (next.bucket < 0) pieces.contribute(member)
        else pieces.contributeBucket(member, next.bucket)
      }
      pieces.check()
      assert.deepEqual(bits(at(pieces.members, 0).sum), bits(at(whole.members, 0).sum))
    }),
    { numRuns: 300 },
  )
})

test('the first bucket is summed while the second is not computed anywhere', () => {
  const ring = new Ring({ size: 3, length: 60, chunkBytes: 20, bucketFloats: 30 }, wave)
  for (const member of [0, 1, 2]) ring.contributeBucket(member, 0)
  ring.deliverAll()
  const [first] = ring.members
  assert.ok(first !== undefined && !first.done)
  const manifests = 2
  assert.equal(first.progress.received, (first.progress.expected - manifests) / 2)
  assert.throws(() => first.sum, /internal/, 'no sum is visible before all of the step is here (R10)')
})

test('every member sends 2(N−1)/N of the vector, whatever N is', () => {
  for (const size of [2, 3, 4, 8]) {
    const length = 960 * size
    const ring = new Ring({ size, length, chunkBytes: 128, bucketFloats: 96 * size }, wave)
    ring.runInOrder()
    for (const bytes of ring.bytesSent) assert.equal(bytes, (2 * (size - 1) * 4 * length) / size)
  }
})

test('a lone member is done at once', () => {
  const ring = new Ring({ size: 1, length: 5, chunkBytes: 8, bucketFloats: 10 }, wave)
  assert.equal(at(ring.members, 0).done, false)
  ring.contribute(0)
  ring.check()
  assert.equal(ring.inFlight.length, 0)
})

test('the input is not modified', () => {
  const ring = new Ring({ size: 3, length: 50, chunkBytes: 16, bucketFloats: 20 }, wave)
  const before = ring.gradients.map((gradient) => gradient.slice())
  ring.runInOrder()
  assert.deepEqual(ring.gradients, before)
})

test('a member that contributes last still gets all that came before', () => {
  const ring = new Ring({ size: 4, length: 40, chunkBytes: 12, bucketFloats: 30 }, wave)
  for (const early of [0, 1, 2]) ring.contribute(early)
  ring.deliverAll()
  assert.equal(at(ring.members, 3).done, false)
  ring.contribute(3)
  ring.deliverAll()
  ring.check()
})

test('payloads that are not aligned to floats are added all the same', () => {
  const ring = new Ring({ size: 2, length: 6, chunkBytes: 12, bucketFloats: 6 }, wave)
  ring.contribute(0)
  ring.contribute(1)
  for (let next = ring.inFlight.shift(); next !== undefined; next = ring.inFlight.shift()) {
    const shifted = new Uint8Array(next.frame.payload.byteLength + 1)
    shifted.set(next.frame.payload, 1)
    ring.deliver({ to: next.to, frame: { ...next.frame, payload: shifted.subarray(1) } })
  }
  ring.check()
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
    const ring = new Ring({ size: 3, length: 30, chunkBytes: 20, bucketFloats: 30 }, (member, i) => (i === 0 ? 2e38 : member + i) / 2)
    if (when !== 'after') assert.throws(() => ring.deliver({ to: 1, frame }), isCode(code))
    ring.contribute(1)
    if (when !== 'before') assert.throws(() => ring.deliver({ to: 1, frame }), isCode(code))
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
