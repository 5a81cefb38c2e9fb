// Brings results back through rings of mappable buffers, so that the next run is issued while the last one is still
// read. A ring grows when it is used, up to RING_LENGTH, and within what memory the device has.

import { OutOfDeviceMemory } from '../graph/out-of-device-memory.ts'
import { withMemoryCheck, type BufferOwner } from './buffers.ts'
import { BUFFER_USAGE } from './flags.ts'

/** Runs under way at once: one computing, one being read, one being prepared. */
const RING_LENGTH = 3
/** Bytes from which a buffer is a part of a gradient: there are no more than one run brings at a time. */
const LARGE_BYTES = 16 * 1024 * 1024

/** Buffers of each size that a run with these staging buffers may make. */
export function ringLengths(sizes: readonly number[]): ReadonlyMap<number, number> {
  const lengths = new Map<number, number>()
  for (const bytes of sizes)
    lengths.set(bytes, bytes < LARGE_BYTES ? RING_LENGTH : Math.min(RING_LENGTH, (lengths.get(bytes) ?? 0) + 1))
  return lengths
}

interface BufferRing {
  readonly free: GPUBuffer[]
  readonly waiting: ((buffer: GPUBuffer) => void)[]
  made: number
  /** buffers that it may have: fewer once the device had no memory for another */
  most: number
}

export class Readback {
  readonly #device: GPUDevice
  readonly #buffers: BufferOwner
  readonly #rings = new Map<number, BufferRing>()

  constructor(device: GPUDevice, buffers: BufferOwner) {
    this.#device = device
    this.#buffers = buffers
  }

  /** One buffer of each size of a run, and no more of large ones than it needs. @throws OutOfDeviceMemory */
  async reserve(sizes: readonly number[]): Promise<void> {
    for (const [bytes, most] of ringLengths(sizes)) {
      this.#ringOf(bytes).most = most
      this.release(await this.acquire(bytes), bytes)
    }
  }

  /**
   * A staging buffer of exactly this size; waits until one is free.
   * @throws OutOfDeviceMemory when there is not even one of this size
   */
  async acquire(bytes: number): Promise<GPUBuffer> {
    const ring = this.#ringOf(bytes)
    const buffer = ring.free.pop() ?? (ring.made < ring.most ? await this.#grow(ring, bytes) : undefined)
    if (buffer) return buffer
    return new Promise((resolve) => {
      ring.waiting.push(resolve)
    })
  }

  release(buffer: GPUBuffer, bytes: number): void {
    const ring = this.#rings.get(bytes)
    const next = ring?.waiting.shift()
    if (next) next(buffer)
    else ring?.free.push(buffer)
  }

  #ringOf(bytes: number): BufferRing {
    const ring = this.#rings.get(bytes) ?? { free: [], waiting: [], made: 0, most: RING_LENGTH }
    this.#rings.set(bytes, ring)
    return ring
  }

  /** Undefined: the device has no memory for another, and those that are there have to do. */
  async #grow(ring: BufferRing, bytes: number): Promise<GPUBuffer | undefined> {
    ring.made++
    const usage = BUFFER_USAGE.MAP_READ | BUFFER_USAGE.COPY_DST
    try {
      return await withMemoryCheck(this.#device, bytes, () =>
        this.#buffers.create(bytes, usage, `readback ${ring.made}`),
      )
    } catch (error) {
      ring.made--
      if (!(error instanceof OutOfDeviceMemory) || ring.made === 0) throw error
      ring.most = ring.made
      return ring.free.pop()
    }
  }
}
