// What a member contributes for its assignment: the same sum in one piece or in several, with early buckets or without.
// What off-ring members computed is in it once.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { mlp } from '@starling-grid/model'
import { type BlockId, blockIndex, genesis, jobId, memberId, trainingBlock, systemClock } from '@starling-grid/protocol'
import { Compute, createReferenceExecutor, LocalVersion } from '@starling-grid/volunteer'
import { formOf } from '@starling-grid/volunteer/testing'
import { AssignmentWork } from '../src/generation/assignment-work.ts'
import { computeAssignment } from '../src/generation/step.ts'
import type { EncodeRequest } from '../src/graph/executor.ts'
import type { MemberCore } from '../src/member/member-state.ts'
import { createMember, react } from '../src/member/member.ts'

const spec = mlp({ input: [4], hidden: [3], classes: 2 })
const ZERO = genesis(jobId('job'), 'hash', 7)
const A = memberId('a')
const BLOCKS = [0, 1, 2, 3].map((i) => trainingBlock(0, i))
const BLOCK_SAMPLES = 4
const BALLOT = { fence: 1, generation: 1 }

/** Any numbers, another for each block. */
function batchOf(blocks: readonly BlockId[]) {
  const samples = blocks.length * BLOCK_SAMPLES
  const numbers = blocks.flatMap((block) =>
    Array.from({ length: BLOCK_SAMPLES * 4 }, (_, i) => Math.sin(i + 13 * blockIndex(block))),
  )
  return {
    samples,
    x: Float32Array.from(numbers),
    y: Int32Array.from({ length: samples }, (_, i) => i % 2),
    groups: blocks.map(() => BLOCK_SAMPLES),
  }
}

/** Alone in a ring, in step 1; `speed` in samples per second decides how many pieces there are. */
function bench(speed: number, buckets = false) {
  const held = new LocalVersion({ spec, optimizer: { type: 'sgd', lr: 0.1 }, clipNorm: undefined })
  held.adoptInitial(ZERO, 7)
  const core: MemberCore = createMember(A, ZERO)
  react(core, { type: 'order', order: { type: 'freeze', ...BALLOT, committed: 0 } })
  react(core, { type: 'order', order: formOf([A], ZERO) })
  react(core, { type: 'links-open', generation: 1 })
  react(core, { type: 'state-fetched', generation: 1, version: ZERO })
  const compute = new Compute(createReferenceExecutor(spec), held, systemClock)
  const asked: number[] = []
  const batches = {
    blockSamples: BLOCK_SAMPLES,
    of: async (blocks: readonly BlockId[]) => {
      asked.push(blocks.length)
      compute.samplesPerSecond = speed
      return batchOf(blocks)
    },
  }
  const early: Float32Array[] = []
  const encodes: boolean[] = []
  const gradient = compute.heldGradient.bind(compute)
  compute.heldGradient = (lease, batch, wanted) => {
    encodes.push(wanted?.encode !== undefined)
    return gradient(lease, batch, wanted)
  }
  const encode: EncodeRequest = {
    encoding: 'int8',
    runs: [[], [{ start: 0, end: 6 }]],
    residualEpoch: 0,
    cpuMsPerMillion: 1,
  }
  const ranges = [
    { start: 6, end: held.layout.total },
    { start: 0, end: 6 },
  ]
  let offRing: number | undefined
  const assignment = new AssignmentWork(
    { generation: 1, step: 1 },
    {
      clock: systemClock,
      core,
      compute,
      batches,
      pace: { blockMs: 0 },
      signal: new AbortController().signal,
      tell: (input) => void react(core, input),
      takeGiven: (id) => {
        if (id !== offRing) return undefined
        offRing = undefined
        return new Float32Array(held.layout.total).fill(100)
      },
      early: buckets ? { ranges, encode: () => encode } : undefined,
    },
  )
  const onFinal = (index: number): void =>
    void early.push(assignment.gradient.slice(ranges[index]?.start, ranges[index]?.end))
  const run = () => computeAssignment(assignment, batches, onFinal)
  /** The first sum of off-ring members that comes is kept until it is used. */
  const fetchGiven = (id: number): void => {
    if (offRing !== undefined) return
    offRing = id
    react(core, { type: 'given-fetched', generation: 1, id })
  }
  compute.samplesPerSecond = speed
  const start = (): unknown =>
    react(core, {
      type: 'order',
      order: { type: 'start', ...BALLOT, after: ZERO, plan: [{ step: 1, blocks: BLOCKS }] },
    })
  return { core, compute, assignment, batches, run, fetchGiven, asked, early, encodes, start }
}

async function gradientWith(speed: number, buckets = false) {
  const all = bench(speed, buckets)
  all.start()
  const result = await all.run()
  return { ...all, result, gradient: all.assignment.gradient.slice() }
}

const FAST = 1e9
/** A block takes a second, as far as anybody knows. */
const SLOW = BLOCK_SAMPLES

const near = (a: Float32Array, b: Float32Array): boolean => a.every((value, i) => Math.abs(value - (b[i] ?? 0)) < 1e-5)

