// The audit of committed steps: it finds the gradient of another block in a sum whose record is in order, which no
// member can see.
import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { mlp } from '@starling-grid/model'
import { type BlockId, extend, type StepRecord, trainingBlock, systemClock } from '@starling-grid/protocol'
import { Compute, createReferenceExecutor, LocalVersion, StepAudit, type StepVerdict } from '@starling-grid/volunteer'
import type { Batch } from '../src/graph/executor.ts'
import {
  batchOf,
  BENCH_OPTIMIZER,
  type BenchOptions,
  BLOCKS,
  type GatedExecutor,
  RingBench,
  ZERO,
} from './ring-bench.ts'

const SPEC = mlp({ input: [4], hidden: [3], classes: 2 })
const benches: RingBench[] = []
afterEach(() => {
  for (const bench of benches.splice(0)) bench.stop()
})

interface Committed {
  readonly record: StepRecord
  readonly sum: Float32Array
}

/** Two steps of a ring of two, as their members applied them. */
async function committed(wrap?: BenchOptions['wrap']): Promise<Committed[]> {
  const bench = new RingBench({ spec: SPEC, ...(wrap ? { wrap } : {}) })
  benches.push(bench)
  const steps: Committed[] = []
  for (const first of [0, 4]) {
    await bench.begin(
      [1, 1],
      BLOCKS.map((_, i) => trainingBlock(0, first + i)),
    )
    const record = await bench.held()
    const { version } = bench.a.core
    assert.ok(version)
    steps.push({ record, sum: bench.a.held.reduced(version)?.slice() ?? assert.fail() })
  }
  return steps
}

async function auditOf(
  steps: readonly Committed[],
  options: Partial<ConstructorParameters<typeof StepAudit>[0]> = {},
): Promise<{ readonly verdicts: StepVerdict[]; readonly held: LocalVersion }> {
  const held = new LocalVersion({ spec: SPEC, optimizer: BENCH_OPTIMIZER, clipNorm: undefined })
  held.adoptInitial(ZERO, 7)
  const compute = new Compute(createReferenceExecutor(SPEC), held, systemClock)
  const batches = { of: async (blocks: readonly BlockId[]): Promise<Batch> => batchOf(SPEC, blocks) }
  const audit = new StepAudit({ held, compute, batches, batchBlocks: BLOCKS.length, isLossless: true, ...options })
  const verdicts: StepVerdict[] = []
  for (const { record, sum } of steps) verdicts.push(await audit.step(record, sum))
  return { verdicts, held }
}

test('every step of honest members passes its audit and leads to the parameters that they hold', async () => {
  const steps = await committed()
  const { verdicts, held } = await auditOf(steps)
  assert.deepEqual(
    verdicts.map(({ v, fault, skipped }) => [v, fault, skipped]),
    [
      [1, undefined, undefined],
      [2, undefined, undefined],
    ],
  )
  assert.ok(verdicts.every(({ deviation = 1 }) => deviation < 1e-5))
  assert.deepEqual(held.parameters, benches[0]?.parameters)
})

/**
 * The old defect: what was computed for another assignment is in the memory, too. All counts are those of the record.
 */
function addingAnotherBlock(executor: GatedExecutor): GatedExecutor {
  const honest = executor.gradient.bind(executor)
  executor.gradient = async (batch, into, early) => {
    const other = new Float32Array(into.length)
    await honest(batchOf(SPEC, [trainingBlock(0, 77)]), other)
    const sums = await honest(batch, into, early)
    for (const [i, value] of other.entries()) into[i] = (into[i] ?? 0) + value
    return sums
  }
  return executor
}

test('a member that adds the gradient of another block is caught, although all replicas are equal', async () => {
  let members = 0
  const steps = await committed((executor) => (members++ === 0 ? executor : addingAnotherBlock(executor)))
  const { verdicts } = await auditOf(steps)
  for (const { fault } of verdicts) assert.match(fault ?? '', /^the gradient of its blocks is another/)
})

test('a sum that is not the committed one, and counts that no block has, are named', async () => {
  const [first = assert.fail()] = await committed()
  const { sum, record } = first
  const other = await auditOf([{ record, sum: sum.map((value) => 2 * value) }])
  assert.match(other.verdicts[0]?.fault ?? '', /^the sum is not the one/)
  for (const lie of [{ samples: record.samples + 1 }, { targets: record.targets - 1 }])
    assert.match(
      (await auditOf([{ sum, record: { ...record, ...lie } }])).verdicts[0]?.fault ?? '',
      /samples and .* targets/,
    )
  assert.match(
    (await auditOf([{ sum, record: { ...record, lossSum: 2 * record.lossSum } }])).verdicts[0]?.fault ?? '',
    /^the loss/,
  )
})

test('what cannot be computed again is skipped by name and followed all the same', async () => {
  const steps = await committed()
  for (const [options, why] of [
    [{ isLossless: false }, /encoded/],
    [{ batchBlocks: 3 }, /older version/],
  ] as const) {
    const { verdicts, held } = await auditOf(steps, options)
    for (const { skipped } of verdicts) assert.match(skipped ?? '', why)
    assert.deepEqual(
      held.version,
      steps.reduce((version, { record }) => extend(version, record), ZERO),
    )
  }
})
