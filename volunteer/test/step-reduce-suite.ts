// What every reduce of a step promises, whichever way its frames take: run by ring-reduce.test.ts and butterfly-reduce.test.ts.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { type Frame, packFrame, trainingBlock, unpackFrame, type Manifest } from '@starling-grid/protocol'
import { type Addressed, ButterflyReduce, evenBuckets, RingReduce, type RingReduceOptions } from '@starling-grid/volunteer'

export type Way = 'ring' | 'butterfly'

export interface Shape {
  readonly size: number
  readonly length: number
  readonly chunkBytes: number
  readonly bucketFloats: number
}

export interface InFlight {
  readonly from: number
  readonly to: number
  readonly frame: Frame
}

/** Members of one step in memory, and the frames between them. */
export class Group {
  readonly way: Way
  readonly size: number
  readonly members: (RingReduce | ButterflyReduce)[]
  readonly gradients: Float32Array[]
  readonly bytesSent: number[]
  inFlight: InFlight[] = []

  constructor(way: Way, { size, length, chunkBytes, bucketFloats }: Shape, value: (member: number, i: number) => number) {
    this.way = way
    this.size = size
    const buckets = evenBuckets(length, bucketFloats).reverse() // as backward finishes them
    const optionsOf = (index: number): RingReduceOptions => ({ generation: 7, step: 3, position: { index, size }, length, chunkBytes, buckets })
    this.members = Array.from({ length: size }, (_, index) => (way === 'ring' ? new RingReduce(optionsOf(index)) : new ButterflyReduce(optionsOf(index))))
    this.gradients = Array.from({ length: size }, (_, m) => Float32Array.from({ length }, (_, i) => value(m, i)))
    this.bytesSent = new Array<number>(size).fill(0)
  }

  contribute(index: number): void {
    this.send(index, at(this.members, index).contribute(at(this.gradients, index), manifestOf(index)))
  }

  contributeBucket(index: number, bucket: number): void {
    this.send(index, at(this.members, index).contributeBucket(bucket, at(this.gradients, index)))
  }

  deliver({ from, to, frame }: InFlight): void {
    this.send(to, at(this.members, to).accept(frame, from))
  }

