// Encodings on their own: f16 against its definition, int8 and top-k against their bounds, PowerSGD against plain
// algebra. And what error feedback is for: over many steps nothing is lost.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isGridError, random32 } from '@starling-grid/protocol'
import { decodeF16, encodeF16, decodeInt8, encodeInt8, INT8_BLOCK, int8Codec } from '@starling-grid/protocol/floats'
import fc from 'fast-check'
import {
  leftFactors,
  multiplyOut,
  orthonormalize,
  outside,
  type PowerSgdShape,
  requireShape,
  rightFactors,
  squareShape,
  startPowerSgd,
} from '../src/codec/encode-power-sgd.ts'
import { addTopK, encodeTopK, topKCount } from '../src/codec/encode-top-k.ts'

const nearest = { type: 'nearest' } as const

/** What the standard says that the half with these bits is. */
function halfByDefinition(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >>> 10) & 31
  const fraction = bits & 1023
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25))
}

function halfOf(value: number): number {
  return new Uint16Array(encodeF16(Float32Array.of(value)).buffer)[0] ?? NaN
}

function floatsOfHalves(bits: readonly number[]): Float32Array {
  const into = new Float32Array(bits.length)
  decodeF16(new Uint8Array(Uint16Array.from(bits).buffer), into)
  return into
}

test('all 65,536 halves decode to what the standard says, and encode to themselves', () => {
  const all = Array.from({ length: 0x10000 }, (_, bits) => bits)
  const floats = floatsOfHalves(all)
  const back = new Uint16Array(encodeF16(floats).buffer)
  for (const bits of all) {
    const expected = halfByDefinition(bits)
    assert.ok(Object.is(floats[bits], expected), `${bits} is ${floats[bits]}, expected ${expected}`)
    if (!Number.isNaN(expected)) assert.equal(back[bits], bits)
  }
})

test('f16 rounds to the nearest half, ties to the even one', () => {
  for (let bits = 0; bits < 0x7bff; bits++) {
    const [low, high] = [halfByDefinition(bits), halfByDefinition(bits + 1)]
    const middle = (low + high) / 2 // exact in f32
    assert.equal(halfOf(middle), bits + (bits & 1))
    assert.equal(halfOf(-middle), 0x8000 + bits + (bits & 1))
    const ulp = middle * 2 ** -23
    assert.equal(halfOf(Math.fround(middle - ulp)), bits)
    assert.equal(halfOf(Math.fround(middle + ulp)), bits + 1)
  }
  assert.equal(halfOf(65519.99), 0x7bff)
  assert.equal(halfOf(65520), 0x7c00)
  assert.equal(halfOf(2 ** -25), 0)
  assert.equal(halfOf(Math.fround(2 ** -25 * 1.0000001)), 1)
  assert.equal(halfOf(1e-45), 0)
  assert.equal(halfOf(-0), 0x8000)
  assert.deepEqual([halfOf(Infinity), halfOf(-Infinity), halfOf(3e38)], [0x7c00, 0xfc00, 0x7c00])
  assert.ok(Number.isNaN(halfByDefinition(halfOf(NaN))))
})

test('int8 is off by half a step of its block at most, and takes 1.02 bytes a number', () => {
  const values = Float32Array.from({ length: 10_000 }, (_, i) => Math.sin(i) * 10 ** ((i >> 9) % 8))
  const bytes = encodeInt8(values, nearest)
  const decoded = new Float32Array(values.length)
  decodeInt8(bytes, decoded)
  assert.equal(bytes.byteLength, 10_000 + 4 * 40)
  for (let block = 0; block < values.length; block += INT8_BLOCK) {
    const part = values.subarray(block, block + INT8_BLOCK)
    const step = part.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127
    part.forEach((value, i) =>
      assert.ok(
        Math.abs(value - (decoded[block + i] ?? NaN)) <= step * 0.50001,
        `${value} became ${decoded[block + i]}`,
      ),
    )
  }
})

