// Memory of frames that were read is used again, never while a reader has it, and never without bound.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { letGo } from '../src/collectives/let-go.ts'
import { giveBack, takeMemory } from '../src/link/frame-memory.ts'

const BYTES = 64 * 1024

test('memory that was given back is taken again, once', () => {
  assert.equal(giveBack(new ArrayBuffer(BYTES)), false, 'nothing is kept before a link takes any')
  const { buffer } = takeMemory(BYTES)
  assert.equal(giveBack(buffer), true)
  assert.equal(takeMemory(BYTES).buffer, buffer)
  assert.notEqual(takeMemory(BYTES).buffer, buffer)
})

test('a frame of another length gets other memory', () => {
  const { buffer } = takeMemory(BYTES)
  giveBack(buffer)
  assert.notEqual(takeMemory(BYTES + 4).buffer, buffer)
  assert.equal(takeMemory(BYTES).buffer, buffer)
})

test('memory of a length that no link takes is not kept', () => {
  takeMemory(BYTES)
  assert.equal(giveBack(new ArrayBuffer(BYTES + 8)), false)
})

test('what waits is bounded', () => {
  const all = Array.from({ length: 200 }, () => takeMemory(BYTES).buffer)
  assert.equal(all.filter((buffer) => giveBack(buffer)).length, (4 * 1024 * 1024) / BYTES)
})

test('memory that holds more than one frame is not given back with it', () => {
  const { buffer } = takeMemory(2 * BYTES)
  letGo(new Uint8Array(buffer, 36, BYTES), 36)
  assert.notEqual(takeMemory(2 * BYTES).buffer, buffer)
})
