// When work of a device is done, as soon as it is done. Firefox looks for finished work every 100 ms, and besides when
// something is submitted (bugzilla.mozilla.org/1870699; measured: 103 ms for a submit and its `mapAsync`). On such a
// device an empty submit now and then makes it look.
import { type Clock, systemClock } from '@starling-grid/protocol'
import { BUFFER_USAGE, MAP_READ_MODE } from './flags.ts'

/** ms for a copy of four bytes: over this it was not the copy that took so long */
const LATE_MS = 40
/** ms between two empty submits: a thirtieth of what Firefox waits, and no load */
const NUDGE_MS = 3
const PROBE_BYTES = 4
/** The first submit of a device may wait for its driver. */
const PROBES = 2

/** What probes found; a device is asked once. */
const LATE_DEVICES = new WeakMap<GPUDevice, Promise<boolean>>()

export class Completion {
  readonly #device: GPUDevice
  readonly #clock: Clock

  constructor(device: GPUDevice, clock: Clock = systemClock) {
    this.#device = device
    this.#clock = clock
  }

  /** Resolves when the buffer is mapped for reading. */
  async map(buffer: GPUBuffer): Promise<void> {
    const mapped = buffer.mapAsync(MAP_READ_MODE)
    mapped.catch(() => undefined) // it may fail while the probe still runs; the last line tells
    if (await this.#isLate()) await this.#nudgeUntil(mapped)
    await mapped
  }

  async #nudgeUntil(mapped: Promise<unknown>): Promise<void> {
    const state = { over: false }
    const end = (): void => {
      state.over = true
    }
    void mapped.then(end, end)
    while (!state.over) {
      await this.#clock.sleep(NUDGE_MS)
      if (!state.over) this.#device.queue.submit([])
    }
  }

  #isLate(): Promise<boolean> {
    const known = LATE_DEVICES.get(this.#device) ?? this.#probe()
    LATE_DEVICES.set(this.#device, known)
    return known
  }

  /** Whether this device says late that a tiny piece of work is done. A busy machine may look so, at no harm. */
  async #probe(): Promise<boolean> {
    const usage = BUFFER_USAGE.MAP_READ | BUFFER_USAGE.COPY_DST
    const buffer = this.#device.createBuffer({ size: PROBE_BYTES, usage, label: 'completion probe' })
    let fastest = Number.POSITIVE_INFINITY
    for (let i = 0; i < PROBES && fastest >= LATE_MS; i++) {
      const encoder = this.#device.createCommandEncoder()
      encoder.clearBuffer(buffer)
      this.#device.queue.submit([encoder.finish()])
      const start = this.#clock.now()
      await buffer.mapAsync(MAP_READ_MODE)
      fastest = Math.min(fastest, this.#clock.now() - start)
      buffer.unmap()
    }
    buffer.destroy()
    return fastest >= LATE_MS
  }
}