test('int8: zeros, tiny numbers and odd lengths survive; NaN and infinity are not hidden', () => {
  for (const length of [0, 1, 255, 256, 257]) {
    const decoded = new Float32Array(length).fill(9)
    decodeInt8(encodeInt8(new Float32Array(length), nearest), decoded)
    assert.ok(decoded.every((value) => value === 0))
  }
  const tiny = new Float32Array(3)
  decodeInt8(encodeInt8(Float32Array.of(1e-44, -1e-45, 0), nearest), tiny)
  assert.ok(tiny.every((value) => Math.abs(value) <= 1.1e-44))
  for (const odd of [NaN, Infinity, -Infinity]) {
    const decoded = new Float32Array(300)
    decodeInt8(
      encodeInt8(
        Float32Array.from({ length: 300 }, (_, i) => (i === 7 ? odd : 1)),
        nearest,
      ),
      decoded,
    )
    assert.ok(decoded.subarray(0, 256).every(Number.isNaN) && decoded.subarray(256).every((value) => value === 1))
  }
})

test('stochastic rounding is right on average', () => {
  const codec = int8Codec({ type: 'stochastic', random: random32(3) })
  const values = Float32Array.from({ length: 256 }, (_, i) => (i === 0 ? 127 : 0.3)) // a step of 1
  let sum = 0
  for (let round = 0; round < 40; round++)
    for (const value of codec.decode(codec.encode(values), 256).subarray(1)) sum += value
  assert.ok(Math.abs(sum / (40 * 255) - 0.3) < 0.02, `${sum / (40 * 255)}`)
})

test('top-k sends the largest, in the order of their places', () => {
  fc.assert(
    fc.property(
      fc.array(fc.float({ noNaN: true }), { minLength: 1, maxLength: 200, size: 'max' }),
      fc.double({ min: 0.01, max: 1, noNaN: true }),
      (list, fraction) => {
        const values = Float32Array.from(list)
        const k = topKCount(values.length, fraction)
        const kept = new Float32Array(values.length)
        addTopK(encodeTopK(values, k), kept, k)
        const sizes = [...values].map(Math.abs).sort((a, b) => b - a)
        const sent = [...kept]
          .filter((value, i) => Object.is(value + 0, (values[i] ?? NaN) + 0) && value !== 0)
          .map(Math.abs)
          .sort((a, b) => b - a)
        assert.deepEqual(
          sent.filter((size) => size > (sizes[k] ?? 0)),
          sizes.slice(0, k).filter((size) => size > (sizes[k] ?? 0)),
        )
      },
    ),
    { numRuns: 500 },
  )
  const bytes = encodeTopK(Float32Array.of(1, NaN, -3, 2), 2)
  assert.deepEqual([...new Uint32Array(bytes.buffer, 0, 2)], [1, 2])
})

test('decoders refuse bytes that are nothing of theirs, whatever they are', () => {
  const decoders: readonly ((bytes: Uint8Array) => void)[] = [
    (bytes) => decodeF16(bytes, new Float32Array(5)),
    (bytes) => decodeInt8(bytes, new Float32Array(5)),
    (bytes) => addTopK(bytes, new Float32Array(5), 2),
  ]
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 24, size: 'max' }), fc.integer({ min: 0, max: 3 }), (bytes, shift) => {
      for (const decode of decoders)
        try {
          decode(bytes.subarray(Math.min(shift, bytes.length)))
        } catch (error) {
          assert.ok(isGridError(error) && error.code === 'message-malformed')
        }
    }),
    { numRuns: 2000 },
  )
  const places = (...numbers: number[]): Uint8Array => new Uint8Array(Uint32Array.of(...numbers, 0, 0).buffer)
  for (const bad of [places(1, 1), places(2, 1), places(0, 5), places(0, 0xffffffff)])
    assert.throws(() => addTopK(bad, new Float32Array(5), 2), { code: 'message-malformed' })
  const scale = (value: number): Uint8Array => new Uint8Array([...new Uint8Array(Float32Array.of(value).buffer), 1])
  assert.throws(
    () => decodeInt8(new Uint8Array([...scale(1).subarray(0, 4), 0x80]), new Float32Array(1)),
    { code: 'message-malformed' },
    'no encoder sends −128',
  )
  for (const bad of [-1, Infinity])
    assert.throws(() => decodeInt8(scale(bad), new Float32Array(1)), { code: 'message-malformed' })
})

