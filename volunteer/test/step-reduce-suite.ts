// What every reduce of a step promises, whichever way its frames take: run by ring-reduce.test.ts and
// butterfly-reduce.test.ts.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { at, bits, Group, seeded, wave, type Way } from './step-reduce-group.ts'
import { testHostileFrames } from './step-reduce-hostile.ts'

/** `least`: members of the smallest group. */
export function testStepReduce(way: Way, least: number): void {
  testSums(way, least)
  testBuckets(way, least)
  testManners(way)
  testHostileFrames(way)
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
  test(`${way}: buckets that enter one by one give the bits of a gradient that enters whole`, () => {
    const shape = fc.record({
      size: fc.integer({ min: least, max: 6 }),
      length: fc.integer({ min: 1, max: 90 }),
      chunkBytes: fc.integer({ min: 1, max: 5 }).map((floats) => 4 * floats),
      bucketFloats: fc.integer({ min: 1, max: 40 }),
    })
    fc.assert(
      fc.property(shape, fc.nat(), (cut, seed) => {
        const random = seeded(seed)
        const whole = new Group(way, cut, wave)
        whole.runInOrder()
        const pieces = new Group(way, cut, wave)
        const buckets = Math.ceil(cut.length / cut.bucketFloats)
        // −1: the manifest, and with it what is left; some members hand all over only then
        const todo = pieces.members.flatMap((_, member) => [
          ...(random(3) > 0 ? Array.from({ length: buckets }, (_unused, bucket) => ({ member, bucket })) : []),
          { member, bucket: -1 },
        ])
        while (todo.length + pieces.inFlight.length > 0) {
          const choice = random(todo.length + pieces.inFlight.length)
          if (choice >= todo.length) {
            pieces.deliver(at(pieces.inFlight.splice(choice - todo.length, 1), 0))
            continue
          }
          const { member } = at(todo, choice)
          const next = at(
            todo.splice(
              todo.findIndex((piece) => piece.member === member),
              1,
            ),
            0,
          )
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
