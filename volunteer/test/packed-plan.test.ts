// Plans of models whose frozen matrices are stored in few bits: as f32 while that fits, packed when it must be, and
// then one matrix at a time as f32. Pure, but for what the plain reference computes.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fixedEntries, gpt, type ModelSpec, parseModelSpec } from '@starling-grid/model'
import { isGridError } from '@starling-grid/protocol'
import { PLAIN_TRAITS, type PackedStorage } from '@starling-grid/shaders'
import { attemptsFor, savingsText } from '../src/graph/attempts.ts'
import { buildGraph, type Graph } from '../src/graph/build.ts'
import { buildDecoder } from '../src/graph/decoder-graph.ts'
import { isMatrix, packFrozen, type Packing } from '../src/graph/packed.ts'
import { type Plan, planBytes, planGraph } from '../src/graph/plan.ts'
import { tensorsOf } from '../src/graph/storages.ts'
import { logitsPieces } from '../src/graph/vocabulary.ts'
import { executorBytes, DEFAULT_LIMITS, SMALLEST_STORAGE } from '../src/own-limits.ts'

const MEBIBYTE = 2 ** 20
const LIMITS = {
  maxStorageBufferBindingSize: 128 * MEBIBYTE,
  maxBufferSize: 256 * MEBIBYTE,
  maxStorageBuffersPerShaderStage: 8,
}

/** Few values beside many parameters: a table of 20 MB whose head is tied to it, and two blocks of 9 MB. */
const SPEC = parseModelSpec({
  input: [8],
  layers: [
    {
      type: 'causal_lm',
      config: {
        model_type: 'llama',
        vocab_size: 20_000,
        hidden_size: 256,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        intermediate_size: 2560,
        tie_word_embeddings: true,
      },
      lora: { rank: 2 },
    },
  ],
  ignore_index: -100,
})
const GRAPH = buildGraph(SPEC)

function planned(
  options: { maxBytes?: number; packing?: Packing; maxMicroBatch?: number },
  graph: Graph = GRAPH,
): Plan {
  return planGraph(graph, { traits: PLAIN_TRAITS, limits: LIMITS, maxMicroBatch: 2, ...options })
}

const plain = planned({})
const held = (plan: Plan): number => plan.fixed.reduce((sum, bytes) => sum + bytes, 0)

for (const [storage, part] of [
  ['f16', 1 / 2],
  ['int8', (1 + 4 / 32) / 4],
  ['int4', (1 / 2 + 4 / 32) / 4],
] as const)
  test(`matrices in ${storage} take ${part} of what they take as f32, and one at a time is f32`, () => {
    const packed = planned({ packing: { storage, always: true } })
    assert.ok(Math.abs(held(packed) / held(plain) - part) < 0.01, `${held(packed)} of ${held(plain)}`)
    const largest =
      4 *
      Math.max(
        ...fixedEntries(SPEC)
          .filter(isMatrix)
          .map(({ length }) => length),
      )
    // the largest is unpacked for the last product, when what backward needs is there
    assert.ok(packed.peakLiveBytes <= plain.peakLiveBytes + 1.01 * largest)
    assert.ok(planBytes(planned({ packing: { storage, pieces: true } })) < planBytes(plain))
    for (const passes of Object.values(packed.parts)) assertOneAtATime(packed, passes)
  })

/** What a call unpacks is read by the next call alone. */
function assertOneAtATime({ graph }: Plan, passes: Plan['parts']['forward']): void {
  for (const { origin, pass } of passes) {
    const [part = '', index = '0'] = origin.call.split('.')
    const calls = graph[part as 'forward']
    const [call, before] = [calls[Number(index)], calls[Number(index) - 1]]
    assert.ok(call, pass.entryPoint)
    for (const { role, storage } of tensorsOf(call))
      if (role === 'unpacked' && call.kernel !== 'unpack.forward')
        assert.ok(before?.kernel === 'unpack.forward' && before.operands.y.storage === storage, origin.call)
  }
}

