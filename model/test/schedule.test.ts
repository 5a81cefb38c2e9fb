// Learning-rate schedules and decay groups, against nanoGPT's own formula and by what they leave alone.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, initialVersionState, nextVersion, parameterLayout, parseOptimizerSpec } from '@starling-grid/model'
import { isGridError } from '@starling-grid/protocol'
import { applyUpdate, createOptimizerState, learningRate, type OptimizerSpec } from '@starling-grid/shaders'

const COSINE = { type: 'cosine', to: 0.1, steps: 2000, warmup: 100 } as const
const LR = 1e-3

/** train.py of nanoGPT: get_lr(it). */
function nanoGptRate(it: number): number {
  const [warmup, decay, least] = [100, 2000, 1e-4]
  if (it < warmup) return (LR * (it + 1)) / (warmup + 1)
  if (it > decay) return least
  return least + 0.5 * (1 + Math.cos((Math.PI * (it - warmup)) / (decay - warmup))) * (LR - least)
}

test('the cosine schedule with warm-up is that of nanoGPT', () => {
  const spec = parseOptimizerSpec({ type: 'adamw', lr: LR, schedule: COSINE })
  for (const step of [0, 1, 50, 99, 100, 101, 500, 1050, 1999, 2000, 2001, 10_000]) {
    const error = Math.abs(learningRate(spec, step) / nanoGptRate(step) - 1)
    assert.ok(error < 1e-12, `step ${step}: off by ${error}`)
  }
})

test('each update goes by the rate of its step', () => {
  const spec: OptimizerSpec = { type: 'sgd', lr: 1, schedule: { type: 'linear', to: 0, steps: 4, warmup: 2 } }
  const [parameters, state] = [new Float32Array(1), createOptimizerState(spec, 1)]
  const moved = Array.from({ length: 5 }, () => {
    const before = parameters[0] ?? NaN
    applyUpdate(spec, state, parameters, Float32Array.of(-3), parameters, state)
    return (parameters[0] ?? NaN) - before
  })
  assert.deepEqual(moved, [1, 2, 3, 1.5, 0])
})

test('decay of matrices alone shrinks tables and weights and leaves biases and scales', () => {
  const spec = gpt({ blocks: 1, heads: 2, channels: 8, context: 4, vocab: 11 })
  const layout = parameterLayout(spec)
  const optimizer = parseOptimizerSpec({ type: 'adamw', lr: 0.1, weightDecay: 0.5, decay: 'matrices' })
  const version = initialVersionState(spec, optimizer, 1)
  version.parameters.fill(1)
  nextVersion({ layout, optimizer }, version, new Float32Array(layout.total), version)
  for (const { name, shape, offset } of layout.entries) {
    const decays = shape.length > 1
    assert.ok(
      Math.abs((version.parameters[offset] ?? NaN) - (decays ? 0.95 : 1)) < 1e-6,
      `${name}: ${version.parameters[offset]}`,
    )
  }
})

test('a schedule that means nothing is refused by its attribute', () => {
  for (const [schedule, named] of [
    [{ type: 'wave', to: 0 }, /`type`/],
    [{ type: 'cosine' }, /`to`/],
    [{ type: 'cosine', to: 2 }, /`to`/],
    [{ type: 'cosine', to: 0, steps: 10, warmup: 11 }, /`warmup`/],
    [{ type: 'cosine', to: 0, step: 10 }, /`step`/],
  ] as const)
    assert.throws(
      () => parseOptimizerSpec({ type: 'sgd', lr: 1, schedule }),
      (error) => isGridError(error) && error.code === 'job-invalid' && named.test(error.message),
    )
})

test('the small GPT of nanoGPT has its parameters', () => {
  const { total, entries } = parameterLayout(
    gpt({ blocks: 4, heads: 4, channels: 128, context: 64, vocab: 65, activation: 'gelu', attention_bias: false }),
  )
  // nanoGPT prints 0.80M: it leaves the 8,192 of the positions out
  assert.equal(total - 64 * 128, 795_904)
  assert.equal(entries.filter(({ name }) => name.endsWith('.bias')).length, 0)
})
