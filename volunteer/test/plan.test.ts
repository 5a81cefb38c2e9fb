import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, lenet5, mlp, parameterCount, resnet } from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { boundBindings, PLAIN_TRAITS } from '@starling-grid/shaders'
import { microBatches } from '../src/graph/batches.ts'
import { beginGradients } from '../src/graph/begin-gradients.ts'
import { buildGraph } from '../src/graph/build.ts'
import { defaultVariant } from '../src/graph/choice.ts'
import { draftPasses, shareScratch, type DraftPass } from '../src/graph/drafts.ts'
import { flatViews, gather } from '../src/graph/flat-views.ts'
import { assignBuffers, peakLiveBytes } from '../src/graph/memory.ts'
import { planGraph, poolBytes } from '../src/graph/plan.ts'

const LIMITS = { maxStorageBufferBindingSize: 2 ** 27, maxBufferSize: 2 ** 28, maxStorageBuffersPerShaderStage: 8 }
const MIB = 2 ** 20

test('values that live at the same time never share a buffer, others do', () => {
  const lives = [
    { bytes: 100, first: 0, last: 2 },
    { bytes: 50, first: 2, last: 3 },
    { bytes: 60, first: 3, last: 5 },
    { bytes: 10, first: 6, last: Infinity },
  ]
  const { buffers, places } = assignBuffers(lives)
  const end = (i: number) => (places[i]?.byteOffset ?? NaN) + (lives[i]?.bytes ?? NaN)
  for (const [i, a] of lives.entries())
    for (const [j, b] of lives.entries())
      if (i < j && a.first <= b.last && b.first <= a.last && places[i]?.buffer === places[j]?.buffer)
        assert.ok(
          end(i) <= (places[j]?.byteOffset ?? NaN) || end(j) <= (places[i]?.byteOffset ?? NaN),
          `${i} and ${j} overlap`,
        )
  places.forEach(({ buffer, byteOffset }, i) => assert.ok((buffers[buffer] ?? 0) >= end(i) && byteOffset % 256 === 0))
  assert.ok(sum(buffers) < sum(lives.map(({ bytes }) => bytes)))
})

test('no pass binds a buffer for reading and for writing, nor one place twice', () => {
  const { parts } = planGraph(buildGraph(lenet5()), { traits: PLAIN_TRAITS, limits: LIMITS, maxMicroBatch: 64 })
  for (const { pass, resources } of Object.values(parts).flat()) {
    const bound = boundBindings(pass).flatMap(({ access }, i) => {
      const resource = resources[i]
      return resource?.kind === 'pooled' ? [{ ...resource, reads: access === 'read' }] : []
    })
    for (const [i, a] of bound.entries())
      for (const b of bound.slice(i + 1)) {
        if (a.buffer !== b.buffer) continue
        assert.equal(a.reads, b.reads, `${pass.file}.${pass.entryPoint}`)
        assert.ok(a.byteOffset + a.bytes <= b.byteOffset || b.byteOffset + b.bytes <= a.byteOffset)
      }
  }
})

const ADAPTERS = {
  SwiftShader: { ...PLAIN_TRAITS, subgroupSize: 4 },
  lavapipe: { ...PLAIN_TRAITS, subgroupSize: 8 },
  'a GPU': { ...PLAIN_TRAITS, software: false, subgroupSize: 32 },
}
for (const [name, spec, samples] of [
  ['LeNet-5', lenet5(), 64],
  ['ResNet-20', resnet(), 64],
  ['a GPT', gpt({ blocks: 2, heads: 4, channels: 128, context: 64, vocab: 65 }), 8],
] as const) {
  test(`memory is shared: ${name} takes at most a quarter more than what lives at one time`, () => {
    const { buffers, peakLiveBytes, leastTensorBytes } = planGraph(buildGraph(spec), {
      traits: PLAIN_TRAITS,
      limits: LIMITS,
      maxMicroBatch: samples,
    })
    assert.ok(leastTensorBytes > 0 && leastTensorBytes <= peakLiveBytes)
    assert.ok(
      sum(buffers) >= peakLiveBytes && sum(buffers) <= 1.25 * peakLiveBytes,
      `${sum(buffers)} for ${peakLiveBytes}`,
    )
  })
  for (const [adapter, traits] of Object.entries(ADAPTERS))
    test(`${name} on ${adapter} takes at most a quarter more memory than its live tensors`, () => {
      const { buffers, peakLiveBytes, leastTensorBytes } = planGraph(buildGraph(spec), {
        traits,
        limits: LIMITS,
        maxMicroBatch: samples,
      })
      assert.ok(
        sum(buffers) >= peakLiveBytes && sum(buffers) <= 1.25 * leastTensorBytes,
        `${sum(buffers)} for ${leastTensorBytes}`,
      )
    })
}

