// Differences of rounds and versions in fewer bytes.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  completed,
  decodeVector,
  encodedParts,
  encodedVectorBytes,
  encodeVector,
  gradientForm,
  MAX_PART_NUMBERS,
  parameterLayout,
  parseModelSpec,
  readPush,
  writingRuns,
} from '@starling-grid/model'
import { isGridError, random32 } from '@starling-grid/protocol'

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

for (const encoding of ['f16', 'int8', 'sparse2'] as const)
  test(`parts of a vector in ${encoding} hold the numbers that were asked for, and are its own bytes`, () => {
    const length = MAX_PART_NUMBERS + LENGTH
    const many = Float32Array.from({ length }, (_, i) => Math.sin(i) * (i % 1000))
    const bytes = encodeVector(many, encoding)
    const whole = new Float32Array(length)
    decodeVector(bytes, encoding, whole)
    for (const [start, end] of [
      [0, length],
      [4096, 8192],
      [65_536, 131_072],
      [61_440, 69_632],
      [MAX_PART_NUMBERS - 4096, length],
      [12_288, 12_288],
    ] as const) {
      const seen = new Float32Array(length)
      for (const part of encodedParts({ bytes, encoding, length }, { start, end })) {
        assert.ok(part.length <= MAX_PART_NUMBERS && part.bytes.buffer === bytes.buffer)
        const numbers = new Float32Array(part.length)
        decodeVector(part.bytes, encoding, numbers)
        seen.set(numbers.subarray(part.skip, part.skip + part.count), part.start)
      }
      assert.deepEqual(
        seen,
        whole.map((value, i) => (start <= i && i < end ? value : 0)),
        `numbers ${start} to ${end}`,
      )
    }
  })

test('sparse2 keeps the largest of each chunk and the sign of each, in a sixtieth of the bytes', () => {
  const lost = new Float32Array(LENGTH)
  const bytes = encodeVector(values, 'sparse2', lost)
  assert.equal(bytes.byteLength, encodedVectorBytes(LENGTH, 'sparse2'))
  assert.ok(60 * bytes.byteLength < 4 * LENGTH)
  const seen = new Float32Array(LENGTH)
  decodeVector(bytes, 'sparse2', seen)
  for (let start = 0; start < LENGTH; start += 4096) {
    const chunk = [...values.subarray(start, start + 4096).keys()].map((i) => start + i)
    const kept = chunk.filter((i) => seen[i] !== 0)
    assert.equal(kept.length, Math.ceil(chunk.length / 16))
    const sizeOf = (i: number): number => Math.abs(values[i] ?? 0)
    const largest = Math.max(...chunk.filter((i) => seen[i] === 0).map(sizeOf))
    for (const i of kept) {
      assert.ok(sizeOf(i) >= largest, `number ${i} is not among the largest of its chunk`)
      assert.equal(Math.sign(seen[i] ?? 0), Math.sign(values[i] ?? 0))
    }
    assert.equal(new Set(kept.map((i) => Math.abs(seen[i] ?? 0))).size, 2)
  }
  for (let i = 0; i < LENGTH; i++) assert.equal(lost[i], Math.fround((values[i] ?? 0) - (seen[i] ?? 0)))
})

test('sparse2 adds nothing to numbers that are zero, and hides no NaN and no infinity', () => {
  for (const length of [1, 2, 15, 16, 17, 100, 4095, 4097]) {
    const few = new Float32Array(length)
    few[length - 1] = -3
    const seen = new Float32Array(length).fill(9)
    decodeVector(encodeVector(few, 'sparse2'), 'sparse2', seen)
    assert.deepEqual(
      seen.map((value) => value + 0),
      few,
      `${length} numbers`,
    )
    for (const bad of [Number.NaN, Number.NEGATIVE_INFINITY]) {
      few[0] = bad
      decodeVector(encodeVector(few, 'sparse2'), 'sparse2', seen)
      assert.ok(Number.isNaN(seen[0]), `${bad} among ${length} numbers became ${seen[0]}`)
    }
  }
})

test('every encoding in sparse2 of random bytes is the one that its numbers have, or is refused', () => {
  const random = random32(1)
  const good = encodeVector(values.subarray(0, 300), 'sparse2')
  let refused = 0
  for (let round = 0; round < 2000; round++) {
    const bytes = good.slice()
    const at = 8 + (random() % (bytes.length - 8))
    bytes[at] = (bytes[at] ?? 0) ^ (1 << (random() % 8))
    const seen = new Float32Array(300)
    try {
      decodeVector(bytes, 'sparse2', seen)
    } catch (error) {
      assert.ok(isGridError(error) && error.code === 'message-malformed')
      refused++
      continue
    }
    assert.equal(seen.filter((value) => value !== 0).length, 19)
  }
  assert.ok(refused > 1000, `${refused} of 2000 were refused`)
})

test('a sparse2 chunk of one place with none or with two is refused', () => {
  // two magnitudes, three low bits, then the place in unary: one of two bits is set
  const bytes = encodeVector(values.subarray(20, 30), 'sparse2')
  const unary = 0b0001_1000
  for (const bits of [0, unary]) {
    const other = bytes.slice()
    other[8] = ((other[8] ?? 0) & ~unary) | bits
    assert.throws(() => decodeVector(other, 'sparse2', new Float32Array(10)), {
      code: 'message-malformed',
      message: `expected 1 places of a chunk, got ${bits === 0 ? 0 : 2}`,
    })
  }
})

test('bits behind the last code of a sparse2 chunk are zeros, or it is refused', () => {
  const bytes = encodeVector(values.subarray(0, 300), 'sparse2')
  const last = bytes.length - 1
  assert.ok((bytes[last] ?? 0) < 0x80, 'this chunk has such bits')
  bytes[last] = (bytes[last] ?? 0) | 0x80
  assert.throws(() => decodeVector(bytes, 'sparse2', new Float32Array(300)), { code: 'message-malformed' })
})

const layout = parameterLayout(parseModelSpec({ input: [3], layers: [{ type: 'linear', name: 'fc', out: 5 }] }))

test('an encoded push is read as the numbers that it stands for', () => {
  const pushed = Float32Array.from({ length: layout.total }, (_, i) => i - 7)
  const vector = new Float32Array(layout.total)
  const { runs } = readPush(encodeVector(pushed, 'int8'), gradientForm(layout, [], 'int8'), layout.trained)
  completed(writingRuns(runs(), vector))
  for (const [i, value] of pushed.entries()) assert.ok(Math.abs(value - (vector[i] ?? 0)) <= 12 / 254)
})

test('an encoded push of another length, of no numbers, or of some rows is refused', () => {
  const form = gradientForm(layout, [], 'int8')
  assert.throws(() => readPush(new Uint8Array(form.bytes - 1), form, layout.trained), { code: 'gradient-shape' })
  const nan = encodeVector(new Float32Array(layout.total).fill(Number.NaN), 'int8')
  assert.throws(() => readPush(nan, form, layout.trained), { code: 'gradient-not-finite' })
  assert.throws(() => gradientForm(layout, [{ name: 'fc.weight', rows: 1 }], 'int8'), { code: 'gradient-shape' })
})
