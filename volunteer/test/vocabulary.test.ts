// Plans of models with large vocabularies: what is cut, into what, and what it takes. Pure: nothing is computed but by
// the plain reference.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gpt, initialParameters, parameterCount } from '@starling-grid/model'
import { type AdapterTraits, PLAIN_TRAITS } from '@starling-grid/shaders'
import { buildGraph, planGraph, ReferenceRunner } from '@starling-grid/volunteer'
import { expectClose } from '@starling-grid/volunteer/testing'
import { ringLengths } from '../src/gpu/readback.ts'
import { stagingBytes, uploadBytes } from '../src/gpu/runner.ts'
import { sectionsOf, STAGING_BYTES } from '../src/gpu/sections.ts'
import { clearedRanges } from '../src/graph/begin-gradients.ts'
import { buildDecoder } from '../src/graph/decoder-graph.ts'
import type { DraftPass } from '../src/graph/drafts.ts'
import { devicePieces, flatViews, segmentPieces, viewRuns } from '../src/graph/flat-views.ts'
import { type AdapterLimits, MAX_WORK, planBytes, type Plan } from '../src/graph/plan.ts'
import { cutVocabulary } from '../src/graph/vocabulary.ts'

const MEBIBYTE = 2 ** 20
/** WebGPU's, which every adapter has. */
const DEFAULTS: AdapterLimits = {
  maxStorageBufferBindingSize: 128 * MEBIBYTE,
  maxBufferSize: 256 * MEBIBYTE,
  maxStorageBuffersPerShaderStage: 8,
}
const GPT2 = gpt({ blocks: 12, heads: 12, channels: 768, context: 1024, vocab: 50_257 })
const SMALL = gpt({ blocks: 1, heads: 2, channels: 20, context: 6, vocab: 301 })

function planned(traits: Partial<AdapterTraits>, limits = DEFAULTS): Plan {
  return planGraph(buildGraph(GPT2), { traits: { ...PLAIN_TRAITS, ...traits }, limits, maxMicroBatch: 1 })
}

for (const software of [false, true])
  test(`GPT-2 124M at 1 × 1024 has a plan of 3 GB ${software ? 'on a software adapter' : 'on a GPU'}`, () => {
    assert.equal(parameterCount(GPT2), 124_439_808)
    const plan = planned({ software })
    const bytes = planBytes(plan) + stagingBytes(plan) + uploadBytes(plan, software)
    assert.ok(bytes <= 3e9, `${(bytes / 1e9).toFixed(2)} GB`)
    assert.equal(plan.recomputed, false)
    const passes = Object.values(plan.parts).flat()
    const bound = passes.flatMap(({ resources }) => resources)
    assert.ok(bound.every((resource) => resource.bytes <= DEFAULTS.maxStorageBufferBindingSize))
    const { segments } = plan.flat
    assert.ok(segments.length > 1)
    const lengths = [...plan.buffers, ...segments.map(({ start, end }) => 4 * (end - start))]
    assert.ok(lengths.every((length) => length <= DEFAULTS.maxBufferSize))
    for (const { kind, byteOffset, bytes: size } of bound)
      if (kind === 'parameters' || kind === 'gradient')
        assert.equal(segmentPieces(plan.flat, { start: byteOffset / 4, end: (byteOffset + size) / 4 }).length, 1)
    assert.ok(passes.every(({ work }) => work <= MAX_WORK))
  })

test('the logits of all classes are never in memory: no value is a tenth as large', () => {
  const logits = 4 * 1024 * 50_257
  const plan = planned(
    { software: false },
    { ...DEFAULTS, maxStorageBufferBindingSize: 2 ** 30, maxBufferSize: 2 ** 30 },
  )
  const written = plan.parts.loss.flatMap(({ resources }) => resources.filter(({ kind }) => kind === 'pooled'))
  assert.ok(written.length > 0 && written.every(({ bytes }) => bytes < logits / 10))
})

