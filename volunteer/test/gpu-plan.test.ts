// What a GPU is given before anything was measured on it: that most of what it computes is asked for, that it is not
// kept busy for long at once, and that its memory bounds a run. Pure: plans, without a device.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, lenet5, type ModelSpec, resnet } from '@starling-grid/model'
import { type AdapterTraits, PLAIN_TRAITS } from '@starling-grid/shaders'
import { buildGraph, explainPlan, planGraph } from '@starling-grid/volunteer'
import { inSubmits, SubmitPace } from '@starling-grid/volunteer/testing'
import type { AdapterLimits } from '../src/graph/plan.ts'

const GIBIBYTE = 1024 ** 3
const GPU: AdapterTraits = { ...PLAIN_TRAITS, software: false }
const LAPTOP: AdapterTraits = { ...GPU, fewRegisters: true }
const DEFAULTS: AdapterLimits = {
  maxStorageBufferBindingSize: 128 * 1024 ** 2,
  maxBufferSize: 256 * 1024 ** 2,
  maxStorageBuffersPerShaderStage: 8,
}
const LARGE: AdapterLimits = { ...DEFAULTS, maxStorageBufferBindingSize: 4 * GIBIBYTE, maxBufferSize: 4 * GIBIBYTE }
const SMALL_GPT = gpt({ blocks: 2, heads: 4, channels: 128, context: 64, vocab: 65 })

function explained(spec: ModelSpec, traits: AdapterTraits, maxMicroBatch = 64) {
  const plan = planGraph(buildGraph(spec), { traits, limits: DEFAULTS, maxMicroBatch })
  return explainPlan(plan, { samples: plan.capacity, traits })
}

for (const [name, traits] of [
  ['a GPU', GPU],
  ['a laptop', LAPTOP],
] as const)
  test(`by the first guess for ${name}, most of the arithmetic of products makes results`, () => {
    const least: readonly (readonly [ModelSpec, number])[] = [
      [lenet5(), 0.5],
      [resnet(), 0.7],
      [SMALL_GPT, 0.9],
    ]
    for (const [spec, share] of least) {
      const { useful } = explained(spec, traits).totals
      assert.ok(useful >= share, `${spec.name}: ${useful.toFixed(3)} of the arithmetic`)
    }
  })

test('where registers are few, no first guess keeps 8 × 8 results in an invocation', () => {
  const variants = [lenet5(), resnet(), SMALL_GPT].flatMap((spec) =>
    explained(spec, LAPTOP).calls.map(({ variant }) => variant),
  )
  assert.deepEqual(
    variants.filter((variant) => variant.startsWith('shared') && variant.includes('/8×8')),
    [],
  )
  assert.ok(explained(resnet(), GPU).calls.length > 0)
})

test('a large GPU takes more samples at a time than a software adapter, and its memory bounds them', () => {
  const capacity = (limits: AdapterLimits) =>
    planGraph(buildGraph(SMALL_GPT), { traits: GPU, limits, maxMicroBatch: 512 }).capacity
  assert.ok(capacity(LARGE) > capacity(DEFAULTS), `${capacity(LARGE)} and ${capacity(DEFAULTS)}`)
})

/** ms that a GPU of so many FLOP in a ms takes for each submit of a run of this model. */
function submitTimes(spec: ModelSpec, workPerMs: number, ms: number): number[] {
  const { parts } = planGraph(buildGraph(spec), { traits: LAPTOP, limits: DEFAULTS, maxMicroBatch: 64 })
  const passes = [...parts.forward, ...parts.loss, ...parts.backward]
  const longest = Math.max(...passes.map(({ work }) => work))
  const pace = new SubmitPace()
  let times: number[] = []
  let now = 0
  for (let run = 0; run < 20; run++) {
    const pieces = inSubmits(passes, pace.workIn(ms))
    times = pieces.map((piece) => piece.reduce((sum, { work }) => sum + work, 0) / workPerMs)
    const work = passes.reduce((sum, pass) => sum + pass.work, 0)
    pace.measured(work, { submitted: now, end: now + work / workPerMs })
    now += work / workPerMs
  }
  return times.filter((time) => time > longest / workPerMs)
}

test('after some runs no submit takes longer than it may, on fast and slow GPUs, but for a single pass', () => {
  for (const spec of [resnet(), SMALL_GPT])
    for (const workPerMs of [2e7, 1e8, 1e9, 2e10])
      for (const ms of [12, 50])
        for (const time of submitTimes(spec, workPerMs, ms))
          assert.ok(time <= ms * 1.001, `${spec.name} at ${workPerMs}: ${time} ms of ${ms}`)
})

test('a device that becomes slow gets less at once with the next run, one that becomes fast little by little', () => {
  const pace = new SubmitPace()
  const first = pace.workIn(50)
  pace.measured(1e9, { submitted: 0, end: 100 })
  assert.equal(pace.workIn(50), first / 10)
  pace.measured(1e10, { submitted: 100, end: 110 })
  assert.ok(pace.workIn(50) > first / 10 && pace.workIn(50) < 50e9)
})
