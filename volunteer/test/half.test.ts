// Values in half: which they are, what overflow does to the loss scale, and that a scaled gradient comes back exact.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, lenet5 } from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { PLAIN_TRAITS } from '@starling-grid/shaders'
import { REFERENCE_ADAPTER } from '../src/cpu/executor.ts'
import { buildGraph } from '../src/graph/build.ts'
import { graphExecutor } from '../src/graph/graph-executor.ts'
import { halfStorages } from '../src/graph/half.ts'
import { afterGood, afterOverflow, FIRST_SCALE } from '../src/graph/loss-scale.ts'
import { planGraph } from '../src/graph/plan.ts'
import type { GraphRunner } from '../src/graph/runner.ts'

const LIMITS = { maxStorageBufferBindingSize: 2 ** 27, maxBufferSize: 2 ** 28, maxStorageBuffersPerShaderStage: 8 }
const WITH_HALF = { ...PLAIN_TRAITS, features: new Set(['shader-f16']) }

test('ends, parameters and statistics of kernels stay f32', () => {
  const graph = buildGraph(gpt({ blocks: 1, heads: 2, channels: 8, context: 4, vocab: 5 }))
  const half = halfStorages(graph)
  assert.ok(half.size > 10)
  for (const call of [...graph.forward, ...graph.loss, ...graph.backward])
    for (const [name, tensor] of Object.entries(call.operands)) {
      const flows = ['x', 'y', 'dy', 'dx', 'a', 'b', 'qkv', 'dqkv'].includes(name)
      if (half.has(tensor.storage)) assert.ok(flows && tensor.role.startsWith('activation'), `${call.kernel} ${name}`)
    }
  assert.ok(!half.has(graph.output.storage) && !half.has(graph.input.storage))
})

test('a plan in f16 takes little more than half the memory', () => {
  const bytes = (precision: 'f32' | 'f16') =>
    planGraph(buildGraph(gpt({ blocks: 2, heads: 2, channels: 64, context: 32, vocab: 50 })), {
      traits: WITH_HALF,
      limits: LIMITS,
      maxMicroBatch: 8,
      precision,
    }).buffers.reduce((sum, b) => sum + b, 0)
  assert.ok(bytes('f16') < 0.7 * bytes('f32'), `${bytes('f16')} of ${bytes('f32')}`)
})

test('an adapter without f16 refuses such a plan by the name of the feature', () => {
  assert.throws(
    () => planGraph(buildGraph(lenet5()), { traits: PLAIN_TRAITS, limits: LIMITS, maxMicroBatch: 8, precision: 'f16' }),
    (error) => error instanceof GridError && error.code === 'no-f16' && /shader-f16/.test(error.message),
  )
})

test('the scale halves at an overflow down to 1, and doubles after many good steps', () => {
  let scale = FIRST_SCALE
  for (let step = 0; step < 199; step++) scale = afterGood(scale)
  assert.equal(scale.scale, FIRST_SCALE.scale)
  assert.equal(afterGood(scale).scale, 2 * FIRST_SCALE.scale)
  assert.equal(afterOverflow(scale)?.scale, FIRST_SCALE.scale / 2)
  assert.equal(afterOverflow({ scale: 1, goodSteps: 0 }), undefined)
})

/** Answers with `gradient` times the scale; overflows from `limit` on. */
function overflowing(limit: number, gradient: number, lossSum = 3) {
  const graph = buildGraph(lenet5())
  const scales: number[] = []
  const runner: GraphRunner = {
    graph,
    capacity: 64,
    precision: 'f16',
    loadParameters: () => undefined,
    loadFixed: () => undefined,
    destroy: () => undefined,
    async run({ lossScale = NaN, gradientInto }) {
      scales.push(lossScale)
      gradientInto?.fill(lossScale >= limit ? Infinity : gradient * lossScale)
      return [Float32Array.of(lossSum), Float32Array.of(0)]
    },
  }
  return {
    executor: graphExecutor(runner, REFERENCE_ADAPTER),
    scales,
    into: new Float32Array(graph.parameterCount),
    batch: { samples: 1, x: new Float32Array(graph.input.size), y: Int32Array.of(1) },
  }
}

test('a batch that overflows is computed again with half the scale, and the result is divided exactly', async () => {
  const { executor, scales, into, batch } = overflowing(512, Math.fround(0.1))
  await executor.gradient(batch, into)
  assert.deepEqual(scales, [1024, 512, 256])
  assert.ok(into.every((value) => value === Math.fround(0.1)))
  await executor.gradient(batch, into)
  assert.deepEqual(scales, [1024, 512, 256, 256])
})

test('a loss that is not finite is passed on at once', async () => {
  const { executor, scales, into, batch } = overflowing(0, 1, NaN)
  const sums = await executor.gradient(batch, into)
  assert.ok(Number.isNaN(sums.lossSum))
  assert.equal(scales.length, 1)
})