describe('a share', () => {
  test('has the same sum in one piece and in several', async () => {
    const [whole, pieces] = [await gradientWith(FAST), await gradientWith(SLOW)]
    assert.deepEqual(whole.asked, [4])
    assert.ok(pieces.asked.length > 1)
    assert.deepEqual(whole.result?.blocks, pieces.result?.blocks)
    assert.deepEqual([whole.result?.samples, pieces.result?.samples], [16, 16])
    assert.ok(near(whole.gradient, pieces.gradient))
  })

  test('that leaves in buckets is in them what it is in the end', async () => {
    for (const speed of [FAST, SLOW]) {
      const { early, gradient } = await gradientWith(speed, true)
      const whole = await gradientWith(FAST)
      assert.ok(near(gradient, whole.gradient))
      for (const [i, [from, to]] of [
        [6, undefined],
        [0, 6],
      ].entries())
        if (early[i] !== undefined) assert.deepEqual(early[i], gradient.slice(from, to))
    }
  })

  test('may be encoded where it is computed when it is one piece and nothing is added to it', async () => {
    assert.deepEqual((await gradientWith(FAST, true)).encodes, [true])
    const { encodes } = await gradientWith(SLOW, true)
    assert.ok(encodes.length > 1 && !encodes.includes(true))
    const lent = bench(FAST, true)
    react(lent.core, {
      type: 'order',
      order: {
        type: 'off-ring',
        ...BALLOT,
        id: 3,
        rank: 0,
        blocks: [trainingBlock(0, 9)],
        samples: 4,
        targets: 4,
        lossSum: 8,
        correct: 1,
      },
    })
    lent.fetchGiven(3)
    lent.start()
    await lent.run()
    assert.deepEqual(lent.encodes, [false])
  })

  test('that ended while samples were fetched leases no memory, and adds nothing up', async () => {
    const { compute, assignment, batches, run, start } = bench(SLOW)
    const { of } = batches
    let pieces = 0
    batches.of = (blocks) => {
      if (++pieces === 2) assignment.end()
      return of(blocks)
    }
    let leases = 0
    const lease = compute.buffers.lease.bind(compute.buffers)
    compute.buffers.lease = () => {
      leases++
      return lease()
    }
    start()
    assert.equal(await run(), undefined)
    assert.deepEqual([pieces, leases], [2, 0], 'the second piece came after the end')
  })

  test('that ended while it was computed hands no bucket over', async () => {
    const { compute, assignment, run, start, early } = bench(FAST, true)
    const { executor } = compute
    const gradient = executor.gradient.bind(executor)
    executor.gradient = (...asked) => {
      assignment.end()
      return gradient(...asked)
    }
    start()
    assert.equal(await run(), undefined)
    assert.deepEqual(early, [])
  })

  test('holds what off-ring members computed once, in one piece or in several, in buckets or not', async () => {
    const plain = await gradientWith(FAST)
    const lent = [trainingBlock(0, 9)]
    for (const [speed, buckets] of [
      [FAST, false],
      [FAST, true],
      [SLOW, false],
      [SLOW, true],
    ] as const) {
      const { core, assignment, run, fetchGiven, start } = bench(speed, buckets)
      react(core, {
        type: 'order',
        order: {
          type: 'off-ring',
          ...BALLOT,
          id: 3,
          rank: 0,
          blocks: lent,
          samples: 4,
          targets: 4,
          lossSum: 8,
          correct: 1,
        },
      })
      fetchGiven(3)
      start()
      const result = await run()
      assert.deepEqual([result?.blocks, result?.samples, result?.sums.targets], [[...BLOCKS, ...lent], 20, 20])
      assert.ok(
        near(
          assignment.gradient,
          plain.gradient.map((value) => value + 100),
        ),
        `${speed} samples/s, ${buckets ? '' : 'no '}buckets`,
      )
    }
  })

  test('names the blocks of off-ring members only with their sum in it', async () => {
    const plain = await gradientWith(FAST)
    const { core, assignment, run, fetchGiven, start } = bench(FAST)
    const offRing = (id: number): void =>
      void react(core, {
        type: 'order',
        order: {
          type: 'off-ring',
          ...BALLOT,
          id,
          rank: 0,
          blocks: [trainingBlock(0, 6 + id)],
          samples: 4,
          targets: 4,
          lossSum: 8,
          correct: 1,
        },
      })
    offRing(3)
    fetchGiven(3)
    offRing(4)
    fetchGiven(4)
    start()
    const result = await run()
    assert.deepEqual(result?.blocks, [...BLOCKS, trainingBlock(0, 9)])
    const lent = plain.gradient.map((value) => value + 100)
    assert.ok(near(assignment.gradient, lent), 'the sum of the off-ring members whose blocks it names is in it')
  })

  test('of nothing is zero, whatever was computed before', async () => {
    const { core, compute, assignment, run } = bench(FAST)
    const before = compute.buffers.lease()
    before.values.fill(5)
    before.end()
    react(core, { type: 'order', order: { type: 'start', ...BALLOT, after: ZERO, plan: [{ step: 1, blocks: [] }] } })
    const result = await run()
    assert.deepEqual([result?.blocks, result?.samples], [[], 0])
    assert.ok(assignment.gradient.every((value) => value === 0))
  })

  test('of a generation that ended is no share', async () => {
    const { core, run, start } = bench(FAST)
    start()
    react(core, { type: 'order', order: { type: 'freeze', fence: 1, generation: 2, committed: 0 } })
    assert.equal(await run(), undefined)
  })
})
