// Staging buffers: as many as runs need at once, and fewer on a device that has no memory for more.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BufferOwner } from '../src/gpu/buffers.ts'
import { Readback } from '../src/gpu/readback.ts'
import { OutOfDeviceMemory } from '../src/graph/out-of-device-memory.ts'

const BYTES = 1024

/** A device with memory for so many buffers, which says so as WebGPU does: when the scope is closed. */
function deviceWith(room: number): { readonly device: GPUDevice; readonly made: string[] } {
  const made: string[] = []
  let failed: boolean[] = []
  const device = {
    createBuffer({ label }: GPUBufferDescriptor) {
      if (made.length < room) made.push(String(label))
      else failed = failed.map(() => true)
      return { label, destroy() {} }
    },
    pushErrorScope: () => void failed.push(false),
    popErrorScope: async () => (failed.pop() === true ? { message: 'out of memory' } : null),
  }
  return { device: device as unknown as GPUDevice, made }
}

function readbackOn(device: GPUDevice): Readback {
  return new Readback(device, new BufferOwner(device))
}

/** Whether it is settled after whatever else is due. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false
  void promise.then(() => {
    settled = true
  })
  await new Promise(setImmediate)
  return settled
}

test('three runs have a buffer each, and a fourth waits for the first that comes back', async () => {
  const { device, made } = deviceWith(10)
  const readback = readbackOn(device)
  const [first] = [await readback.acquire(BYTES), await readback.acquire(BYTES), await readback.acquire(BYTES)]
  const fourth = readback.acquire(BYTES)
  assert.equal(await isSettled(fourth), false)
  assert.equal(made.length, 3)
  readback.release(first, BYTES)
  assert.equal(await fourth, first)
})

test('a device without memory for a second buffer does with one, for which runs wait', async () => {
  const { device, made } = deviceWith(1)
  const readback = readbackOn(device)
  const only = await readback.acquire(BYTES)
  const [second, third] = [readback.acquire(BYTES), readback.acquire(BYTES)]
  assert.equal(await isSettled(second), false)
  readback.release(only, BYTES)
  assert.equal(await second, only)
  assert.equal(await isSettled(third), false)
  readback.release(only, BYTES)
  assert.equal(await third, only)
  assert.equal(made.length, 1)
})

test('a device without memory for the first buffer is out of memory', async () => {
  const { device } = deviceWith(0)
  await assert.rejects(readbackOn(device).reserve([BYTES]), OutOfDeviceMemory)
})