test('every value of a plan lies where WebGPU can bind a buffer, whatever its size', () => {
  const { parts, buffers } = planGraph(buildGraph(lenet5()), { traits: PLAIN_TRAITS, limits: LIMITS, maxMicroBatch: 5 })
  const pooled = Object.values(parts)
    .flat()
    .flatMap(({ resources }) => resources.filter(({ kind }) => kind === 'pooled'))
  assert.ok(
    pooled.some(({ bytes }) => bytes % 256 !== 0) &&
      pooled.some(({ byteOffset }) => byteOffset > 0) &&
      buffers.length > 0,
  )
  for (const { byteOffset } of pooled) assert.equal(byteOffset % 256, 0)
})

test('the least memory is the most that lives at one time', () => {
  assert.equal(
    peakLiveBytes([
      { bytes: 5, first: -1, last: 2 },
      { bytes: 7, first: 2, last: 3 },
      { bytes: 6, first: 3, last: Infinity },
    ]),
    13,
  )
})

test('backward finds the input of a convolution as forward prepared it', () => {
  const graph = buildGraph(lenet5())
  const drafts = draftPasses(graph, defaultVariant(PLAIN_TRAITS), 64)
  const shared = shareScratch(drafts)
  const prepared = (passes: readonly DraftPass[]) => passes.filter(({ pass }) => pass.entryPoint === 'spread').length
  assert.equal(prepared(drafts), 4)
  assert.equal(prepared(shared), 2)
  const written = new Set(
    shared.flatMap(({ pass, operands }) => operands.filter((_, i) => pass.bindings[i]?.access !== 'read')),
  )
  for (const { operands } of shared)
    for (const operand of operands) if (typeof operand === 'string') assert.ok(written.has(operand), operand)
})

test('a small adapter gets smaller micro-batches', () => {
  const limits = { ...LIMITS, maxStorageBufferBindingSize: MIB }
  const { capacity, parts } = planGraph(buildGraph(lenet5()), { traits: PLAIN_TRAITS, limits, maxMicroBatch: 64 })
  assert.ok(capacity >= 1 && capacity < 64)
  for (const { resources } of Object.values(parts).flat()) for (const { bytes } of resources) assert.ok(bytes <= MIB)
})

test('a model that fits no adapter is refused with the name of the limit', () => {
  const wide = mlp({ input: [4096], hidden: [4096], classes: 10 })
  const limits = { ...LIMITS, maxStorageBufferBindingSize: 2 ** 24 }
  assert.throws(
    () => planGraph(buildGraph(wide), { traits: PLAIN_TRAITS, limits, maxMicroBatch: 8 }),
    (error) =>
      error instanceof GridError &&
      error.code === 'adapter-limit' &&
      /maxStorageBufferBindingSize of at least \d+.* 16777216/.test(error.message),
  )
})

