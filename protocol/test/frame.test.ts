// The binary layout of frames between volunteers, and what is refused before anything is allocated.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  FRAME_HEADER_BYTES,
  FRAME_TYPES,
  FramePacker,
  GridError,
  MAX_FRAME_PAYLOAD_BYTES,
  checksum,
  packFrame,
  unpackFrame,
  type ErrorCode,
  type Frame,
  type FrameType,
} from '@starling-grid/protocol'
import fc from 'fast-check'

const u32 = fc.integer({ min: 0, max: 0xffffffff })
const anyFrame: fc.Arbitrary<Frame> = fc.record(
  {
    type: fc.constantFrom(...(Object.keys(FRAME_TYPES) as FrameType[])),
    generation: u32,
    step: u32,
    bucket: u32,
    hop: u32,
    offset: u32,
    payload: fc.uint8Array({ maxLength: 300, size: 'max' }),
  },
  { noNullPrototype: true },
)
const sample: Frame = {
  type: 'partial',
  generation: 1,
  step: 2,
  bucket: 3,
  hop: 4,
  offset: 5,
  payload: Uint8Array.of(1, 2, 3, 4, 5),
}

test('what is packed unpacks to the same frame', () => {
  fc.assert(fc.property(anyFrame, (frame) => assert.deepEqual(unpackFrame(packFrame(frame)), frame)))
})

test('the layout is nine little-endian words, then the payload', () => {
  const bytes = packFrame(sample)
  assert.equal(bytes.byteLength, FRAME_HEADER_BYTES + 5)
  const words = Array.from({ length: 9 }, (_, i) => new DataView(bytes.buffer).getUint32(4 * i, true))
  assert.deepEqual(words, [0x4c525453, FRAME_TYPES.partial, 1, 2, 3, 4, 5, 5, checksum(sample.payload)])
  assert.equal(new TextDecoder().decode(bytes.subarray(0, 4)), 'STRL')
  assert.deepEqual([...bytes.subarray(FRAME_HEADER_BYTES)], [1, 2, 3, 4, 5])
})

test('a frame inside a larger buffer is read in its place', () => {
  const packed = packFrame(sample)
  const outer = new Uint8Array(packed.byteLength + 7)
  outer.set(packed, 3)
  assert.deepEqual(unpackFrame(outer.subarray(3, 3 + packed.byteLength)), sample)
})

const refusals: readonly [what: string, bytes: Uint8Array, code: ErrorCode][] = [
  ['nothing', new Uint8Array(0), 'message-malformed'],
  ['less than a header', packFrame(sample).subarray(0, FRAME_HEADER_BYTES - 1), 'message-malformed'],
  ['another magic', altered(0, 1), 'message-malformed'],
  ['type 0', altered(4, FRAME_TYPES.partial), 'message-malformed'],
  ['an unknown type', altered(5, 1), 'message-malformed'],
  ['a length that is too large', altered(28, 16), 'message-malformed'],
  ['a missing last byte', packFrame(sample).subarray(0, FRAME_HEADER_BYTES + 4), 'message-malformed'],
  ['an altered payload', altered(FRAME_HEADER_BYTES + 2, 1), 'checksum'],
  ['an altered checksum', altered(33, 1), 'checksum'],
  [
    'more than the largest frame',
    new Uint8Array(FRAME_HEADER_BYTES + MAX_FRAME_PAYLOAD_BYTES + 1),
    'message-too-large',
  ],
]

/** The sample with one byte changed by exclusive or. */
function altered(position: number, mask: number): Uint8Array {
  const bytes = packFrame(sample)
  bytes[position] = (bytes[position] ?? 0) ^ mask
  return bytes
}

for (const [what, bytes, code] of refusals)
  test(`refused: ${what}`, () => {
    assert.throws(
      () => unpackFrame(bytes),
      (error) => error instanceof GridError && error.code === code,
    )
  })

test('random bytes are refused with a code, never with another error', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200, size: 'max' }), (bytes) => {
      assert.throws(() => unpackFrame(bytes), GridError)
    }),
  )
})

test('the checksum sees swapped words, swapped tail bytes and lost zeros', () => {
  assert.notEqual(checksum(Uint8Array.of(1, 0, 0, 0, 2, 0, 0, 0)), checksum(Uint8Array.of(2, 0, 0, 0, 1, 0, 0, 0)))
  assert.notEqual(checksum(Uint8Array.of(1, 2)), checksum(Uint8Array.of(2, 1)))
  assert.notEqual(checksum(new Uint8Array(8)), checksum(new Uint8Array(4)))
})

test('the checksum is that of Fletcher over words, whatever the length and wherever the bytes lie', () => {
  const plain = (bytes: Uint8Array): number => {
    let [a, b] = [1, bytes.byteLength]
    const word = (value: number): void => {
      a = (a + value) >>> 0
      b = (b + a) >>> 0
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    const whole = bytes.byteLength & ~3
    for (let i = 0; i < whole; i += 4) word(view.getUint32(i, true))
    for (let i = whole; i < bytes.byteLength; i++) word(view.getUint8(i))
    return (a ^ Math.imul(b, 0x9e3779b1)) >>> 0
  }
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200, size: 'max' }), fc.nat({ max: 7 }), (bytes, skipped) => {
      const part = bytes.subarray(Math.min(skipped, bytes.length))
      assert.equal(checksum(part), plain(part))
    }),
  )
})

test('a packer packs the same bytes as packFrame, one frame after the other, longer ones and shorter ones', () => {
  const packer = new FramePacker()
  fc.assert(fc.property(anyFrame, (frame) => assert.deepEqual([...packer.pack(frame)], [...packFrame(frame)])))
})
