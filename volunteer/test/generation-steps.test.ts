// The steps of a generation between two members, wired in memory: buckets that leave early, and ballots that come in
// between.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ErrorCode, type Frame, isGridError, type Manifest, packFrame, unpackFrame } from '@starling-grid/protocol'
import { GenerationSteps } from '../src/generation/generation-steps.ts'

const LENGTH = 8
const BUCKETS = [
  { start: 5, end: LENGTH },
  { start: 0, end: 5 },
]
const MANIFEST: Manifest = { blocks: [], samples: 1, targets: 1, lossSum: 0, correct: 0 }

class Pair {
  readonly waiting: { readonly to: number; readonly frame: Frame }[] = []
  readonly sums: (Float32Array | undefined)[] = [undefined, undefined]
  readonly members = [0, 1].map(
    (i) =>
      new GenerationSteps({
        forward: (frame) => void this.waiting.push({ to: 1 - i, frame: unpackFrame(packFrame(frame)) }),
        onSum: (sum) => {
          this.sums[i] = sum
        },
      }),
  )

  open(generation: number): void {
    for (const [rank, member] of this.members.entries())
      member.open({ generation, rank, size: 2, length: LENGTH, buckets: BUCKETS }, 5)
  }

  deliver(): void {
    for (let next = this.waiting.shift(); next !== undefined; next = this.waiting.shift())
      this.members[next.to]?.accept(next.frame)
  }
}

const filled = (value: number): Float32Array => new Float32Array(LENGTH).fill(value)

test('a bucket is sent before the gradient is complete; no sum is visible before the step is whole', async () => {
  const pair = new Pair()
  const [a, b] = pair.members
  assert.ok(a && b)
  pair.open(1)
  const gradient = new Float32Array(LENGTH).fill(1, 5) // its first five floats are not computed yet
  a.contributeBucket(5, 0, gradient)
  b.contributeBucket(5, 0, filled(2))
  assert.ok(pair.waiting.length > 0)
  pair.deliver()
  assert.deepEqual(pair.sums, [undefined, undefined])
  const reduced = Promise.all([a.reduced(1, 5), b.reduced(1, 5)])
  a.contribute(5, gradient.fill(1, 0, 5), MANIFEST)
  b.contribute(5, filled(2), MANIFEST)
  pair.deliver()
  await reduced
  assert.deepEqual(pair.sums, [filled(3), filled(3)])
})

test('a ballot in the middle of backward discards what was sent: the repeated step holds none of it (R3)', async () => {
  const pair = new Pair()
  const [a, b] = pair.members
  assert.ok(a && b)
  pair.open(1)
  a.contributeBucket(5, 0, filled(100))
  b.contributeBucket(5, 0, filled(100))
  const late = pair.waiting.splice(1)
  pair.deliver()
  for (const member of pair.members) member.halt()
  a.contributeBucket(5, 1, filled(100)) // backward goes on for a while
  a.contribute(5, filled(100), MANIFEST)
  assert.equal(pair.waiting.length, 0, 'nothing leaves after the ballot')
  pair.open(2)
  for (const { to, frame } of late) assert.throws(() => pair.members[to]?.accept(frame), isCode('generation-stale'))
  const reduced = Promise.all([a.reduced(2, 5), b.reduced(2, 5)])
  a.contribute(5, filled(1), MANIFEST)
  b.contribute(5, filled(2), MANIFEST)
  pair.deliver()
  await reduced
  assert.deepEqual(pair.sums, [filled(3), filled(3)])
})

function isCode(code: ErrorCode): (error: unknown) => boolean {
  return (error) => isGridError(error) && error.code === code
}
