// Brings the parameters of a large model to the device through memory of our own. Dawn's `writeBuffer` makes memory for
// every large write, and the system maps each page of it anew: on an H200 497 MB took 185 ms, of which a copy is 54.
import { type BufferOwner, withMemoryCheck } from './buffers.ts'
import { BUFFER_USAGE, MAP_WRITE_MODE } from './flags.ts'

/** Memory that is filled while the device does not read it, and the buffer that it is copied to as a whole. */
interface UploadPart {
  readonly staging: GPUBuffer
  readonly target: GPUBuffer
}

export class ParameterUpload {
  readonly #device: GPUDevice
  readonly #parts: readonly UploadPart[]
  #isFree = false

  /** @throws OutOfDeviceMemory */
  static async create(device: GPUDevice, owner: BufferOwner, targets: readonly GPUBuffer[]): Promise<ParameterUpload> {
    const bytes = targets.reduce((sum, { size }) => sum + size, 0)
    const usage = BUFFER_USAGE.MAP_WRITE | BUFFER_USAGE.COPY_SRC
    const make = () => targets.map((target) => ({ staging: owner.create(target.size, usage, 'upload'), target }))
    const upload = new ParameterUpload(device, await withMemoryCheck(device, bytes, make))
    await upload.#map()
    return upload
  }

  private constructor(device: GPUDevice, parts: readonly UploadPart[]) {
    this.#device = device
    this.#parts = parts
  }

  /**
   * `fill` gets the floats of each target, as they were written last, and changes those that it means. They arrive in
   * the queue's order, as with writeBuffer. False: the device still copies what was written before; nothing was done.
   */
  write(fill: (targets: readonly Float32Array[]) => void): boolean {
    if (!this.#isFree) return false
    this.#isFree = false
    fill(this.#parts.map(({ staging }) => new Float32Array(staging.getMappedRange())))
    const encoder = this.#device.createCommandEncoder()
    for (const { staging, target } of this.#parts) {
      staging.unmap()
      encoder.copyBufferToBuffer(staging, 0, target, 0, target.size)
    }
    this.#device.queue.submit([encoder.finish()])
    void this.#map()
    return true
  }

  /** A device that is lost or released says so to those who wait for results of it. */
  async #map(): Promise<void> {
    const mapped = this.#parts.map(({ staging }) => staging.mapAsync(MAP_WRITE_MODE))
    this.#isFree = (await Promise.allSettled(mapped)).every(({ status }) => status === 'fulfilled')
  }
}