test('a large gradient comes through staging buffers of bounded size, each but once', () => {
  const plan = planned({ software: false })
  assert.ok(stagingBytes(plan) < 1.05 * 4 * plan.flat.deviceLength)
  assert.ok(STAGING_BYTES <= DEFAULTS.maxBufferSize)
  const total = parameterCount(GPT2)
  const sections = sectionsOf(plan, {
    samples: 1,
    parts: ['forward', 'loss', 'backward'],
    gradientInto: { length: total },
  })
  const longest = Math.max(...[...plan.flat.views.values()].map(({ length }) => 4 * length))
  assert.ok(sections.every(({ bytes }) => bytes <= Math.max(STAGING_BYTES, longest)))
  const edges = sections.flatMap(({ gradient }) => (gradient ? [gradient.start, gradient.end] : []))
  assert.deepEqual([edges[0], edges.at(-1)], [0, total])
  assert.deepEqual(
    edges.slice(1, -1).filter((_, i) => i % 2 === 0),
    edges.slice(2).filter((_, i) => i % 2 === 0),
  )
  const { backward, forward, loss } = plan.parts
  assert.equal(sections.flatMap(({ passes }) => passes).length, forward.length + loss.length + backward.length)
  assert.deepEqual(
    sections.flatMap(({ final }) => final ?? []),
    [0],
  )
  assert.equal(sections.at(-1)?.final, 0)
})

test('small results have three staging buffers, parts of a gradient as many as come at a time, up to three', () => {
  const [small, part] = [1000, STAGING_BYTES]
  assert.deepEqual(
    [...ringLengths([small, part])],
    [
      [small, 3],
      [part, 1],
    ],
  )
  assert.deepEqual(
    [...ringLengths([part, part, part - 4])],
    [
      [part, 2],
      [part - 4, 1],
    ],
  )
  assert.deepEqual([...ringLengths(Array.from({ length: 8 }, () => part))], [[part, 3]])
})

test('a model that fits is not cut', () => {
  const graph = buildGraph(SMALL)
  assert.equal(cutVocabulary(graph, { maxBindingBytes: 128 * MEBIBYTE, capacity: 64 }), graph)
})

test('the reference gives the same in pieces of 64 classes and in one', async () => {
  const whole = buildGraph(SMALL)
  const cut = cutVocabulary(whole, { maxBindingBytes: 8192, capacity: 2 })
  assert.equal(cut.logits?.length, 5)
  assert.equal(cut.chunks?.get(0), 64 * 20)
  const tables = cut.forward.filter(({ kernel }) => kernel === 'embedding.forward')
  assert.equal(tables.length, 5)
  const found = []
  for (const graph of [whole, cut]) {
    const runner = new ReferenceRunner(graph, 2)
    runner.loadParameters(initialParameters(SMALL, 1).map((value) => 5 * value))
    const { lossTensors, input } = graph
    assert.ok(lossTensors)
    const ids = (step: number) => Int32Array.from({ length: 12 }, (_, i) => (i * step) % 301)
    const gradient = new Float32Array(parameterCount(SMALL))
    const [loss, correct] = await runner.run({
      samples: 2,
      write: [
        [input, ids(97)],
        [lossTensors.target, ids(53)],
      ],
      parts: ['forward', 'loss', 'backward'],
      read: [lossTensors.loss, lossTensors.correct],
      clearGradient: true,
      gradientInto: gradient,
    })
    assert.ok(loss && correct)
    found.push({ loss, correct, gradient })
  }
  const [one, other] = found
  assert.ok(one && other)
  expectClose(other.loss, one.loss, 1e-5, 'loss')
  expectClose(other.gradient, one.gradient, 1e-5, 'gradient')
  assert.deepEqual(other.correct, one.correct)
})

