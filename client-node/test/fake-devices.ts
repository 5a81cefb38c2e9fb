// Devices that behave as those of browsers and drivers that no test machine has, around a real device: what they
// compute is computed, and only how they answer is theirs. Each stands for behaviour that was reported.

export interface FakeDevice {
  readonly name: string
  /** A device of this kind; `device` computes. */
  wrap(device: GPUDevice): GPUDevice
}

/** Members of a host object want the object itself as `this`. */
function around<T extends object>(target: T, answers: Partial<Record<keyof T, unknown>>): T {
  return new Proxy(target, {
    get(_, property) {
      if (Object.hasOwn(answers, property)) return answers[property as keyof T]
      const value: unknown = Reflect.get(target, property)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** Some Safari 26: a device says nothing of its adapter. */
const SAFARI: FakeDevice = {
  name: 'Safari without adapterInfo',
  wrap: (device) => around(device, { adapterInfo: undefined }),
}

const FIREFOX_TIMER_MS = 100

/** Firefox: a map resolves when a timer looks, or when something is submitted after the work was done. */
const FIREFOX: FakeDevice = {
  name: 'Firefox with its timer',
  wrap(device) {
    const waiting = new Set<() => void>()
    const look = (): void => {
      for (const resolve of waiting) resolve()
      waiting.clear()
    }
    const queue = around(device.queue, {
      submit: (buffers: GPUCommandBuffer[]) => {
        look()
        device.queue.submit(buffers)
      },
    })
    const whenLookedAt = async (): Promise<void> => {
      const timer = setTimeout(look, FIREFOX_TIMER_MS)
      await new Promise<void>((resolve) => waiting.add(resolve))
      clearTimeout(timer)
    }
    return around(device, {
      queue,
      createBuffer: (descriptor: GPUBufferDescriptor) => {
        const buffer = device.createBuffer(descriptor)
        const mapAsync = buffer.mapAsync.bind(buffer)
        return Object.assign(buffer, {
          mapAsync: async (mode: number) => {
            await mapAsync(mode)
            await whenLookedAt()
          },
        })
      },
    })
  },
}

/** No subgroups, although the real adapter may have them. */
const WITHOUT_SUBGROUPS: FakeDevice = {
  name: 'an adapter without subgroups',
  wrap: (device) => around(device, { features: new Set([...device.features].filter((name) => name !== 'subgroups')) }),
}

/** An adapter whose name and subgroup sizes cannot be true. */
const LIAR: FakeDevice = {
  name: 'an adapter that lies about its name and its subgroups',
  wrap: (device) =>
    around(device, {
      adapterInfo: {
        vendor: 'Frobnicator\n\u202e',
        architecture: '',
        device: '',
        description: 'x'.repeat(5000),
        subgroupMinSize: 0,
        subgroupMaxSize: 1 << 30,
        isFallbackAdapter: false,
      },
    }),
}

/** Metal and D3D12 overcommit: no allocation ever reports that memory is short. */
const OVERCOMMITTED: FakeDevice = {
  name: 'a driver that never says that memory is short',
  wrap: (device) => around(device, { popErrorScope: async () => device.popErrorScope().then(() => null) }),
}

/** Browsers before immediates: the scalars of a run come by a uniform. */
export function withoutImmediates(device: GPUDevice): GPUDevice {
  return around(device, { limits: around(device.limits, { maxImmediateSize: undefined } as object) })
}

export const FAKE_DEVICES: readonly FakeDevice[] = [SAFARI, FIREFOX, WITHOUT_SUBGROUPS, LIAR, OVERCOMMITTED]

/** Counts what is submitted. */
export function countingDevice(device: GPUDevice): { readonly device: GPUDevice; submits(): number } {
  let submits = 0
  const queue = around(device.queue, {
    submit: (buffers: GPUCommandBuffer[]) => {
      submits++
      device.queue.submit(buffers)
    },
  })
  return { device: around(device, { queue }), submits: () => submits }
}

/**
 * Windows' watchdog over D3D12: a submit with more than `mostWorkgroups` takes the driver too long, and the device is
 * lost.
 */
export function watchedDevice(device: GPUDevice, mostWorkgroups: number): GPUDevice {
  const counted = new WeakMap<GPUCommandBuffer, number>()
  const losing = new EventTarget()
  const lost = new Promise<Pick<GPUDeviceLostInfo, 'reason' | 'message'>>((resolve) => {
    losing.addEventListener('lost', () => resolve({ reason: 'unknown', message: 'the driver was reset' }))
  })
  const queue = around(device.queue, {
    submit: (buffers: GPUCommandBuffer[]) => {
      const workgroups = buffers.reduce((sum, buffer) => sum + (counted.get(buffer) ?? 0), 0)
      if (workgroups <= mostWorkgroups) return device.queue.submit(buffers)
      device.destroy()
      losing.dispatchEvent(new Event('lost'))
    },
  })
  return around(device, {
    queue,
    lost,
    createCommandEncoder: () => {
      const encoder = device.createCommandEncoder()
      let workgroups = 0
      return around(encoder, {
        beginComputePass: () => {
          const pass = encoder.beginComputePass()
          return around(pass, {
            dispatchWorkgroups: (x: number, y = 1) => {
              workgroups += x * y
              pass.dispatchWorkgroups(x, y)
            },
          })
        },
        finish: () => {
          const buffer = encoder.finish()
          counted.set(buffer, workgroups)
          return buffer
        },
      })
    },
  })
}

/** A device that has no memory for its n-th buffer and those after it, until `times` were refused. */
export function crampedDevice(device: GPUDevice, { buffers, times }: { buffers: number; times: number }): GPUDevice {
  let made = 0
  let left = times
  let isShort = false
  return around(device, {
    pushErrorScope: (filter: GPUErrorFilter) => {
      isShort = false
      device.pushErrorScope(filter)
    },
    createBuffer: (descriptor: GPUBufferDescriptor) => {
      made++
      if (made >= buffers && left > 0) isShort = true
      return device.createBuffer(descriptor)
    },
    popErrorScope: async () => {
      const short = isShort
      isShort = false
      const error = await device.popErrorScope()
      if (!short) return error
      left--
      return { message: 'pretended' }
    },
  })
}
