// Recomputation: equal bits, less memory, and only what backward needs is computed again.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, initialParameters, parseModelSpec, resnet, type ModelSpec } from '@starling-grid/model'
import { boundBindings, PLAIN_TRAITS } from '@starling-grid/shaders'
import { ReferenceRunner } from '../src/cpu/runner.ts'
import { buildGraph, type Graph } from '../src/graph/build.ts'
import { defaultVariant } from '../src/graph/choice.ts'
import { draftPasses } from '../src/graph/drafts.ts'
import { fuseGraph } from '../src/graph/fuse.ts'
import { type Plan, planGraph, poolBytes } from '../src/graph/plan.ts'
import { recomputeGraph, resultsOf } from '../src/graph/recompute.ts'
import { noise } from '../testing/executor-suite.ts'

const LIMITS = { maxStorageBufferBindingSize: 2 ** 27, maxBufferSize: 2 ** 28, maxStorageBuffersPerShaderStage: 8 }
const SMALL_GPT = gpt({ blocks: 3, heads: 2, channels: 8, context: 5, vocab: 7, dropout: 0.2 })
const SMALL_RESNET = resnet({ depth: 8, channels: 2, classes: 4 })
const SMALL_LLAMA = parseModelSpec({
  input: [5],
  layers: [
    {
      type: 'causal_lm',
      config: {
        model_type: 'llama',
        vocab_size: 7,
        hidden_size: 8,
        num_hidden_layers: 3,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        intermediate_size: 9,
      },
    },
  ],
})
const CONCATENATIONS = parseModelSpec({
  input: [6],
  loss: 'mse',
  layers: [1, 2, 3, 4, 5, 6, 7, 8].flatMap((i) => [
    {
      type: 'parallel',
      branches: [[{ type: 'linear', name: `fc${i}`, out: 6 }], [{ type: 'tanh' }]],
      combine: 'concat',
    },
    { type: 'gelu' },
  ]),
})
const CHAIN = parseModelSpec({
  input: [6],
  loss: 'mse',
  layers: [1, 2, 3, 4, 5, 6, 7, 8].flatMap((i) => [
    { type: 'linear', name: `fc${i}`, out: 6 },
    { type: i % 2 === 0 ? 'gelu' : 'tanh' },
  ]),
})

async function gradientOf(graph: Graph, spec: ModelSpec, samples: number) {
  const runner = new ReferenceRunner(graph, samples)
  runner.loadParameters(initialParameters(spec, 1))
  const { lossTensors, input } = graph
  assert.ok(lossTensors)
  const whole = (count: number) => Int32Array.from({ length: count }, (_, i) => i % 3)
  const x = graph.vocab === undefined ? noise(samples * input.size, 1) : whole(samples * input.size)
  const target =
    spec.loss === 'mse' ? noise(samples * lossTensors.target.size, 2) : whole(samples * lossTensors.target.size)
  const gradient = new Float32Array(graph.parameterCount)
  const keys = graph.keys ? [[graph.keys, whole(samples)] as const] : []
  const [loss] = await runner.run({
    samples,
    parts: ['forward', 'loss', 'backward'],
    write: [[input, x], [lossTensors.target, target], ...keys],
    read: [lossTensors.loss],
    clearGradient: true,
    gradientInto: gradient,
  })
  return { loss, gradient }
}

for (const [name, spec] of [
  ['a GPT with dropout', SMALL_GPT],
  ['a ResNet with batch statistics', SMALL_RESNET],
  ['a llama with rotary positions', SMALL_LLAMA],
  ['concatenations', CONCATENATIONS],
  ['a chain', CHAIN],
] as const)
  test(`${name} has the same bits with recomputation`, async () => {
    const graph = fuseGraph(buildGraph(spec))
    const recomputed = recomputeGraph(graph)
    assert.ok(recomputed.backward.length > graph.backward.length, 'something is computed again')
    assert.deepEqual(await gradientOf(recomputed, spec, 3), await gradientOf(graph, spec, 3))
  })

test('what a call of forward writes is what its kernels write', () => {
  for (const spec of [SMALL_GPT, SMALL_RESNET, SMALL_LLAMA, CONCATENATIONS]) {
    const { forward, ...rest } = buildGraph(spec)
    const graph = { ...rest, forward, evaluation: forward, loss: [], backward: [] }
    const written = forward.map(() => new Set<number>())
    for (const { origin, pass, operands } of draftPasses(graph, defaultVariant(PLAIN_TRAITS), 2))
      for (const [i, { access }] of boundBindings(pass).entries()) {
        const operand = operands[i]
        if (access !== 'read' && typeof operand === 'object')
          written[Number(origin.call.split('.')[1])]?.add(operand.storage)
      }
    assert.deepEqual(
      forward.map((call) => new Set(resultsOf(call))),
      written,
    )
  }
})