test('flat vectors survive the way to the device and back', () => {
  const { parameters } = buildGraph(lenet5())
  const views = flatViews(parameters)
  const flat = Float32Array.from({ length: parameterCount(lenet5()) }, (_, i) => i)
  const device = new Float32Array(views.deviceLength)
  for (const { offset, length, deviceOffset } of views.views.values())
    device.set(flat.subarray(offset, offset + length), deviceOffset)
  const back = new Float32Array(flat.length)
  gather(views, { start: 0, end: back.length }, device, back)
  assert.deepEqual(back, flat)
  for (const { deviceOffset } of views.views.values()) assert.equal((deviceOffset * 4) % 256, 0)
})

test('the first kernel that comes to a large gradient writes it, and only the rest is cleared', () => {
  const wide = mlp({ input: [300], hidden: [300, 300, 8], classes: 10 })
  const { parts, cleared, flat } = planGraph(buildGraph(wide), {
    traits: PLAIN_TRAITS,
    limits: LIMITS,
    maxMicroBatch: 8,
  })
  const [w1, b1, w2, b2] = [...flat.views.values()]
  assert.ok(w1 && b1 && w2 && b2)
  const last = [...flat.views.values()].at(-1)
  assert.deepEqual(cleared, [
    { start: b1.deviceOffset, end: b1.deviceOffset + b1.length },
    { start: b2.deviceOffset, end: (last?.deviceOffset ?? 0) + (last?.length ?? 0) },
  ])
  const begun = parts.backward.filter(({ pass }) =>
    pass.bindings.some((binding) => binding.kind === 'matrix' && binding.begins),
  )
  assert.equal(begun.length, 2)
})

test('of two kernels that come to a shared weight only the first may write it', () => {
  const tied = gpt({ blocks: 1, heads: 2, channels: 128, context: 8, vocab: 516 })
  const { parts, cleared, flat } = planGraph(buildGraph(tied), {
    traits: PLAIN_TRAITS,
    limits: LIMITS,
    maxMicroBatch: 2,
  })
  const embedding = [...flat.views.values()].find(({ length }) => length === 516 * 128)
  assert.ok(embedding)
  const comers = parts.backward.filter(({ resources }) =>
    resources.some(({ kind, byteOffset }) => kind === 'gradient' && byteOffset === 4 * embedding.deviceOffset),
  )
  assert.deepEqual(
    comers.map(({ pass }) => pass.bindings.some((binding) => binding.kind === 'matrix' && binding.begins)),
    [true, false],
  )
  assert.ok(
    cleared.every(
      ({ start, end }) => end <= embedding.deviceOffset || start >= embedding.deviceOffset + embedding.length,
    ),
  )
})

test('of two kernels that could both begin a gradient only the first does', () => {
  const drafts = draftPasses(
    buildGraph(mlp({ input: [300], hidden: [300], classes: 10 })),
    defaultVariant(PLAIN_TRAITS),
    8,
  )
  const begins = (draft: DraftPass): boolean =>
    draft.pass.bindings.some((binding) => binding.kind === 'matrix' && binding.begins === true)
  const twice = beginGradients([...drafts, ...drafts])
  assert.equal(twice.slice(0, drafts.length).filter(begins).length, 1)
  assert.equal(twice.slice(drafts.length).filter(begins).length, 0)
})

test('a plan keeps to its memory budget by taking fewer samples at a time', () => {
  const limits = { ...LIMITS, maxStorageBufferBindingSize: 2 ** 31, maxBufferSize: 2 ** 31 }
  const large = planGraph(buildGraph(resnet()), { traits: PLAIN_TRAITS, limits, maxMicroBatch: 1024 })
  assert.ok(large.capacity < 1024 && large.capacity > 1, `${large.capacity} samples`)
  assert.ok(poolBytes(large) <= 512 * MIB, `${poolBytes(large)} bytes`)
})

test('micro-batches cover the batch in order and are even', () => {
  assert.deepEqual(microBatches(65, 64), [
    { start: 0, count: 32 },
    { start: 32, count: 33 },
  ])
  assert.deepEqual(microBatches(64, 64), [{ start: 0, count: 64 }])
  assert.deepEqual(microBatches(0, 64), [])
})

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
