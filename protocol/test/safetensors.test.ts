import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  GridError,
  float32Values,
  floatTensor,
  int32Values,
  readSafetensors,
  writeSafetensors,
  type StoredTensor,
} from '@starling-grid/protocol'
import fc from 'fast-check'

/** A file with the given header text and `dataBytes` of zeros after it. */
function fileWith(header: unknown, dataBytes: number): Uint8Array {
  const text = new TextEncoder().encode(typeof header === 'string' ? header : JSON.stringify(header))
  const bytes = new Uint8Array(8 + text.byteLength + dataBytes)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.byteLength), true)
  bytes.set(text, 8)
  return bytes
}

function assertMalformed(bytes: Uint8Array, pattern: RegExp): void {
  assert.throws(
    () => readSafetensors(bytes),
    (error: unknown) => {
      assert.ok(error instanceof GridError)
      assert.equal(error.code, 'message-malformed')
      assert.match(error.message, pattern)
      return true
    },
  )
}

const tensorOf = fc.array(fc.nat({ max: 4 }), { maxLength: 3 }).chain((shape) => {
  const count = shape.reduce((product, size) => product * size, 1)
  return fc
    .constantFrom(['F32', 4] as const, ['U8', 1] as const, ['F16', 2] as const, ['I64', 8] as const)
    .chain(([dtype, width]) =>
      fc
        .uint8Array({ minLength: count * width, maxLength: count * width })
        .map((data): StoredTensor => ({ dtype, shape, data })),
    )
})

test('what is written is read back, whatever the names, types and shapes', () => {
  const names = fc.string({ unit: 'binary' }).filter((name) => name !== '__metadata__')
  fc.assert(
    fc.property(fc.dictionary(names, tensorOf), fc.dictionary(fc.string(), fc.string()), (record, metadata) => {
      const file = readSafetensors(writeSafetensors(new Map(Object.entries(record)), metadata))
      assert.deepEqual({ ...file.metadata }, { ...metadata })
      assert.deepEqual([...file.tensors.keys()].sort(), Object.keys(record).sort())
      for (const [name, tensor] of file.tensors) {
        assert.equal(tensor.dtype, record[name]?.dtype)
        assert.deepEqual(tensor.shape, record[name]?.shape)
        assert.deepEqual([...tensor.data], [...(record[name]?.data ?? [])])
      }
    }),
  )
})

test('damaged files are refused with a code, never with a crash', () => {
  const good = writeSafetensors(
    new Map([
      ['a', floatTensor([2, 3], Float32Array.of(1, 2, 3, 4, 5, 6))],
      ['b', floatTensor([1], Float32Array.of(7))],
    ]),
    { note: 'x' },
  )
  const damage = fc.array(fc.record({ at: fc.nat({ max: good.length - 1 }), to: fc.nat({ max: 255 }) }), {
    minLength: 1,
    maxLength: 4,
  })
  fc.assert(
    fc.property(damage, fc.nat({ max: good.length }), (edits, length) => {
      const bytes = good.slice(0, length)
      for (const { at, to } of edits) if (at < length) bytes[at] = to
      try {
        readSafetensors(bytes)
      } catch (error) {
        assert.ok(error instanceof GridError && error.code === 'message-malformed', String(error))
      }
    }),
    { numRuns: 2000 },
  )
})

test('random bytes are refused with a code', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64, size: 'max' }), (bytes) => {
      if (bytes.length >= 8) bytes.fill(0, 1, 8) // a small header length, so that the JSON is reached
      try {
        readSafetensors(bytes)
      } catch (error) {
        assert.ok(error instanceof GridError && error.code === 'message-malformed', String(error))
      }
    }),
  )
})

test('each breach of the layout is named', () => {
  const a = { dtype: 'F32', shape: [2], data_offsets: [0, 8] }
  assertMalformed(new Uint8Array(4), /length field of 8 bytes, got 4/)
  const huge = new Uint8Array(16)
  new DataView(huge.buffer).setBigUint64(0, 2n ** 60n, true)
  assertMalformed(huge, /header of at most/)
  assertMalformed(fileWith('{', 0), /header of JSON/)
  assertMalformed(fileWith([], 0), /JSON object as header/)
  assertMalformed(fileWith({ a: { ...a, dtype: 'toString' } }, 8), /known dtype, got "toString"/)
  assertMalformed(fileWith({ a: { ...a, shape: [3] } }, 8), /expected 12 bytes/)
  assertMalformed(fileWith({ a: { ...a, shape: [2 ** 40, 2 ** 40] } }, 8), /at most 2⁵³ − 1 elements/)
  assertMalformed(fileWith({ a: { ...a, shape: [-2] } }, 8), /expected a shape/)
  assertMalformed(fileWith({ a: { ...a, data_offsets: [0, 16], shape: [4] } }, 8), /got 0\.\.16/)
  assertMalformed(fileWith({ a: { ...a, data_offsets: [8, 0] } }, 8), /got 8\.\.0/)
  assertMalformed(fileWith({ a, b: { ...a, data_offsets: [4, 12] } }, 12), /"b": expected its begin at 8, got 4/)
  assertMalformed(fileWith({ a }, 12), /tensors of 12 bytes, got 8/)
  assertMalformed(fileWith({ a, __metadata__: { n: 1 } }, 8), /a string as __metadata__ "n"/)
})

test('data are aligned, views where they can be and copies where not', () => {
  const bytes = writeSafetensors(
    new Map<string, StoredTensor>([
      ['u', { dtype: 'U8', shape: [3], data: Uint8Array.of(1, 2, 3) }],
      ['f', floatTensor([2], Float32Array.of(1.5, -2))],
      ['i', { dtype: 'I32', shape: [1], data: new Uint8Array(Int32Array.of(-7).buffer) }],
    ]),
  )
  const shifted = new Uint8Array(bytes.length + 1)
  shifted.set(bytes, 1)
  for (const copy of [bytes, shifted.subarray(1)]) {
    const { tensors } = readSafetensors(copy)
    const [f, i] = [tensors.get('f'), tensors.get('i')]
    assert.ok(f && i)
    assert.deepEqual([...float32Values(f)], [1.5, -2])
    assert.deepEqual([...int32Values(i)], [-7])
  }
  const f = readSafetensors(bytes).tensors.get('f')
  assert.ok(f)
  assert.equal(float32Values(f).buffer, bytes.buffer)
})
