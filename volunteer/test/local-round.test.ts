// Local rounds on the plain executor: what one member makes of a round is what its own inner steps make.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialVersionState, meanOfStep, mlp, nextVersion, parameterLayout } from '@starling-grid/model'
import { type BlockId, genesis, jobId, random32, trainingBlock, type Consumed } from '@starling-grid/protocol'
import { type Batch, createReferenceExecutor } from '@starling-grid/volunteer'
import { Compute } from '../src/compute.ts'
import type { Batches } from '../src/data/batch.ts'
import { HeldVersion } from '../src/recovery/held-version.ts'
import { LocalRounds } from '../src/sync/local-round.ts'

const spec = mlp({ input: [6], hidden: [5], classes: 3 })
const layout = parameterLayout(spec)
const optimizer = { type: 'adamw', lr: 0.05 } as const
const base = genesis(jobId('local'), 'model', 1)
const SAMPLES = 4

function batchOf(blocks: readonly BlockId[]): Batch {
  const samples = blocks.length * SAMPLES
  const seeds = blocks.map((block) => random32(Number(block.split(':')[1]) + 1))
  const x = seeds.flatMap((random) => Array.from({ length: SAMPLES * 6 }, () => random() / 2 ** 32))
  return { samples, x: Float32Array.from(x), y: Int32Array.from({ length: samples }, (_, i) => i % 3) }
}

function setUp(innerSteps: number) {
  const held = new HeldVersion({ spec, optimizer, clipNorm: undefined })
  held.adoptInitial(base, 7)
  const compute = new Compute(createReferenceExecutor(spec), held)
  const asked: string[][] = []
  const batches = { of: async (blocks: readonly BlockId[]) => (asked.push([...blocks]), batchOf(blocks)) } as unknown as Batches
  const rounds = new LocalRounds({ rule: { layout, optimizer }, clipNorm: undefined, innerSteps, compute, batches })
  return { held, compute, rounds, asked }
}

const onLearned = (): void => undefined
const blocks = (...numbers: number[]) => numbers.map((n) => trainingBlock(0, n))

test('a round is the inner steps, one after another, and its share is their difference times their targets', async () => {
  const { held, compute, rounds, asked } = setUp(2)
  const share = blocks(0, 1, 2, 3)
  const result = await rounds.run({ base, parameters: held.parameters, blocks: share, current: () => true, onLearned })
  assert.deepEqual(asked, [share.slice(0, 2), share.slice(2)])
  assert.deepEqual([result?.samples, result?.sums.targets, result?.finite], [16, 16, true])

  const version = initialVersionState(spec, optimizer, 7)
  const executor = createReferenceExecutor(spec)
  const gradient = new Float32Array(layout.total)
  for (const part of [share.slice(0, 2), share.slice(2)]) {
    executor.loadParameters(version.parameters)
    const { targets } = await executor.gradient(batchOf(part), gradient)
    meanOfStep({ layout }, gradient, { targets, mean: gradient, clipNorm: undefined })
    nextVersion({ layout, optimizer }, version, gradient, version)
  }
  const wanted = version.parameters.map((value, i) => Math.fround(16 * Math.fround((held.parameters[i] ?? 0) - value)))
  assert.deepEqual(compute.gradient, wanted)
})

test('a round that a new generation cut short goes on where it was, when the base and the blocks are the same', async () => {
  const { held, rounds, asked } = setUp(4)
  let steps = 0
  const cut = await rounds.run({ base, parameters: held.parameters, blocks: blocks(0, 1, 2, 3), current: () => steps++ < 3, onLearned })
  assert.equal(cut, undefined)
  const whole = await rounds.run({ base, parameters: held.parameters, blocks: blocks(0, 1, 2, 3, 4, 5), current: () => true, onLearned })
  assert.equal(whole?.samples, 24)
  assert.deepEqual(asked.flat(), blocks(0, 1, 2, 3, 4, 5), 'no block is learned from twice')
})

test('inner progress is dropped when its blocks belong to somebody else now, or the base is another version', async () => {
  const { held, rounds, asked } = setUp(2)
  let steps = 0
  await rounds.run({ base, parameters: held.parameters, blocks: blocks(0, 1), current: () => steps++ < 3, onLearned })
  const other = await rounds.run({ base, parameters: held.parameters, blocks: blocks(1, 2), current: () => true, onLearned })
  assert.equal(other?.samples, 8)
  assert.deepEqual(asked.slice(1).flat(), blocks(1, 2))
})

test('a step that was under way when a new ballot began is not learned from: what was told of the progress stays true', async () => {
  const { held, rounds, asked } = setUp(2)
  const told: number[] = []
  let current = true
  const learned = ({ blocks: known }: Consumed): void => void told.push(known.length)
  const cut = rounds.run({ base, parameters: held.parameters, blocks: blocks(0, 1), current: () => current, onLearned: learned })
  await Promise.resolve()
  current = false // a new ballot, while the first inner step computes
  const again = rounds.run({ base, parameters: held.parameters, blocks: blocks(0, 1), current: () => true, onLearned: learned })
  assert.equal(await cut, undefined)
  assert.equal((await again)?.samples, 8)
  assert.deepEqual(told, [0, 0, 1, 2])
  assert.deepEqual(asked.flat(), blocks(0, 0, 1))
})

test('a member without blocks gives a difference of nothing', async () => {
  const { held, compute, rounds } = setUp(2)
  compute.gradient.fill(5)
  const result = await rounds.run({ base, parameters: held.parameters, blocks: [], current: () => true, onLearned })
  assert.deepEqual([result?.samples, result?.sums.targets, result?.finite], [0, 0, true])
  assert.ok(compute.gradient.every((value) => value === 0))
})
