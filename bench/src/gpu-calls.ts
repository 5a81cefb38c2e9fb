// Counts a library's calls of WebGPU and times its JavaScript, from the beginning of a command encoder to the submit
// that carries its commands. The submit itself is timed apart. Works on the interfaces that all libraries of a place
// share.

export interface GpuCalls {
  readonly dispatches: number
  readonly submits: number
  /** ms between the begin of an encoder and the next submit, added up */
  readonly encodingMs: number
  /**
   * ms inside of submits: no JavaScript any more. In Node the driver makes its own commands there; in Chromium another
   * process does
   */
  readonly submitMs: number
}

const counted = { dispatches: 0, submits: 0, encodingMs: 0, submitMs: 0 }
let beganAt: number | undefined
let installed = false

export function gpuCalls(): GpuCalls {
  return { ...counted }
}

/** Once, when WebGPU's interfaces are there. */
export function countGpuCalls(): void {
  if (installed) return
  installed = true
  around(GPUDevice.prototype, 'createCommandEncoder', {
    before: () => {
      beganAt ??= performance.now()
    },
  })
  around(GPUComputePassEncoder.prototype, 'dispatchWorkgroups', {
    before: () => {
      counted.dispatches++
    },
  })
  around(GPUQueue.prototype, 'submit', {
    before: noteEncoded,
    after: (ms) => {
      counted.submitMs += ms
    },
  })
}

function noteEncoded(): void {
  counted.submits++
  if (beganAt !== undefined) counted.encodingMs += performance.now() - beganAt
  beganAt = undefined
}

type Method = (...args: unknown[]) => unknown

interface Notes {
  readonly before: () => void
  /** told how long the call took */
  readonly after?: (ms: number) => void
}

function around(fence: object, name: string, { before, after }: Notes): void {
  const method = Reflect.get(fence, name) as Method
  Reflect.set(fence, name, function noted(this: unknown, ...args: unknown[]) {
    before()
    const began = after && performance.now()
    const result = method.apply(this, args)
    if (began !== undefined) after?.(performance.now() - began)
    return result
  })
}