test('matrices are f32 as long as that fits, then packed, then tables are read in pieces, and it is said', () => {
  const packing = { storage: 'int8' } as const
  const free = planned({ packing })
  assert.equal(free.graph.packed, undefined)
  assert.equal(planBytes(free), planBytes(plain))
  assert.equal(savingsText(free, { packing }), undefined)
  const [one, packed] = [planned({ maxMicroBatch: 1 }), planned({ packing: { ...packing, always: true } })]
  const tight = planned({ packing, maxBytes: planBytes(one) - 1 })
  assert.equal(tight.graph.packed, 'int8')
  assert.equal(planBytes(tight), planBytes(packed))
  assert.equal(tight.graph.logits, undefined)
  assert.match(savingsText(tight, { packing }) ?? '', /the base model stays in int8 there/)
  const last = planned({ packing: { ...packing, always: true }, maxMicroBatch: 1 })
  const least = planned({ packing, maxBytes: planBytes(last) - 1 })
  assert.equal(least.graph.packed, 'int8')
  assert.ok(least.graph.logits !== undefined && planBytes(least) < planBytes(last))
  assert.equal(least.recomputed, false)
})

test('what does not fit packed either is refused with what it needs then', () => {
  const packing = { storage: 'int4' } as const
  assert.throws(
    () => planned({ packing, maxBytes: 5e6 }),
    (error) =>
      isGridError(error) && error.code === 'own-limit' && /limit of 5\.0 MB.*needs ([\d.]+) MB/.test(error.message),
  )
})

test('the storage counts where a job is refused before its base is fetched, or once its manifest is here', () => {
  const matrices = fixedEntries(SPEC)
    .filter(isMatrix)
    .reduce((sum, { length }) => sum + length, 0)
  const free = (storage?: 'f16' | 'int8' | 'int4') => {
    let [fits, low] = [DEFAULT_LIMITS.memoryBytes, 0]
    while (fits - low > 1) {
      const middle = Math.floor((fits + low) / 2)
      try {
        executorBytes(SPEC, { ...DEFAULT_LIMITS, memoryBytes: middle }, storage)
        fits = middle
      } catch {
        low = middle
      }
    }
    return fits
  }
  assert.ok(Math.abs(free() - free('f16') - 2 * matrices) < 2)
  assert.ok(Math.abs(free() - free('int8') - (4 - 1 - 4 / 32) * matrices) < 2)
  assert.ok(Math.abs(free() - free('int4') - (4 - 1 / 2 - 4 / 32) * matrices) < 2)
  assert.ok(free(SMALLEST_STORAGE as PackedStorage) <= free('int4'))
})

test('pieces of the classes name what unpacks their weights', () => {
  const { graph, parts } = planned({ packing: { storage: 'int4', pieces: true }, maxMicroBatch: 1 })
  const pieces = logitsPieces(graph)
  assert.ok(pieces.length > 1)
  assert.equal(
    pieces.reduce((sum, { calls }) => sum + calls.size, 0),
    graph.logits?.length,
  )
  const named = new Set(pieces.flatMap(({ calls }) => [...calls]))
  assert.ok(parts.logits.every(({ origin }) => named.has(origin.call)))
})

test('a text is gone on with beside packed matrices, its table in pieces where that is needed', () => {
  const decoder = buildDecoder(SPEC, 8)
  const whole = planned({ packing: { storage: 'int4', always: true }, maxMicroBatch: 1 }, decoder)
  const cut = planned({ packing: { storage: 'int4' }, maxMicroBatch: 1, maxBytes: planBytes(whole) - 1 }, decoder)
  assert.equal(cut.graph.packed, 'int4')
  assert.ok(planBytes(cut) < planBytes(whole))
})

test('a model without frozen matrices is never packed, and is tried in the order of old', () => {
  const spec: ModelSpec = gpt({ blocks: 2, heads: 2, channels: 8, context: 5, vocab: 7 })
  const graph = buildGraph(spec)
  assert.equal(packFrozen(graph, 'int8'), graph)
  const options = { limits: LIMITS, precision: 'f32', recompute: false, maxMicroBatch: 4 } as const
  const attempts = [
    ...attemptsFor(graph, { ...options, maxBytes: Infinity, packing: { storage: 'int8', always: true } }),
  ]
  assert.deepEqual(
    attempts.map(({ capacity, recomputed, graph: { packed } }) => [capacity, recomputed, packed]),
    [false, true].flatMap((recomputed) => [4, 2, 1].map((capacity) => [capacity, recomputed, undefined])),
  )
})