test('PowerSGD gives back a matrix of its rank, and the factors of several matrices lie side by side', () => {
  const shape: PowerSgdShape = {
    matrices: [
      { start: 3, rows: 20, columns: 30 },
      { start: 700, rows: 5, columns: 4 },
    ],
    rank: 2,
  }
  const vector = new Float32Array(800)
  for (const { start, rows, columns } of shape.matrices)
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++)
        vector[start + row * columns + column] =
          Math.sin(row) * Math.cos(column) + Math.cos(3 * row) * Math.sin(2 * column)
  const { q } = startPowerSgd(shape, 800, 5)
  const p = leftFactors(shape, vector, q)
  orthonormalize(shape, p)
  const back = new Float32Array(800)
  multiplyOut(shape, { p, q: rightFactors(shape, vector, p) }, back)
  vector.forEach((value, i) => assert.ok(Math.abs(value - (back[i] ?? NaN)) < 1e-5, `${i}: ${value} became ${back[i]}`))
})

test('Gram–Schmidt leaves columns of length one at right angles, and zeros where a column brings nothing new', () => {
  const shape: PowerSgdShape = { matrices: [{ start: 0, rows: 50, columns: 1 }], rank: 3 }
  const p = Float32Array.from({ length: 150 }, (_, i) => (i % 3 === 1 ? 2 * Math.sin(i - 1) : Math.sin(i)))
  orthonormalize(shape, p)
  const dot = (a: number, b: number): number =>
    Array.from({ length: 50 }, (_, row) => (p[3 * row + a] ?? 0) * (p[3 * row + b] ?? 0)).reduce((x, y) => x + y, 0)
  assert.ok(Math.abs(dot(0, 0) - 1) < 1e-6 && Math.abs(dot(2, 2) - 1) < 1e-6 && Math.abs(dot(0, 2)) < 1e-6)
  assert.equal(dot(1, 1), 0)
})

test('shapes that overlap or reach too far are refused; what lies outside is known', () => {
  const matrix = (start: number, rows: number, columns: number) => ({ start, rows, columns })
  for (const matrices of [
    [matrix(0, 5, 5), matrix(24, 1, 1)],
    [matrix(90, 4, 4)],
    [matrix(-1, 2, 2)],
    [matrix(0, 0, 5)],
    [matrix(0, 1.5, 2)],
  ])
    assert.throws(() => requireShape({ matrices, rank: 1 }, 100), { code: 'usage' })
  assert.throws(() => requireShape({ matrices: [], rank: 0 }, 100), { code: 'usage' })
  assert.deepEqual(outside({ matrices: [matrix(3, 2, 2), matrix(7, 1, 3)], rank: 1 }, 12), [
    [0, 3],
    [10, 12],
  ])
  for (const length of [0, 1, 2, 10, 10_007]) requireShape(squareShape(length, 2), length)
})

test('with its residual, each encoding sends in the long run what it was given', () => {
  const length = 512
  const gradient = Float32Array.from({ length }, (_, i) => Math.sin(i) * (i % 100 === 0 ? 50 : 1))
  const k = topKCount(length, 0.05)
  const encoders: Readonly<Record<string, (values: Float32Array) => Float32Array>> = {
    f16: (values) => through(values, (into) => decodeF16(encodeF16(values), into)),
    int8: (values) => through(values, (into) => decodeInt8(encodeInt8(values, nearest), into)),
    'top-k': (values) => through(values, (into) => addTopK(encodeTopK(values, k), into, k)),
  }
  for (const [name, encode] of Object.entries(encoders)) {
    let residual = new Float32Array(length)
    const sent = new Float64Array(length)
    const steps = 400
    for (let step = 0; step < steps; step++) {
      const wanted = gradient.map((value, i) => value + (residual[i] ?? 0))
      const got = encode(wanted)
      residual = wanted.map((value, i) => value - (got[i] ?? 0))
      got.forEach((value, i) => {
        sent[i] = (sent[i] ?? 0) + value
      })
    }
    gradient.forEach((value, i) =>
      assert.ok(
        Math.abs((sent[i] ?? NaN) / steps - value) < 0.15,
        `${name}: ${value} arrived as ${(sent[i] ?? NaN) / steps} a step`,
      ),
    )
  }
})

function through(values: Float32Array, decode: (into: Float32Array) => void): Float32Array {
  const into = new Float32Array(values.length)
  decode(into)
  return into
}
