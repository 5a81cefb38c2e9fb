// The bound for slices of a gradient: lies are beyond it, and honest members of a real training never come near it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mlp } from '@starling-grid/model'
import { random32, versionId, systemClock } from '@starling-grid/protocol'
import { Compute, createReferenceExecutor, LocalVersion } from '@starling-grid/volunteer'
import type { Batch } from '../src/graph/executor.ts'
import { FAR_OUTSIDE, farOutside, normOf, usualFor } from '../src/reduce/slice-norms.ts'

const judged = (norms: readonly number[], weights: readonly number[], harmless = 0) =>
  farOutside({ norms, weights, self: 0, harmless: () => harmless })

test('no member is an outlier among members that send alike, a few times more, or nothing', () => {
  assert.equal(judged([1, 1, 1, 1], [1, 1, 1, 1]), undefined)
  assert.equal(judged([1, 1, 1, FAR_OUTSIDE / 2], [1, 1, 1, 1]), undefined)
  assert.equal(judged([0, 0, 0, 5], [1, 1, 1, 1]), undefined, 'the rows of a table that one alone touched')
  assert.equal(judged([0, 0, 3, 5], [1, 1, 1, 1]), undefined)
})

test('a slice must be a thousand times the usual: honest ones reach hundreds when nearly everything is learned', () => {
  assert.equal(judged([1, 1, 1, 990], [1, 1, 1, 1]), undefined)
  assert.equal(judged([1, 1, 1, 1010], [1, 1, 1, 1])?.rank, 3)
})

test('one is, and it does not help it that a second one is as well', () => {
  assert.deepEqual(judged([1, 1, 2, 1e9], [1, 1, 1, 1]), { rank: 3, times: 1e9 })
  assert.equal(judged([1, 1, 1, 1e8, 1e9, 1], [1, 1, 1, 1, 1, 1])?.rank, 4)
})

test('a slice that does no harm names no liar, and one beyond the bound does', () => {
  assert.equal(judged([1, 1, 2, 1e9], [1, 1, 1, 1], 1e9), undefined)
  assert.equal(judged([1, 1, 2, 1e9, 1e8], [1, 1, 1, 1, 1], 5e8)?.rank, 3)
})

test('who judges is not judged: others do that', () => {
  assert.equal(judged([1e9, 1, 1, 1], [1, 1, 1, 1]), undefined)
})

test('what a member may send grows with its part of the samples, by no less than noise would', () => {
  assert.equal(usualFor(2, [1, 1, 1], [1, 1, 100]), 100)
  assert.equal(usualFor(2, [1, 1, 1], [100, 100, 1]), 0.1)
  assert.equal(usualFor(2, [1, 1, 1], [0, 0, 0]), 1, 'assignments that say nothing')
})

const SPEC = mlp({ input: [1, 6, 6], hidden: [24], classes: 4 })
const SHARES = [1, 2, 8, 24]
const STEPS = 60
/** of the labels: wrong, as in every collection */
const WRONG = 0.01

/** Four patterns under little noise, learned soon: then the few wrong labels are all that is left to learn from. */
function patterns(samples: number, random: () => number): Batch {
  const y = Int32Array.from({ length: samples }, () => random() % 4)
  const x = Float32Array.from(
    { length: samples * 36 },
    (_, i) => Math.sin(((y[Math.floor(i / 36)] ?? 0) + 1) * ((i % 36) + 1)) + 0.2 * (random() / 2 ** 32 - 0.5),
  )
  return { samples, x, y: y.map((label) => (random() / 2 ** 32 < WRONG ? (label + 1) % 4 : label)) }
}

test('members of unequal assignments that learn until only wrong labels are left are never blamed', async (context) => {
  const held = new LocalVersion({ spec: SPEC, optimizer: { type: 'sgd', lr: 0.1, momentum: 0.9 }, clipNorm: undefined })
  held.adoptInitial({ v: 0, id: versionId('0'.repeat(64)) }, 1)
  const compute = new Compute(createReferenceExecutor(SPEC), held, systemClock)
  const lease = compute.buffers.lease()
  const random = random32(5)
  let most = 0
  let mostHarm = 0
  let loss = 0
  for (let v = 1; v <= STEPS; v++) {
    const gradients: Float32Array[] = []
    let [targets, lossSum] = [0, 0]
    for (const samples of SHARES) {
      const computed = await compute.heldGradient(lease, patterns(samples, random))
      gradients.push(lease.values.slice())
      targets += computed?.sums.targets ?? 0
      lossSum += computed?.sums.lossSum ?? 0
    }
    const harmless = targets * normOf(held.parameters, 0, held.parameters.length)
    const part = Math.ceil(held.layout.total / SHARES.length)
    for (let fence = 0; fence < SHARES.length; fence++) {
      const norms = gradients.map((gradient) =>
        normOf(gradient, fence * part, Math.min(gradient.length, (fence + 1) * part)),
      )
      for (const [rank, norm] of norms.entries()) most = Math.max(most, norm / usualFor(rank, norms, SHARES))
      mostHarm = Math.max(mostHarm, ...norms.map((norm) => norm / harmless))
      assert.equal(
        farOutside({ norms, weights: SHARES, self: fence, harmless: () => harmless }),
        undefined,
        `step ${v}`,
      )
    }
    const sum = gradients.reduce((total, gradient) => total.map((value, i) => value + (gradient[i] ?? 0)))
    held.apply(
      {
        v,
        generation: 1,
        modeEpoch: 0,
        kind: 'ring',
        blocks: [],
        samples: targets,
        targets,
        lossSum,
        correct: 0,
        gradDigest: '' as never,
      },
      { v, id: versionId(v.toString(16).padStart(64, '0')) },
      sum,
    )
    loss = lossSum / targets
  }
  context.diagnostic(
    `at most ${most.toPrecision(3)} times the usual, and ${mostHarm.toPrecision(2)} of what is harmless; ` +
      `the loss at the end is ${loss.toPrecision(3)}`,
  )
  assert.ok(most > FAR_OUTSIDE, 'what others sent alone would blame an honest member')
  assert.ok(mostHarm < 0.5, 'far from what would be taken for harm')
})
