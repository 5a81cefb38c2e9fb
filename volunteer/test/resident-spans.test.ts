// How the flat vectors are cut for an optimizer's kernels: no chunk is in two parameters, no span beyond a binding.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mlp, parameterLayout, parseModelSpec } from '@starling-grid/model'
import { CHUNK, CHUNK_ELEMENTS, CHUNK_WORDS } from '@starling-grid/shaders'
import { residentSpans } from '../src/gpu/resident-spans.ts'
import { flatViews } from '../src/graph/flat-views.ts'

const UNBOUNDED = { maxStorageBufferBindingSize: 2 ** 30 }
const SGD = { type: 'sgd', lr: 1 } as const

function chunks(table: Uint32Array): number[][] {
  return Array.from({ length: table.length / CHUNK_WORDS }, (_, i) => [
    ...table.subarray(CHUNK_WORDS * i, CHUNK_WORDS * (i + 1)),
  ])
}

test('every element of every parameter is in one chunk, which begins at a quad and belongs to one parameter', () => {
  const { entries, total } = parameterLayout(mlp({ input: [70], hidden: [67, 5], classes: 3 }))
  const flat = flatViews(entries)
  const [span, ...others] = residentSpans(flat, entries, SGD, UNBOUNDED)
  assert.ok(span)
  assert.equal(others.length, 0)
  const found = chunks(span.table)
  assert.equal(found.length, span.chunks)
  const seen = found.flatMap(([quad = 0, length = 0]) => Array.from({ length }, (_, i) => span.start + 4 * quad + i))
  const held = [...flat.views.values()].flatMap(({ deviceOffset, length }) =>
    Array.from({ length }, (_, i) => deviceOffset + i),
  )
  assert.deepEqual(seen, held)
  assert.equal(seen.length, total)
  assert.ok(found.every(([, length = 0]) => length <= CHUNK_ELEMENTS))
  assert.equal(found.filter(([, length]) => length === CHUNK_ELEMENTS).length, 1, '70 · 67 elements are two chunks')
})

test('a binding that is too small for all has some of the parameters, at an offset that can be bound', () => {
  const { entries } = parameterLayout(mlp({ input: [70], hidden: [67, 5], classes: 3 }))
  const flat = flatViews(entries, { maxLength: 6000 })
  const spans = residentSpans(flat, entries, SGD, { maxStorageBufferBindingSize: 4 * 4704 })
  assert.deepEqual(
    spans.map(({ segment, start }) => [segment, start]),
    [
      [0, 0],
      [0, 4736],
    ],
  )
  assert.ok(spans.every(({ start, elements }) => start % 64 === 0 && elements <= 4704))
  const segmented = residentSpans(flatViews(entries, { maxLength: 4800 }), entries, SGD, UNBOUNDED)
  assert.deepEqual(
    segmented.map(({ segment }) => segment),
    [0, 1],
  )
})

test('decay of matrices leaves vectors out, and statistics bring their share along', () => {
  const layers = [
    { type: 'conv2d', name: 'a', out: 2, kernel: 1 },
    { type: 'batchnorm2d', name: 'b', momentum: 0.25 },
    { type: 'flatten' },
    { type: 'linear', name: 'c', out: 2 },
  ]
  const { entries } = parameterLayout(parseModelSpec({ input: [1, 2, 2], layers }))
  const [span] = residentSpans(flatViews(entries), entries, { ...SGD, decay: 'matrices' }, UNBOUNDED)
  assert.ok(span)
  const kinds = { trained: CHUNK.decayed, undecayed: CHUNK.undecayed, statistic: CHUNK.statistic }
  assert.deepEqual(
    chunks(span.table).map(([, , kind]) => kind),
    entries.map(({ kind }) => kinds[kind]),
  )
  const shares = chunks(span.table).flatMap(([, , kind, bits = 0]) =>
    kind === CHUNK.statistic ? [new Float32Array(Uint32Array.of(bits).buffer)[0]] : [],
  )
  assert.deepEqual(
    shares,
    entries.flatMap(({ kind, momentum }) => (kind === 'statistic' ? [momentum] : [])),
  )
  const [all] = residentSpans(flatViews(entries), entries, SGD, UNBOUNDED)
  assert.ok(all && chunks(all.table).every(([, , kind]) => kind !== CHUNK.undecayed))
})
