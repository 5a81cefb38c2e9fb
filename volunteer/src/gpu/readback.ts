// Brings results back through rings of mappable buffers, so that the next run is issued while the last one is still
// read.

import type { BufferOwner } from './buffers.ts'
import { BUFFER_USAGE } from './flags.ts'

/** Runs under way at once: one computing, one being read, one being prepared. */
const RING_LENGTH = 3

interface BufferRing {
  readonly free: GPUBuffer[]
  readonly waiting: ((buffer: GPUBuffer) => void)[]
}

export class Readback {
  readonly #buffers: BufferOwner
  readonly #rings = new Map<number, BufferRing>()

  constructor(buffers: BufferOwner) {
    this.#buffers = buffers
  }

  /** A staging buffer of exactly this size; waits until one is free. The first call of a size makes its ring. */
  acquire(bytes: number): Promise<GPUBuffer> {
    const ring = this.#rings.get(bytes) ?? this.#createRing(bytes)
    const buffer = ring.free.pop()
    if (buffer) return Promise.resolve(buffer)
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

  #createRing(bytes: number): BufferRing {
    const usage = BUFFER_USAGE.MAP_READ | BUFFER_USAGE.COPY_DST
    const free = Array.from({ length: RING_LENGTH }, (_, i) => this.#buffers.create(bytes, usage, `readback ${i}`))
    const ring = { free, waiting: [] }
    this.#rings.set(bytes, ring)
    return ring
  }
}
