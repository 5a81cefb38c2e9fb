// What can happen to a device behind our back: it is lost, or a command turns out to be invalid. Both stop training
// loudly.

import { GridError } from '@starling-grid/protocol'

export class DeviceWatch {
  readonly device: GPUDevice
  #failure: Error | undefined
  readonly #onError = (event: Event) => {
    const { error } = event as GPUUncapturedErrorEvent
    this.#failure ??= new Error(`internal: the device refused a command: ${error.message}`)
  }

  constructor(device: GPUDevice) {
    this.device = device
    device.addEventListener('uncapturederror', this.#onError)
    void device.lost.then(({ message }) => {
      this.#failure = deviceLost(message)
    })
  }

  /** Throws when the device can no longer be trusted. */
  check(): void {
    if (this.#failure) throw this.#failure
  }

  /** Waits for work of the device; what fails because the device is gone is said to have failed for that. */
  async during<T>(work: Promise<T>): Promise<T> {
    try {
      return await work
    } catch (cause) {
      this.check()
      // Rejections may come before the news of the loss that caused them.
      throw deviceLost(cause instanceof Error ? cause.message : String(cause))
    }
  }

  stop(): void {
    this.device.removeEventListener('uncapturederror', this.#onError)
  }
}

function deviceLost(reason: string): GridError {
  return new GridError('device-lost', `expected a GPU device, got its loss: ${reason || 'no reason given'}`)
}
