// Local rounds on the plain executor: what one member makes of a round is what its own inner steps make.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialVersionState, meanOfStep, mlp, nextVersion, parameterLayout } from '@starling-grid/model'
import {
  type BlockId,
  type Clock,
  genesis,
  jobId,
  random32,
  trainingBlock,
  type Consumed,
  systemClock,
} from '@starling-grid/protocol'
import type { OptimizerSpec } from '@starling-grid/shaders'
import { createReferenceExecutor } from '@starling-grid/volunteer'
import { Compute } from '../src/compute.ts'
import type { Batch, Executor } from '../src/graph/executor.ts'
import { renewedExecutor } from '../src/graph/renewed-executor.ts'
import { FragmentStream } from '../src/local/fragment-stream.ts'
import { fragmentsOf, leavesAfter } from '../src/local/local-fragments.ts'
import { LocalRounds } from '../src/local/local-round.ts'
import { LocalVersion } from '../src/recovery/local-version.ts'
import { type InProcessTraining, inProcessTraining } from '../testing/in-process-training.ts'

const spec = mlp({ input: [6], hidden: [5], classes: 3 })
const layout = parameterLayout(spec)
const ADAMW = { type: 'adamw', lr: 0.05 } as const
const optimizer = ADAMW
const base = genesis(jobId('local'), 'model', 1)
const SAMPLES = 4

function batchOf(blocks: readonly BlockId[]): Batch {
  const samples = blocks.length * SAMPLES
  const seeds = blocks.map((block) => random32(Number(block.split(':')[1]) + 1))
  const x = seeds.flatMap((random) => Array.from({ length: SAMPLES * 6 }, () => random() / 2 ** 32))
  return { samples, x: Float32Array.from(x), y: Int32Array.from({ length: samples }, (_, i) => i % 3) }
}

interface SetUp {
  readonly fragments?: number
  readonly executor?: Executor
  readonly optimizer?: OptimizerSpec
  readonly clock?: Clock
}

function setUp(innerSteps: number, options: SetUp = {}) {
  const { fragments = 1, executor, optimizer = ADAMW, clock = systemClock } = options
  const held = new LocalVersion({ spec, optimizer, clipNorm: undefined })
  held.adoptInitial(base, 7)
  const compute = new Compute(executor ?? createReferenceExecutor(spec), held, clock)
  const [asked, ahead]: [string[][], string[][]] = [[], []]
  let tell = (): unknown => undefined
  const batches = {
    of: async (blocks: readonly BlockId[]) => {
      asked.push([...blocks])
      await tell()
      return batchOf(blocks)
    },
    ahead: async (blocks: readonly BlockId[]) => void ahead.push([...blocks]),
  }
  const rounds = new LocalRounds({
    rule: { layout, optimizer },
    clipNorm: undefined,
    innerSteps,
    compute,
    batches,
    targetsOf: async (learned) => learned.length * SAMPLES,
    ...(fragments > 1 ? { stream: new FragmentStream(fragmentsOf(layout, fragments), layout.total) } : {}),
  })
  const onAsked = (told: () => unknown): void => {
    tell = told
  }
  return { held, compute, rounds, asked, ahead, onAsked }
}

const onLearned = (): void => undefined
const signal = new AbortController().signal

/** The generation ends when the first inner step is learned from. */
function cutAfterAStep() {
  const ending = new AbortController()
  const learned = ({ blocks: known }: Consumed): void => void (known.length > 0 && ending.abort())
  return { signal: ending.signal, onLearned: learned }
}
const blocks = (...numbers: number[]) => numbers.map((n) => trainingBlock(0, n))

test('an assignment of a local round is the parameter difference of its inner steps times their targets', async () => {
  const { held, rounds, asked } = setUp(2)
  const assignment = blocks(0, 1, 2, 3)
  const result = await rounds.run({
    base,
    parameters: held.parameters,
    blocks: assignment,
    signal,
    onLearned,
  })
  assert.deepEqual(asked, [assignment.slice(0, 2), assignment.slice(2)])
  assert.deepEqual([result?.samples, result?.sums.targets, result?.finite], [16, 16, true])

  const version = initialVersionState(spec, optimizer, 7)
  const executor = createReferenceExecutor(spec)
  const gradient = new Float32Array(layout.total)
  for (const part of [assignment.slice(0, 2), assignment.slice(2)]) {
    executor.loadParameters(version.parameters)
    const { targets } = await executor.gradient(batchOf(part), gradient)
    const mean = meanOfStep({ layout }, gradient, { targets, clipNorm: undefined })
    nextVersion({ layout, optimizer }, version, mean, version)
  }
  const wanted = version.parameters.map((value, i) => Math.fround(16 * Math.fround((held.parameters[i] ?? 0) - value)))
  assert.deepEqual(rounds.contribution, wanted)
})

