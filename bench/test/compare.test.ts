// The runner of comparisons, on libraries that compute in plain TypeScript: what is wrong or missing is named, never
// timed.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compare, type BenchComparison } from '../src/compare.ts'
import { reference } from '../src/libraries/reference.ts'
import type { Library } from '../src/library.ts'
import type { BenchPlace } from '../src/places/place.ts'
import { suiteText } from '../src/report.ts'
import { race } from '../src/row.ts'
import { flopsOf, type BenchTask } from '../src/task.ts'

const OPTIONS = { adapter: undefined, executor: 'webgpu', in: 'node', rounds: 2, log: () => undefined } as const
const TASK: BenchTask = { kind: 'matmul', size: 8 }
const MATMUL: BenchComparison = {
  name: 'matmul 8',
  task: TASK,
  unit: 'GFLOP/s',
  value: (ms) => flopsOf(TASK) / ms / 1e6,
}

function place(...others: readonly Library[]): BenchPlace {
  const libraries = [{ ...reference(), name: 'starling' }, ...others]
  const gpuCalls = async () => ({ dispatches: 0, submits: 0, encodingMs: 0, submitMs: 0 })
  return {
    name: 'node',
    adapter: 'reference',
    libraries,
    missing: [{ name: 'absent', reason: 'it is not installed' }],
    gpuCalls,
    close: async () => undefined,
  }
}

/** Computes rightly, and says something else by `error` of it. */
function offBy(name: string, error: number): Library {
  return {
    ...reference(),
    name,
    async prepare(task) {
      const prepared = await reference().prepare(task)
      return { ...prepared, result: async () => (await prepared.result()).map((value) => value * (1 + error)) }
    },
  }
}

test('a peer that computes the same is timed, and one that does not is named with its error', async () => {
  const row = await compare(MATMUL, place(offBy('right', 1e-6), offBy('wrong', 1e-3)), OPTIONS)
  assert.deepEqual(Object.keys(row.peers), ['right'])
  assert.match(row.missing?.['wrong'] ?? '', /its result is wrong: off by 1\.0e-3/)
  assert.equal(row.missing?.['absent'], 'it is not installed')
  assert.ok((row.errors?.['right'] ?? 1) > 0 && (row.errors?.['right'] ?? 1) < 1e-4)
  assert.ok(row.min <= row.ours && row.ours <= row.max && row.min > 0)
})

test('a peer that cannot do the task is named with what it says', async () => {
  const unable: Library = {
    ...reference(),
    name: 'unable',
    prepare: async () => {
      throw new Error('no such kernel')
    },
  }
  const row = await compare(MATMUL, place(unable), OPTIONS)
  assert.deepEqual(row.peers, {})
  assert.equal(row.missing?.['unable'], 'no such kernel')
})

test('when Starling itself is wrong nothing is timed', async () => {
  const {
    libraries: [, ...rest],
    ...others
  } = place()
  await assert.rejects(
    compare(MATMUL, { ...others, libraries: [offBy('starling', 0.1), ...rest] }, OPTIONS),
    /Starling is out: its result is wrong/,
  )
})

for (const task of [
  { kind: 'conv2d-forward', samples: 1, channels: 2, out: 3, side: 5, kernel: 3 },
  { kind: 'conv2d-backward', samples: 2, channels: 2, out: 3, side: 5, kernel: 3 },
  { kind: 'chain', length: 3, elements: 5 },
  { kind: 'step', model: 'mlp', samples: 2 },
] as const)
  test(`${task.kind} gives the same result each time it is done from its beginning`, async () => {
    const prepared = await reference().prepare(task)
    const first = await prepared.result()
    assert.ok((await prepared.time(1)) > 0)
    assert.deepEqual(await prepared.result(), first)
    assert.ok(first.length > 0 && first.every(Number.isFinite))
    await prepared.close()
  })

test('rounds are interleaved, and a ratio above one is a win whichever way is better', async () => {
  const order: string[] = []
  const contender = (name: string, value: number) => async () => {
    order.push(name)
    return value
  }
  const more = await race(
    { name: 'r', adapter: 'a', unit: 'u' },
    contender('ours', 4),
    { peer: contender('peer', 2) },
    2,
  )
  assert.deepEqual(order, ['ours', 'peer', 'ours', 'peer', 'ours', 'peer'])
  assert.deepEqual(more.ratio, { peer: 2 })
  const less = await race(
    { name: 'r', adapter: 'a', unit: 'µs', better: 'less' },
    contender('ours', 4),
    { peer: contender('peer', 2) },
    1,
  )
  assert.deepEqual(less.ratio, { peer: 0.5 })
})

test('the report shows the newest row of each name, wins and losses alike, and what was not compared', () => {
  const machine = { cpu: 'abacus', cores: 1, os: 'none', node: 'v20', load: 0 }
  const row = {
    name: 'matmul',
    adapter: 'x',
    unit: 'GFLOP/s',
    ours: 1,
    min: 1,
    max: 1,
    peers: { fast: 4, slow: 0.5 },
    ratio: { fast: 0.25, slow: 2 },
  }
  const text = suiteText('kernels', [
    { date: '2026-01-01', machine, in: 'node', rounds: 5, rows: [{ ...row, ours: 99 }] },
    { date: '2026-01-02', machine, in: 'node', rounds: 5, rows: [{ ...row, missing: { other: 'it has no kernel' } }] },
  ])
  assert.match(
    text,
    /\| matmul \| x, Node \| 1 GFLOP\/s \| 1 … 1 \| fast 4 \(\*\*0\.25×\*\*\)<br>slow 0\.5 \(\*\*2×\*\*\)/,
  )
  assert.doesNotMatch(text, /99|2026-01-01/)
  assert.match(text, /2026-01-02, in node, 5 rounds: abacus/)
  assert.match(text, /matmul: without other, because it has no kernel/)
})