test('a decoder with a table above a binding reads it in chunks, and gives the same logits', async () => {
  const whole = buildDecoder(SMALL, 6)
  const cut = cutVocabulary(whole, { maxBindingBytes: 8192, capacity: 1 })
  assert.equal(cut.forward.filter(({ kernel }) => kernel === 'concat.forward').length, 5)
  const logits = []
  for (const graph of [whole, cut]) {
    const runner = new ReferenceRunner(graph, 1)
    runner.loadParameters(initialParameters(SMALL, 1).map((value) => 5 * value))
    const write = [
      [graph.input, Int32Array.of(300)],
      [whole.places, Int32Array.of(0)],
    ] as const
    const [values] = await runner.run({ samples: 1, write, parts: ['evaluation'], read: [graph.output] })
    assert.ok(values)
    logits.push(values)
  }
  assert.deepEqual(logits[1], logits[0])
})

test('views fill segments in order, and none lies in two', () => {
  const entry = { shape: [1], kind: 'trained', initial: { distribution: 'zeros' } } as const
  const entries = [500, 300, 700, 40].map((length, i, all) => ({
    ...entry,
    name: String(i),
    length,
    offset: all.slice(0, i).reduce((sum, before) => sum + before, 0),
  }))
  const flat = flatViews(entries as never, { maxLength: 900, chunks: new Map([[800, 320]]) })
  const lengths = [...flat.views.values()].map(({ length }) => length)
  assert.deepEqual(lengths, [500, 300, 320, 320, 60, 40])
  assert.ok(flat.segments.every(({ start, end }) => end - start <= 900))
  for (const { deviceOffset, length } of flat.views.values())
    assert.equal(segmentPieces(flat, { start: deviceOffset, end: deviceOffset + length }).length, 1)
  assert.equal(flat.segments.at(-1)?.end, flat.deviceLength)
})

test('runs of whole parameters are bounded, and a run of the layout is found where it lies on the device', () => {
  const lengths = [10, 20, 30, 40, 90]
  const entries = lengths.map((length, i) => ({
    name: `p${i}`,
    length,
    offset: lengths.slice(0, i).reduce((sum, before) => sum + before, 0),
  }))
  const flat = flatViews(entries as never)
  assert.deepEqual(viewRuns(flat, { start: 0, end: 190 }, 50), [
    { start: 0, end: 30 },
    { start: 30, end: 60 },
    { start: 60, end: 100 },
    { start: 100, end: 190 },
  ])
  assert.deepEqual(viewRuns(flat, { start: 10, end: 100 }, 90), [{ start: 10, end: 100 }])
  const starts = [...flat.views.values()].map(({ deviceOffset }) => deviceOffset)
  assert.deepEqual(devicePieces(flat, { start: 15, end: 65 }), [
    { start: 15, deviceStart: (starts[1] ?? NaN) + 5, length: 15 },
    { start: 30, deviceStart: starts[2], length: 30 },
    { start: 60, deviceStart: starts[3], length: 5 },
  ])
})

test('of a parameter that some pieces write the rest is cleared, before, between and behind them', () => {
  const entries = [{ name: 'table', offset: 0, length: 300 }]
  const flat = flatViews(entries as never)
  const draftOf = (offset: number, size: number): DraftPass =>
    ({
      pass: { bindings: [{ operand: 'dweight', kind: 'matrix', begins: true, access: 'read_write' }] },
      operands: [{ role: 'parameterGradient', offset, size }],
    }) as unknown as DraftPass
  assert.deepEqual(clearedRanges([draftOf(0, 100)], flat), [{ start: 100, end: 300 }])
  assert.deepEqual(clearedRanges([draftOf(200, 50), draftOf(50, 100)], flat), [
    { start: 0, end: 50 },
    { start: 150, end: 200 },
    { start: 250, end: 300 },
  ])
  assert.deepEqual(clearedRanges([draftOf(0, 100), draftOf(100, 200)], flat), [])
})