test('while an inner step is computed the data of the next one is fetched', async () => {
  const { held, rounds, asked, ahead, onAsked } = setUp(3)
  const seen: number[][] = []
  onAsked(() => seen.push([asked.length, ahead.length]))
  await rounds.run({ base, parameters: held.parameters, blocks: blocks(0, 1, 2), signal, onLearned })
  assert.deepEqual(ahead, [blocks(1), blocks(2), []])
  assert.deepEqual(seen, [
    [1, 0],
    [2, 1],
    [3, 2],
  ])
})

test('a round at a rate makes the inner steps of an optimizer with so many times the learning rate', async () => {
  const order = { base, blocks: blocks(0, 1), signal, onLearned }
  const one = setUp(1)
  await one.rounds.run({ ...order, parameters: one.held.parameters, rate: 2 })
  const version = initialVersionState(spec, optimizer, 7)
  const gradient = new Float32Array(layout.total)
  const executor = createReferenceExecutor(spec)
  executor.loadParameters(version.parameters)
  const { targets } = await executor.gradient(batchOf(order.blocks), gradient)
  const mean = meanOfStep({ layout }, gradient, { targets, clipNorm: undefined })
  nextVersion({ layout, optimizer: { ...optimizer, lr: 2 * optimizer.lr } }, version, mean, version)
  const wanted = version.parameters.map((to, i) => Math.fround(8 * Math.fround((one.held.parameters[i] ?? 0) - to)))
  assert.deepEqual(one.rounds.contribution, wanted)
})

test('a local round continues in a new generation when its base and its blocks are the same', async () => {
  const { held, rounds, asked } = setUp(4)
  const cut = await rounds.run({
    base,
    parameters: held.parameters,
    blocks: blocks(0, 1, 2, 3),
    ...cutAfterAStep(),
  })
  assert.equal(cut, undefined)
  const whole = await rounds.run({
    base,
    parameters: held.parameters,
    blocks: blocks(0, 1, 2, 3, 4, 5),
    signal,
    onLearned,
  })
  assert.equal(whole?.samples, 24)
  assert.deepEqual(asked.flat(), blocks(0, 1, 2, 3, 4, 5), 'no block is learned from twice')
})

test('inner progress is dropped when its blocks were reassigned or the base is another version', async () => {
  const { held, rounds, asked } = setUp(2)
  await rounds.run({ base, parameters: held.parameters, blocks: blocks(0, 1), ...cutAfterAStep() })
  const other = await rounds.run({
    base,
    parameters: held.parameters,
    blocks: blocks(1, 2),
    signal,
    onLearned,
  })
  assert.equal(other?.samples, 8)
  assert.deepEqual(asked.slice(1).flat(), blocks(1, 2))
})

test('a round that is cut is the difference of its whole inner steps, and names the first blocks', async () => {
  const { held, rounds, asked, onAsked } = setUp(3)
  const cutting = new AbortController()
  const order = { base, parameters: held.parameters, blocks: blocks(0, 1, 2), signal, cut: cutting.signal }
  const told: number[] = []
  onAsked(() => asked.length === 3 && cutting.abort()) // the third step is under way
  const result = await rounds.run({ ...order, onLearned: ({ blocks: known }) => void told.push(known.length) })
  assert.deepEqual([result?.learned, result?.samples, result?.finite], [2, 8, true])
  const after = await innerSteps([blocks(0), blocks(1)])
  const wanted = layoutVector((i) => Math.fround(8 * Math.fround((after[0]?.[i] ?? 0) - (after[2]?.[i] ?? 0))))
  assert.deepEqual(rounds.contribution, wanted)
  await new Promise((resolve) => setTimeout(resolve, 0))
  assert.deepEqual(rounds.contribution, wanted, 'the third step ended, and changed nothing')
  assert.deepEqual(told, [0, 1, 2], 'nor did it count as learned')
  const nothing = await setUp(3).rounds.run({ ...order, onLearned })
  assert.equal(nothing, undefined, 'before its first step it has learned nothing')
})

