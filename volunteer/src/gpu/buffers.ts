// The one owner of device memory: makes buffers, counts those alive, destroys them all at once.

import { GridError } from '@starling-grid/protocol'

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

  destroy(): void {
    for (const buffer of this.#buffers) buffer.destroy()
    this.#buffers.clear()
  }
}

/** The device has no memory for a plan; a smaller one may fit. */
export class OutOfDeviceMemory extends GridError {
  constructor(bytes: number, message: string) {
    super(
      'adapter-limit',
      `The model needs ${Math.ceil(bytes / 2 ** 20)} MiB of device memory, and the adapter does not have it: ` +
        `${message}`,
    )
  }
}

/** Runs `make` and says which limit is short when the device has no memory for it. */
export async function withMemoryCheck<T>(device: GPUDevice, bytes: number, make: () => T): Promise<T> {
  device.pushErrorScope('out-of-memory')
  const made = make()
  const error = await device.popErrorScope()
  if (error) throw new OutOfDeviceMemory(bytes, error.message)
  return made
}
