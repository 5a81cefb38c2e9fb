// Memory of frames that were read: gone at once, and never more than that of the frame.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { letGo } from '../src/collectives/let-go.ts'

const HEADER = 36
const LARGE = 64 * 1024

test('the memory of a large frame is gone as soon as it was let go', () => {
  const frame = new Uint8Array(HEADER + LARGE)
  letGo(frame.subarray(HEADER), HEADER)
  assert.equal(frame.buffer.byteLength, 0)
  assert.equal(frame.byteLength, 0, 'all views of it are empty')
})

test('memory that holds more than the frame stays: others may read it', () => {
  const frames = new Uint8Array(2 * (HEADER + LARGE)).fill(7)
  letGo(frames.subarray(HEADER, HEADER + LARGE), HEADER)
  assert.equal(frames.at(-1), 7)
})

test('memory of a small frame stays: it may be a part of a pool, which cannot be given away', () => {
  const pooled = Buffer.from('a frame of a few bytes')
  letGo(pooled, pooled.buffer.byteLength)
  assert.equal(pooled.toString(), 'a frame of a few bytes')
})

test('shared memory stays', () => {
  const shared = new Uint8Array(new SharedArrayBuffer(LARGE)).fill(7)
  letGo(shared, 0)
  assert.equal(shared.at(-1), 7)
})