test('a batch that comes after its round was cut is not computed', async () => {
  const { held, compute, rounds, onAsked } = setUp(2)
  const cutting = new AbortController()
  let come = (): void => undefined
  const coming = new Promise<void>((resolve) => {
    come = resolve
  })
  onAsked(() => coming)
  const order = { base, parameters: held.parameters, blocks: blocks(0, 1), signal, onLearned }
  const cut = rounds.run({ ...order, cut: cutting.signal })
  await new Promise((resolve) => setTimeout(resolve, 0))
  cutting.abort()
  assert.equal(await cut, undefined)
  come()
  await new Promise(setImmediate)
  // behind all that is queued
  await compute.evaluate({ version: base, parameters: held.parameters }, batchOf(blocks(0)))
  assert.equal(compute.samplesComputed, 0)
  onAsked(() => undefined)
  assert.equal((await rounds.run(order))?.learned, 2, 'the next round goes on')
})

test('a ballot drops the inner step that was under way, and keeps the reported progress true', async () => {
  const { held, rounds, asked, onAsked } = setUp(2)
  const told: number[] = []
  const ending = new AbortController()
  const learned = ({ blocks: known }: Consumed): void => void told.push(known.length)
  onAsked(() => ending.abort()) // a new ballot, while the first inner step computes
  const cut = rounds.run({
    base,
    parameters: held.parameters,
    blocks: blocks(0, 1),
    signal: ending.signal,
    onLearned: learned,
  })
  const again = rounds.run({
    base,
    parameters: held.parameters,
    blocks: blocks(0, 1),
    signal,
    onLearned: learned,
  })
  assert.equal(await cut, undefined)
  assert.equal((await again)?.samples, 8)
  assert.deepEqual(told, [0, 0, 1, 2])
  assert.deepEqual(asked.flat(), blocks(0, 0, 1))
})

test('a member without blocks gives a difference of nothing', async () => {
  const { held, compute, rounds } = setUp(2)
  const before = compute.buffers.lease()
  before.values.fill(5)
  before.end()
  const result = await rounds.run({ base, parameters: held.parameters, blocks: [], signal, onLearned })
  assert.deepEqual([result?.samples, result?.sums.targets, result?.finite], [0, 0, true])
  assert.ok(rounds.contribution.every((value) => value === 0))
})

/** Parameters after each inner step on its own, from the job's initial ones on, with one optimizer all along. */
async function innerSteps(parts: readonly (readonly BlockId[])[]): Promise<Float32Array[]> {
  const version = initialVersionState(spec, optimizer, 7)
  const executor = createReferenceExecutor(spec)
  const gradient = new Float32Array(layout.total)
  const after = [version.parameters.slice()]
  for (const part of parts) {
    executor.loadParameters(version.parameters)
    const { targets } = await executor.gradient(batchOf(part), gradient)
    const mean = meanOfStep({ layout }, gradient, { targets, clipNorm: undefined })
    nextVersion({ layout, optimizer }, version, mean, version)
    after.push(version.parameters.slice())
  }
  return after
}

const FRAGMENTS = fragmentsOf(layout, 2)
const four = blocks(0, 1, 2, 3)

/** What a fragment of an assignment is, that left after so many steps. */
function leaving(after: readonly Float32Array[], made: number, weight: number): Float32Array {
  return layoutVector((i) => Math.fround(weight * Math.fround((after[0]?.[i] ?? 0) - (after[made]?.[i] ?? 0))))
}

function layoutVector(of: (i: number) => number): Float32Array {
  return Float32Array.from({ length: layout.total }, (_, i) => of(i))
}

function partOf(vector: Float32Array, fragment: number): number[] {
  return (FRAGMENTS[fragment] ?? []).flatMap(({ start, end }) => [...vector.subarray(start, end)])
}

test('fragments are whole layers that make up the model, of equal size where layers allow', () => {
  const deep = parameterLayout(mlp({ input: [16], hidden: [16, 16, 16, 16, 16, 16], classes: 16 }))
  for (const count of [1, 2, 3, 4]) {
    const fragments = fragmentsOf(deep, count)
    const runs = fragments.flat().sort((a, b) => a.start - b.start)
    assert.deepEqual([runs[0]?.start, runs.at(-1)?.end], [0, deep.total])
    for (const [i, { start }] of runs.entries()) assert.equal(start, i === 0 ? 0 : runs[i - 1]?.end)
    const floats = fragments.map((ranges) => ranges.reduce((sum, { start, end }) => sum + end - start, 0))
    assert.ok(Math.max(...floats) <= Math.ceil(7 / count) * (deep.total / 7), `${count}: ${floats.join()}`)
  }
  assert.deepEqual(
    fragmentsOf(deep, 2).map((ranges) => ranges.length),
    [4, 3],
    'layers of one size stride',
  )
})

