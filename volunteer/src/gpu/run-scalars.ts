// The scalars of a run, `run` in every shader. WGSL immediates where the device has them, which cost no write to a
// buffer; else one uniform that is written when they change.

import type { BufferOwner } from './buffers.ts'
import { BUFFER_USAGE } from './flags.ts'

/** struct Run { samples: u32, loss_scale: f32, adds: u32, first: u32 } */
export const RUN_BYTES = 16
/** WebGPU binds uniforms of 16 bytes and more everywhere. */
const UNIFORM_BYTES = 16

export interface RunValues {
  readonly samples: number
  readonly lossScale: number
  /** gradients are added to what is there: not in the first run of a sum */
  readonly adds: boolean
}

/** Newer than the types of the library. */
interface ImmediateEncoder {
  setImmediates(byteOffset: number, data: ArrayBufferView): void
}

export class RunScalars {
  /** whether shaders find them as immediates */
  readonly immediate: boolean
  /** of every bind group */
  readonly entries: readonly GPUBindGroupEntry[]
  readonly #uniform: GPUBuffer | undefined
  readonly #bytes = new DataView(new ArrayBuffer(RUN_BYTES))
  #written: RunValues = { samples: 0, lossScale: 0, adds: false }
  #first = 0

  constructor(device: GPUDevice, owner: BufferOwner) {
    this.immediate = hasImmediates(device)
    this.#uniform = this.immediate
      ? undefined
      : owner.create(UNIFORM_BYTES, BUFFER_USAGE.UNIFORM | BUFFER_USAGE.COPY_DST, 'run')
    this.entries = this.#uniform ? [{ binding: 0, resource: { buffer: this.#uniform } }] : []
  }

  /** For what is encoded and submitted from now on. */
  set(queue: GPUQueue, values: RunValues): void {
    const { samples, lossScale, adds } = this.#written
    if (values.samples === samples && values.lossScale === lossScale && values.adds === adds) return
    this.#written = values
    this.#bytes.setUint32(0, values.samples, true)
    this.#bytes.setFloat32(4, values.lossScale, true)
    this.#bytes.setUint32(8, Number(values.adds), true)
    if (this.#uniform) queue.writeBuffer(this.#uniform, 0, this.#bytes.buffer)
  }

  /** The first workgroup of what is encoded and submitted from now on. */
  setFirst(queue: GPUQueue, first: number): void {
    if (first === this.#first) return
    this.#first = first
    this.#bytes.setUint32(12, first, true)
    if (this.#uniform) queue.writeBuffer(this.#uniform, 0, this.#bytes.buffer)
  }

  encode(encoder: GPUComputePassEncoder): void {
    if (this.immediate) (encoder as unknown as ImmediateEncoder).setImmediates(0, new Uint8Array(this.#bytes.buffer))
  }
}

function hasImmediates({ limits }: GPUDevice): boolean {
  const max: unknown = Reflect.get(limits, 'maxImmediateSize')
  const encoder: unknown = Reflect.get(globalThis, 'GPUComputePassEncoder')
  const isOffered = typeof encoder === 'function' && 'setImmediates' in (encoder.prototype as object)
  return isOffered && typeof max === 'number' && max >= RUN_BYTES
}
