// Gradients as bodies of pushes: what is written is what is read, and nothing else is taken.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  embeddingTables,
  gradientForm,
  inputTables,
  parameterLayout,
  parseModelSpec,
  readGradient,
  readRowNumbers,
  writeGradient,
  writeRowNumbers,
  writeRows,
} from '@starling-grid/model'

const ROWS = 10
const COLUMNS = 3
const spec = parseModelSpec({
  input: [8],
  layers: [
    { type: 'linear', name: 'before', out: 8 },
    { type: 'linear', name: 'fc', out: 4 },
  ],
})
const text = parseModelSpec({
  input: [8],
  layers: [
    { type: 'embedding', name: 'wte', vocab: ROWS, channels: COLUMNS },
    { type: 'layernorm', name: 'ln' },
    { type: 'linear', name: 'fc', out: ROWS },
  ],
})
const layout = parameterLayout(text)
const [table = assert.fail()] = embeddingTables(text, layout)

/** 1, 2, 3 … with zeros in all rows of the table but these. */
function gradientWith(rows: readonly number[]): Float32Array {
  return Float32Array.from({ length: layout.total }, (_, i) => {
    const row =
      i >= table.offset && i < table.offset + table.length ? Math.floor((i - table.offset) / COLUMNS) : undefined
    return row === undefined || rows.includes(row) ? i + 1 : 0
  })
}

function read(body: Uint8Array, sparse: Parameters<typeof gradientForm>[1]): Float32Array {
  const vector = new Float32Array(layout.total).fill(7)
  readGradient(body, gradientForm(layout, sparse), vector)
  return vector
}

/** Row numbers and rows of the table, everything else 1. */
function bodyWith(rows: readonly number[], values = 1): Uint8Array {
  const { body } = writeGradient(gradientWith([...rows.keys()]), layout, [table])
  const numbers = new Uint32Array(body.buffer)
  const at = layout.entries.filter(({ offset }) => offset < table.offset).reduce((sum, { length }) => sum + length, 0)
  numbers.set(rows, at)
  new Float32Array(body.buffer).fill(values, at + rows.length, at + rows.length + rows.length * COLUMNS)
  return body
}

test('the table of an embedding is found, and a model without one has none', () => {
  assert.equal(table.name, 'wte.weight')
  assert.deepEqual(embeddingTables(spec, parameterLayout(spec)), [])
})

test('a table is pulled by rows only where the input is all that looks at it', () => {
  assert.deepEqual(
    inputTables(text, layout).map(({ name }) => name),
    ['wte.weight'],
  )
  const gpt = (tied: boolean) =>
    parseModelSpec({
      input: [8],
      layers: [{ type: 'gpt', blocks: 1, heads: 2, channels: 4, context: 8, vocab: 12, tied_head: tied }],
    })
  const tablesOf = (tied: boolean) => inputTables(gpt(tied), parameterLayout(gpt(tied))).length
  assert.deepEqual([tablesOf(true), tablesOf(false)], [0, 1])
})

test('rows that are asked for by their numbers come, and all else whole', () => {
  const vector = Float32Array.from({ length: layout.total }, (_, i) => i + 1)
  const rows = new Map([[table.name, [0, 4, 9]]])
  const parts = [{ name: table.name, rows: 3 }]
  const form = gradientForm(layout, parts)
  const asked = readRowNumbers(writeRowNumbers(layout, rows), form)
  assert.deepEqual(
    [...asked].map(([name, numbers]) => [name, [...Array.from(numbers)]]),
    [...rows],
  )
  assert.deepEqual(read(writeRows(vector, layout, asked), parts), gradientWith([0, 4, 9]))
  assert.throws(() => readRowNumbers(new Uint8Array(8), form), { code: 'gradient-shape' })
  assert.throws(() => readRowNumbers(writeRowNumbers(layout, new Map([[table.name, [4, 0, 9]]])), form), {
    code: 'gradient-shape',
  })
  assert.throws(() => readRowNumbers(writeRowNumbers(layout, new Map([[table.name, [0, 4, 10]]])), form), {
    code: 'gradient-shape',
  })
})

test('a gradient that touches few rows is pushed by its rows, and read as the whole', () => {
  for (const rows of [[], [0], [9], [2, 5, 8], [0, 1, 2, 3]]) {
    const gradient = gradientWith(rows)
    const { body, sparse } = writeGradient(gradient, layout, [table])
    assert.deepEqual(sparse, [{ name: 'wte.weight', rows: rows.length }])
    assert.equal(body.byteLength, 4 * (layout.total - (ROWS - rows.length) * COLUMNS + rows.length))
    assert.deepEqual(read(body, sparse), gradient)
  }
})

test('a gradient that touches half of the rows or more is pushed whole', () => {
  for (const rows of [
    [0, 2, 4, 6, 8],
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
  ]) {
    const gradient = gradientWith(rows)
    const { body, sparse } = writeGradient(gradient, layout, [table])
    assert.deepEqual([sparse, body.byteLength], [[], 4 * layout.total])
    assert.deepEqual(read(body, sparse), gradient)
  }
})

test('a body that is not aligned in its memory is read as well', () => {
  const { body, sparse } = writeGradient(gradientWith([1, 3]), layout, [table])
  const shifted = new Uint8Array(body.length + 1)
  shifted.set(body, 1)
  assert.deepEqual(read(shifted.subarray(1), sparse), gradientWith([1, 3]))
})

test('rows that do not ascend, come twice or are out of range are refused', () => {
  const sparse = [{ name: 'wte.weight', rows: 2 }]
  assert.doesNotThrow(() => read(bodyWith([3, 9]), sparse))
  for (const rows of [
    [9, 3],
    [3, 3],
    [3, 10],
    [0, 0xffffffff],
  ])
    assert.throws(() => read(bodyWith(rows), sparse), { code: 'gradient-shape' })
})

test('what is not the form that the header announced is refused', () => {
  const { body } = writeGradient(gradientWith([1, 3]), layout, [table])
  for (const rows of [0, 1, 3])
    assert.throws(() => read(body, [{ name: 'wte.weight', rows }]), { code: 'gradient-shape' })
  assert.throws(() => read(body, []), { code: 'gradient-shape' })
  assert.throws(() => read(body.subarray(4), [{ name: 'wte.weight', rows: 2 }]), { code: 'gradient-shape' })
  assert.throws(() => read(new Uint8Array(0), []), { code: 'gradient-shape' })
})

test('sparse parts must be trained matrices of the model, each named once, with no more rows than it has', () => {
  for (const sparse of [
    [{ name: 'nothing', rows: 1 }],
    [{ name: 'fc.bias', rows: 1 }],
    [{ name: 'wte.weight', rows: ROWS + 1 }],
    [
      { name: 'wte.weight', rows: 1 },
      { name: 'wte.weight', rows: 1 },
    ],
  ])
    assert.throws(() => gradientForm(layout, sparse), { code: 'gradient-shape' })
})

test('NaN and infinity are refused, in dense parts and in rows', () => {
  for (const poison of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
    const gradient = gradientWith([1])
    gradient[layout.total - 1] = poison
    assert.throws(() => read(new Uint8Array(gradient.buffer), []), { code: 'gradient-not-finite' })
    assert.throws(() => read(bodyWith([3, 4], poison), [{ name: 'wte.weight', rows: 2 }]), {
      code: 'gradient-not-finite',
    })
  }
})