test('a layer that is larger than a fragment is cut', () => {
  const [first, second] = fragmentsOf(parameterLayout(mlp({ input: [100], hidden: [10], classes: 2 })), 2).map(
    (ranges) => ranges.reduce((sum, { start, end }) => sum + end - start, 0),
  )
  assert.ok(Math.abs((first ?? 0) - (second ?? 0)) < 30)
})

test('fragments leave at even distances, the last of them before the round ends', () => {
  const after = (count: number, steps: number) =>
    Array.from({ length: count }, (_, i) => leavesAfter(i, { count, steps }))
  assert.deepEqual(after(4, 16), [2, 6, 10, 14])
  assert.deepEqual(after(2, 3), [1, 2])
  assert.deepEqual(after(3, 3), [1, 2, 3])
  assert.deepEqual(after(4, 1), [1, 1, 1, 1])
})

test('a fragment is sent in the middle of the round, with the weight of the whole assignment', async () => {
  const { held, rounds } = setUp(4, { fragments: 2 })
  const left: [fragment: number, assignment: number[]][] = []
  const result = await rounds.run({
    base,
    parameters: held.parameters,
    blocks: four,
    signal,
    onLearned,
    onFragment: (fragment) => void left.push([fragment, partOf(rounds.contribution, fragment)]),
  })
  const after = await innerSteps(four.map((block) => [block]))
  assert.deepEqual(left, [
    [0, partOf(leaving(after, 1, 16), 0)],
    [1, partOf(leaving(after, 3, 16), 1)],
  ])
  assert.deepEqual([result?.samples, result?.sums.targets, result?.finite], [16, 16, true])
})

test('what a fragment learned after it was sent joins the next round of the member', async () => {
  const { held, rounds } = setUp(4, { fragments: 2 })
  const order = { parameters: held.parameters, signal, onLearned }
  await rounds.run({ ...order, base, blocks: four })
  const next = { v: 1, id: 'the next version' } as typeof base
  rounds.committed(next, 'round', true)
  const moved = held.parameters.map((value) => Math.fround(value + 1))
  await rounds.run({ ...order, base: next, parameters: moved, blocks: [] })
  assert.ok(
    rounds.contribution.every((value) => value === 0),
    'a member without blocks has no share',
  )
  const [first, again] = [setUp(4, { fragments: 2 }), setUp(4, { fragments: 2 })]
  for (const { rounds: one } of [first, again]) await one.run({ ...order, base, blocks: four })
  first.rounds.committed(next, 'round', true)
  const started: number[][] = []
  for (const { rounds: one, compute } of [first, again]) {
    const local = compute.localGradient.bind(compute)
    const seen: Float32Array[] = []
    compute.localGradient = (lease, parameters, batch) => {
      seen.push(parameters.slice())
      return local(lease, parameters, batch)
    }
    await one.run({ ...order, base: next, parameters: moved, blocks: blocks(4, 5, 6, 7) })
    started.push([...(seen[0] ?? [])])
  }
  const after = await innerSteps(four.map((block) => [block]))
  const kept = layoutVector((i) => {
    const made = FRAGMENTS[0]?.some(({ start, end }) => i >= start && i < end) ? 1 : 3
    return Math.fround((moved[i] ?? 0) + Math.fround((after[4]?.[i] ?? 0) - (after[made]?.[i] ?? 0)))
  })
  assert.deepEqual(started[0], [...kept])
  assert.deepEqual(started[1], [...moved], 'a version that came in another way holds nothing of this member')
})

test('a fragment of a round that a new generation repeats is sent again with the new weight', async () => {
  const { held, rounds } = setUp(4, { fragments: 2 })
  const ending = new AbortController()
  const left: [fragment: number, assignment: number[]][] = []
  const order = {
    base,
    parameters: held.parameters,
    onLearned,
    onFragment: (fragment: number) => {
      left.push([fragment, partOf(rounds.contribution, fragment)])
      ending.abort()
    },
  }
  assert.equal(await rounds.run({ ...order, blocks: four, signal: ending.signal }), undefined)
  const six = blocks(0, 1, 2, 3, 4, 5)
  assert.equal((await rounds.run({ ...order, blocks: six, signal }))?.samples, 24)
  const after = await innerSteps([...four.slice(0, 2).map((block) => [block]), six.slice(2, 4), six.slice(4)])
  assert.deepEqual(
    left.map(([fragment]) => fragment),
    [0, 0, 1],
  )
  assert.deepEqual(left[1]?.[1], partOf(leaving(after, 1, 24), 0))
})

