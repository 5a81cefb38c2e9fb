// Differences of rounds and versions in fewer bytes.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  decodeVector,
  encodedVectorBytes,
  encodeVector,
  gradientForm,
  parameterLayout,
  parseModelSpec,
  readGradient,
} from '@starling-grid/model'

/** More than one run, and the last not whole. */
const LENGTH = 150_001
const values = Float32Array.from({ length: LENGTH }, (_, i) => Math.sin(i) * (i % 1000))

for (const [encoding, error, ratio] of [
  ['f16', 1 / 1024, 0.51],
  ['int8', 0.5 / 127, 0.26],
] as const)
  test(`${encoding} keeps numbers up to its precision, in ${ratio} of the bytes`, () => {
    const lost = new Float32Array(LENGTH)
    const bytes = encodeVector(values, encoding, lost)
    assert.equal(bytes.byteLength, encodedVectorBytes(LENGTH, encoding))
    assert.ok(bytes.byteLength < ratio * 4 * LENGTH)
    const seen = new Float32Array(LENGTH)
    decodeVector(bytes, encoding, seen)
    for (let i = 0; i < LENGTH; i++) {
      assert.ok(Math.abs((values[i] ?? 0) - (seen[i] ?? 0)) <= 1000 * error)
      assert.equal(lost[i], Math.fround((values[i] ?? 0) - (seen[i] ?? 0)))
    }
  })

const layout = parameterLayout(parseModelSpec({ input: [3], layers: [{ type: 'linear', name: 'fc', out: 5 }] }))

test('an encoded push is read as the numbers that it stands for', () => {
  const pushed = Float32Array.from({ length: layout.total }, (_, i) => i - 7)
  const vector = new Float32Array(layout.total)
  readGradient(encodeVector(pushed, 'int8'), gradientForm(layout, [], 'int8')).writeTo(vector)
  for (const [i, value] of pushed.entries()) assert.ok(Math.abs(value - (vector[i] ?? 0)) <= 12 / 254)
})

test('an encoded push of another length, of no numbers, or of some rows is refused', () => {
  const form = gradientForm(layout, [], 'int8')
  assert.throws(() => readGradient(new Uint8Array(form.bytes - 1), form), { code: 'gradient-shape' })
  const nan = encodeVector(new Float32Array(layout.total).fill(Number.NaN), 'int8')
  assert.throws(() => readGradient(nan, form), { code: 'gradient-not-finite' })
  assert.throws(() => gradientForm(layout, [{ name: 'fc.weight', rows: 1 }], 'int8'), { code: 'gradient-shape' })
})