test('nothing is computed again that backward does not need, nor twice', () => {
  const graph = fuseGraph(buildGraph(SMALL_GPT))
  const { backward } = recomputeGraph(graph)
  assert.ok(backward.length - graph.backward.length < graph.forward.length)
})

/** What backward computes again, piece by piece as it comes to need it: kernels, or the weights of linear layers. */
function computedAgain(spec: ModelSpec, show: (call: Graph['backward'][number]) => string): string[] {
  const { backward } = recomputeGraph(fuseGraph(buildGraph(spec)))
  const pieces: string[][] = []
  for (const [i, call] of backward.entries()) {
    const isAgain = (at: number): boolean =>
      Object.entries(backward[at]?.operands ?? {}).some(([role, { name }]) => role === 'y' && !name.startsWith('∂'))
    if (!isAgain(i)) continue
    if (i === 0 || !isAgain(i - 1)) pieces.push([])
    pieces.at(-1)?.push(show(call))
  }
  return pieces.map((piece) => piece.join(' '))
}

test('what a segment needs is computed again from where one value crossed, and the last segment is not', () => {
  const weightOf = ({ operands }: Graph['backward'][number]): string =>
    Object.entries(operands).find(([role]) => role === 'weight')?.[1].name ?? 'no weight'
  // What the third and the fifth layer's tanh made crossed.
  assert.deepEqual(computedAgain(CHAIN, weightOf), ['fc4.weight', 'fc1.weight fc2.weight'])
  const kernelOf = ({ kernel }: Graph['backward'][number]): string => kernel.replace('.forward', '')
  assert.deepEqual(computedAgain(SMALL_GPT, kernelOf), [
    'layernorm linear attention',
    'layernorm linear',
    'layernorm linear attention',
    'layernorm linear attention linear dropout layernorm linear',
  ])
})

for (const [name, spec, samples] of [
  ['ResNet-20', resnet(), 64],
  ['a GPT of 6 blocks', gpt({ blocks: 6, heads: 4, channels: 128, context: 64, vocab: 65 }), 8],
] as const)
  test(`${name} takes at most two thirds of the memory with recomputation`, () => {
    const bytes = (recompute: boolean) =>
      planGraph(buildGraph(spec), {
        traits: PLAIN_TRAITS,
        limits: LIMITS,
        maxMicroBatch: samples,
        recompute,
      }).buffers.reduce((sum, size) => sum + size, 0)
    assert.ok(bytes(true) <= (2 / 3) * bytes(false), `${bytes(true)} of ${bytes(false)}`)
  })

const deviceBytes = (plan: Plan): number => poolBytes(plan) + 8 * plan.flat.deviceLength

function planOf(spec: ModelSpec, options: { maxMicroBatch: number; maxBytes?: number; recompute?: boolean }): Plan {
  return planGraph(buildGraph(spec), { traits: PLAIN_TRAITS, limits: LIMITS, ...options })
}

test('a model of which one sample exceeds the memory limit is recomputed in backward, not refused', () => {
  const deep = gpt({ blocks: 6, heads: 4, channels: 128, context: 64, vocab: 65 })
  const one = deviceBytes(planOf(deep, { maxMicroBatch: 1 }))
  const roomy = planOf(deep, { maxMicroBatch: 8, maxBytes: one })
  assert.deepEqual([roomy.recomputed, roomy.capacity], [false, 1], 'smaller batches come first: they cost less time')
  const tight = planOf(deep, { maxMicroBatch: 8, maxBytes: one - 1 })
  assert.ok(tight.recomputed)
  assert.ok(deviceBytes(tight) < one)
  assert.ok(tight.capacity >= 1)
})

test('a model that normalises over its block keeps the whole block, and computes again before the block is cut', () => {
  const whole = planOf(resnet(), { maxMicroBatch: 64 })
  const tight = planOf(resnet(), { maxMicroBatch: 64, maxBytes: deviceBytes(whole) - 1 })
  assert.deepEqual([whole.recomputed, whole.capacity], [false, 64])
  assert.deepEqual([tight.recomputed, tight.capacity], [true, 64])
})

test('a graph in which nothing can be computed again is planned as it is, and refused by name', () => {
  const flat = parseModelSpec({ input: [6], loss: 'mse', layers: [{ type: 'linear', name: 'one', out: 6 }] })
  assert.equal(planOf(flat, { maxMicroBatch: 4, recompute: true }).recomputed, false)
  assert.throws(() => planOf(flat, { maxMicroBatch: 4, maxBytes: 16 }), /raise --max-memory/)
})