/** Three inner steps of two rounds, the second from where the first led. */
async function twoRounds(executor: Executor | undefined, rule: OptimizerSpec): Promise<number[][]> {
  const { rounds, held } = setUp(3, { optimizer: rule, ...(executor ? { executor } : {}) })
  const made: number[][] = []
  for (const round of [0, 1]) {
    const parameters = held.parameters.map((value) => Math.fround(value + round))
    const order = { base: genesis(jobId(`round${round}`), 'model', 1), parameters, signal, onLearned }
    const result = await rounds.run({ ...order, blocks: blocks(3 * round, 3 * round + 1, 3 * round + 2) })
    assert.deepEqual([result?.learned, result?.samples, result?.finite], [3, 12, true])
    made.push([...rounds.contribution])
  }
  return made
}

test('rounds whose inner steps stay with the executor are rounds over the host', async () => {
  const { executor, calls } = inProcessTraining(spec)
  assert.deepEqual(await twoRounds(executor, ADAMW), await twoRounds(undefined, ADAMW))
  assert.deepEqual(calls, ['set', 'step', 'step', 'step', 'read', 'set', 'step', 'step', 'step', 'read'])
})

test('a round without blocks asks nothing of an executor that keeps inner steps', async () => {
  const { executor, calls } = inProcessTraining(spec)
  const { rounds, held } = setUp(3, { executor })
  const result = await rounds.run({ base, parameters: held.parameters, blocks: [], signal, onLearned })
  assert.deepEqual([result?.learned, result?.finite, calls], [0, true, []])
  assert.ok(rounds.contribution.every((value) => value === 0))
})

/** A device that goes at call `at`, and those after it that stay. */
async function losing(at: number): Promise<Executor> {
  const opened: InProcessTraining[] = []
  const open = async (): Promise<Executor> => {
    const device = inProcessTraining(spec)
    const { executor, calls } = device
    opened.push(device)
    if (opened.length > 1) return executor
    const push = calls.push.bind(calls)
    calls.push = (kind) => {
      if (calls.length === at) device.lose()
      return push(kind)
    }
    return executor
  }
  return renewedExecutor(open, { say: () => undefined, clock: { ...systemClock, sleep: async () => undefined } })
}

test('a device that takes the private copy along, at any call, costs time and no step of the round', async () => {
  const sgd: OptimizerSpec = { type: 'sgd', lr: 0.5 }
  const wanted = await twoRounds(undefined, sgd)
  for (let at = 0; at < 10; at++) assert.deepEqual(await twoRounds(await losing(at), sgd), wanted, `lost at ${at}`)
})

test('a round that is cut while its copy is made anew has learned nothing', async () => {
  const cutting = new AbortController()
  const { rounds, held, asked, onAsked } = setUp(3, { executor: await losing(2) })
  onAsked(() => asked.length === 3 && cutting.abort()) // of the first step, again
  const order = { base, parameters: held.parameters, blocks: blocks(0, 1, 2), signal, onLearned }
  assert.equal(await rounds.run({ ...order, cut: cutting.signal }), undefined)
  assert.equal((await rounds.run(order))?.samples, 12, 'the next one begins at its base')
})

test('a round of slow steps on a device is cut without waiting for the one under way', async () => {
  const { executor } = inProcessTraining(spec)
  let steps = 0
  const resident: Executor['resident'] = async (rule) => {
    const training = await executor.resident?.(rule)
    const never = new Promise<never>(() => undefined)
    return training && { ...training, step: (batch, step) => (++steps === 3 ? never : training.step(batch, step)) }
  }
  const time = { now: 0 }
  const now = (): number => {
    time.now += 2000
    return time.now
  }
  const { rounds, held, asked, onAsked } = setUp(3, {
    executor: { ...executor, resident },
    clock: { ...systemClock, now },
  })
  const cutting = new AbortController()
  onAsked(() => asked.length === 3 && setImmediate(() => cutting.abort()))
  const order = { base, parameters: held.parameters, blocks: blocks(0, 1, 2), signal, cut: cutting.signal, onLearned }
  assert.deepEqual(await rounds.run(order).then((result) => [result?.learned, result?.finite]), [2, true])
  const after = await innerSteps([blocks(0), blocks(1)])
  const wanted = layoutVector((i) => Math.fround(8 * Math.fround((after[0]?.[i] ?? 0) - (after[2]?.[i] ?? 0))))
  assert.deepEqual(rounds.contribution, wanted)
})
