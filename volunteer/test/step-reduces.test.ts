// The reduces of a generation between two members, wired in memory: buckets that leave early, and ballots that come in
// between.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ErrorCode, type Frame, isGridError, type Manifest, packFrame, unpackFrame } from '@starling-grid/protocol'
import type { Addressed } from '../src/reduce/reduce.ts'
import { StepReduces } from '../src/reduce/step-reduces.ts'

const LENGTH = 8
const BUCKETS = [
  { start: 5, end: LENGTH },
  { start: 0, end: 5 },
]
const MANIFEST: Manifest = { blocks: [], samples: 1, targets: 1, lossSum: 0, correct: 0 }

/** Two members of one generation, and the frames between them. */
class Pair {
  readonly waiting: { readonly to: number; readonly frame: Frame }[] = []
  readonly members: readonly StepReduces[]

  constructor(generation: number) {
    this.members = [0, 1].map(
      (rank) => new StepReduces({ generation, rank, size: 2, length: LENGTH, buckets: BUCKETS }, 5),
    )
  }

  bucket(rank: number, bucket: number, gradient: Float32Array): void {
    this.#send(this.members[rank]?.at(5).contributeBucket(bucket, gradient))
  }

  contribute(rank: number, gradient: Float32Array): void {
    this.#send(this.members[rank]?.contribute(5, gradient, MANIFEST))
  }

  deliver(): void {
    for (let next = this.waiting.shift(); next !== undefined; next = this.waiting.shift())
      this.#send(this.members[next.to]?.accept(next.frame))
  }

  async sums(): Promise<Float32Array[]> {
    const whole = Promise.all(this.members.map((member) => member.reduced()))
    this.deliver()
    return (await whole).map(({ sum }) => sum)
  }

  #send(frames: readonly Addressed[] = []): void {
    for (const { to, frame } of frames) this.waiting.push({ to, frame: unpackFrame(packFrame(frame)) })
  }
}

const filled = (value: number): Float32Array => new Float32Array(LENGTH).fill(value)

test('a bucket is sent before the gradient is complete; no sum is visible before the step is whole', async () => {
  const pair = new Pair(1)
  const gradient = new Float32Array(LENGTH).fill(1, 5) // its first five floats are not computed yet
  pair.bucket(0, 0, gradient)
  pair.bucket(1, 0, filled(2))
  assert.ok(pair.waiting.length > 0)
  pair.deliver()
  assert.deepEqual(
    pair.members.map(({ finished }) => finished),
    [undefined, undefined],
  )
  pair.contribute(0, gradient.fill(1, 0, 5))
  pair.contribute(1, filled(2))
  assert.deepEqual(await pair.sums(), [filled(3), filled(3)])
})

test('a ballot in the middle of backward discards what was sent: the repeated step holds none of it (R3)', async () => {
  const [before, after] = [new Pair(1), new Pair(2)]
  before.bucket(0, 0, filled(100))
  before.bucket(1, 0, filled(100))
  before.bucket(0, 1, filled(100)) // backward goes on for a while
  for (const { to, frame } of before.waiting)
    assert.throws(() => after.members[to]?.accept(frame), isCode('generation-stale'))
  after.contribute(0, filled(1))
  after.contribute(1, filled(2))
  assert.deepEqual(await after.sums(), [filled(3), filled(3)])
})

function isCode(code: ErrorCode): (error: unknown) => boolean {
  return (error) => isGridError(error) && error.code === code
}
