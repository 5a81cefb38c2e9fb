// Counts what a library asks of WebGPU, and how long its JavaScript takes to say it: from the beginning of a command encoder to
// the return of the submit that carries its commands. Works on the interfaces that all libraries of a place share.

export interface GpuCalls {
  readonly dispatches: number
  readonly submits: number
  /** ms between the begin of an encoder and the return of the next submit, added up */
  readonly encodingMs: number
}

const counted = { dispatches: 0, submits: 0, encodingMs: 0 }
let beganAt: number | undefined
let installed = false

export function gpuCalls(): GpuCalls {
  return { ...counted }
}

/** Once, when WebGPU's interfaces are there. */
export function countGpuCalls(): void {
  if (installed) return
  installed = true
  before(GPUDevice.prototype, 'createCommandEncoder', () => { beganAt ??= performance.now() })
  before(GPUComputePassEncoder.prototype, 'dispatchWorkgroups', () => { counted.dispatches++ })
  after(GPUQueue.prototype, 'submit', () => {
    counted.submits++
    if (beganAt !== undefined) counted.encodingMs += performance.now() - beganAt
    beganAt = undefined
  })
}

type Method = (...args: unknown[]) => unknown

function before(owner: object, name: string, note: () => void): void {
  const method = Reflect.get(owner, name) as Method
  Reflect.set(owner, name, function noted(this: unknown, ...args: unknown[]) {
    note()
    return method.apply(this, args)
  })
}

function after(owner: object, name: string, note: () => void): void {
  const method = Reflect.get(owner, name) as Method
  Reflect.set(owner, name, function noted(this: unknown, ...args: unknown[]) {
    const result = method.apply(this, args)
    note()
    return result
  })
}