  send(from: number, frames: readonly (Frame | Addressed)[]): void {
    for (const each of frames) {
      const { to, frame } = 'to' in each ? each : { to: (from + 1) % this.size, frame: each }
      if (frame.type !== 'manifest') this.bytesSent[from] = at(this.bytesSent, from) + frame.payload.byteLength
      // Packing copies, as a link does: what is read later must not depend on what the sender does meanwhile.
      this.inFlight.push({ from, to, frame: unpackFrame(packFrame(frame)) })
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

export function manifestOf(index: number): Manifest {
  return { blocks: [trainingBlock(0, index)], samples: 10 + index, targets: 10 + index, lossSum: index / 3, correct: index }
}

export function at<T>(values: ArrayLike<T>, index: number): T {
  const value = values[index]
  if (value === undefined) throw new Error(`no element ${index}`)
  return value
}

export function bits(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length)
}

/** Park and Miller's generator: enough to shuffle, the same on every machine. */
export function seeded(seed: number): (below: number) => number {
  let state = (seed % 2147483646) + 1
  return (below) => {
    state = (state * 48271) % 2147483647
    return state % below
  }
}

export const wave = (member: number, i: number): number => Math.sin(1 + member * 31 + i * 0.7) * 10 ** ((i % 7) - 3)

/** `least`: members of the smallest group. */
export function testStepReduce(way: Way, least: number): void {
  testSums(way, least)
  testBuckets(way, least)
  testManners(way)
}

function testSums(way: Way, least: number): void {
  for (let size = least; size <= 8; size++)
    test(`a ${way} of ${size} sums to what one adder gets, bit-equal on all`, () => {
      for (const length of [0, 1, 2, size - 1, size, size + 1, 63, 64, 65, 1000]) {
        const ring = new Group(way, { size, length, chunkBytes: 32, bucketFloats: 100 }, wave)
        ring.runInOrder()
        ring.check()
      }
    })

  test(`${way}: 32 members and a vector of one frame per segment`, () => {
    const ring = new Group(way, { size: 32, length: 32 * 15, chunkBytes: 60, bucketFloats: 1000 }, wave)
    ring.runInOrder()
    ring.check()
  })

  test(`${way}: frames in any order and repeated frames change nothing`, () => {
    const shape = fc.record({
      size: fc.integer({ min: least, max: 8 }),
      length: fc.integer({ min: 0, max: 120 }),
      chunkBytes: fc.integer({ min: 1, max: 12 }).map((floats) => 4 * floats),
      bucketFloats: fc.integer({ min: 1, max: 130 }),
    })
    fc.assert(
      fc.property(shape, fc.nat(), (cut, seed) => {
        const random = seeded(seed)
        const inOrder = new Group(way, cut, wave)
        inOrder.runInOrder()
        const shuffled = new Group(way, cut, wave)
        shuffled.runShuffled(random, () => random(4) === 0)
        shuffled.check()
        assert.deepEqual(bits(at(shuffled.members, 0).sum), bits(at(inOrder.members, 0).sum))
      }),
      { numRuns: 300 },
    )
  })
}

function testBuckets(way: Way, least: number): void {
  test(`${way}: buckets that enter one by one, whenever each member has them, give the bits of a gradient that enters whole`, () => {
    const shape = fc.record({
      size: fc.integer({ min: least, max: 6 }), length: fc.integer({ min: 1, max: 90 }),
      chunkBytes: fc.integer({ min: 1, max: 5 }).map((floats) => 4 * floats), bucketFloats: fc.integer({ min: 1, max: 40 }),
    })
    fc.assert(
      fc.property(shape, fc.nat(), (cut, seed) => {
        const random = seeded(seed)
        const whole = new Group(way, cut, wave)
        whole.runInOrder()
        const pieces = new Group(way, cut, wave)
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

  test(`${way}: the first bucket is summed while the second is not computed anywhere`, () => {
    const ring = new Group(way, { size: 3, length: 60, chunkBytes: 20, bucketFloats: 30 }, wave)
    for (const member of [0, 1, 2]) ring.contributeBucket(member, 0)
    ring.deliverAll()
    const [first] = ring.members
    assert.ok(first !== undefined && !first.done)
    const manifests = 2
    assert.equal(first.progress.received, (first.progress.expected - manifests) / 2)
    assert.throws(() => first.sum, /internal/, 'no sum is visible before all of the step is here (R10)')
  })
}

/** What a member sends, leaves alone, and bears. */
function testManners(way: Way): void {
  test(`${way}: every member sends 2(N−1)/N of the vector, whatever N is`, () => {
    for (const size of [2, 3, 4, 8]) {
      const length = 960 * size
      const ring = new Group(way, { size, length, chunkBytes: 128, bucketFloats: 96 * size }, wave)
      ring.runInOrder()
      for (const bytes of ring.bytesSent) assert.equal(bytes, (2 * (size - 1) * 4 * length) / size)
    }
  })

  test(`${way}: the input is not modified`, () => {
    const ring = new Group(way, { size: 3, length: 50, chunkBytes: 16, bucketFloats: 20 }, wave)
    const before = ring.gradients.map((gradient) => gradient.slice())
    ring.runInOrder()
    assert.deepEqual(ring.gradients, before)
  })

  test(`${way}: a member that contributes last still gets all that came before`, () => {
    const ring = new Group(way, { size: 4, length: 40, chunkBytes: 12, bucketFloats: 30 }, wave)
    for (const early of [0, 1, 2]) ring.contribute(early)
    ring.deliverAll()
    assert.equal(at(ring.members, 3).done, false)
    ring.contribute(3)
    ring.deliverAll()
    ring.check()
  })

  test(`${way}: payloads that are not aligned to floats are added all the same`, () => {
    const ring = new Group(way, { size: 2, length: 6, chunkBytes: 12, bucketFloats: 6 }, wave)
    ring.contribute(0)
    ring.contribute(1)
    for (let next = ring.inFlight.shift(); next !== undefined; next = ring.inFlight.shift()) {
      const shifted = new Uint8Array(next.frame.payload.byteLength + 1)
      shifted.set(next.frame.payload, 1)
      ring.deliver({ ...next, frame: { ...next.frame, payload: shifted.subarray(1) } })
    }
    ring.check()
  })
}
