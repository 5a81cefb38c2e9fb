// The one owner of device memory: makes buffers, counts those alive, destroys them all at once.

import { OutOfDeviceMemory } from '../graph/out-of-device-memory.ts'

export class BufferOwner {
  readonly #device: GPUDevice
  readonly #buffers = new Set<GPUBuffer>()

  constructor(device: GPUDevice) {
    this.#device = device
  }

  /** Buffers alive. */
  get count(): number {
    return this.#buffers.size
  }

  create(bytes: number, usage: GPUBufferUsageFlags, label: string): GPUBuffer {
    const buffer = this.#device.createBuffer({ size: Math.ceil(bytes / 4) * 4, usage, label })
    this.#buffers.add(buffer)
    return buffer
  }

  /** One buffer before its time. */
  drop(buffer: GPUBuffer): void {
    if (this.#buffers.delete(buffer)) buffer.destroy()
  }

  destroy(): void {
    for (const buffer of this.#buffers) buffer.destroy()
    this.#buffers.clear()
  }
}

/** Runs `make`. @throws OutOfDeviceMemory naming the bytes when the device has no memory for what it makes */
export async function withMemoryCheck<T>(device: GPUDevice, bytes: number, make: () => T): Promise<T> {
  device.pushErrorScope('out-of-memory')
  const made = make()
  const error = await device.popErrorScope()
  if (error) throw new OutOfDeviceMemory(bytes, error.message)
  return made
}
