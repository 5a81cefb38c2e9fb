// Vectors through the encoding kernels alone, for tests and measurements: in from the CPU, bytes back to it.
import { BufferOwner } from '../src/gpu/buffers.ts'
import { encodingCut } from '../src/gpu/encoding-cut.ts'
import { Readback } from '../src/gpu/readback.ts'
import { RunEncoder, type RunEncoderParts } from '../src/gpu/run-encoder.ts'
import type { AdapterEncoding } from '../src/graph/executor.ts'

const MAP_READ_MODE = 0x1

export class GpuEncoding {
  readonly #device: GPUDevice
  readonly #owner: BufferOwner
  readonly #readback: Readback
  readonly #encoder: RunEncoder

  /** `lengths`: of the runs that are encoded one by one */
  static async open(
    { device, readText }: Omit<RunEncoderParts, 'owner'>,
    encoding: AdapterEncoding,
    lengths: readonly number[],
  ): Promise<GpuEncoding> {
    const owner = new BufferOwner(device)
    return new GpuEncoding(
      device,
      owner,
      await RunEncoder.create({ device, owner, readText }, encoding, encodingCut(encoding, lengths)),
    )
  }

  private constructor(device: GPUDevice, owner: BufferOwner, encoder: RunEncoder) {
    this.#device = device
    this.#owner = owner
    this.#readback = new Readback(device, owner)
    this.#encoder = encoder
  }

  load(values: Float32Array<ArrayBuffer>): void {
    this.#device.queue.writeBuffer(this.#encoder.input, 0, values)
  }

  /** The bytes of each run of what was loaded last. */
  encode(): Promise<Uint8Array[]> {
    const { cut, output } = this.#encoder
    return this.#read(
      { source: output, bytes: 4 * cut.words, record: (encoder) => this.#encoder.record(encoder) },
      (bytes) => cut.runs.map((run) => bytes.slice(run.byteOffset, run.byteOffset + run.bytes)),
    )
  }

  /** What was loaded last, as it is: what encoding before read-back is compared with. */
  plain(): Promise<Float32Array> {
    const { cut, input } = this.#encoder
    return this.#read(
      { source: input, bytes: 4 * cut.floats, record: () => undefined },
      (bytes) => new Float32Array(bytes.slice().buffer),
    )
  }

  swap(): void {
    this.#encoder.swap()
  }

  close(): void {
    this.#owner.destroy()
  }

  async #read<T>(
    {
      source,
      bytes,
      record,
    }: { readonly source: GPUBuffer; readonly bytes: number; readonly record: (encoder: GPUCommandEncoder) => void },
    take: (bytes: Uint8Array) => T,
  ): Promise<T> {
    const buffer = await this.#readback.acquire(bytes)
    const encoder = this.#device.createCommandEncoder()
    record(encoder)
    encoder.copyBufferToBuffer(source, 0, buffer, 0, bytes)
    this.#device.queue.submit([encoder.finish()])
    await buffer.mapAsync(MAP_READ_MODE)
    const taken = take(new Uint8Array(buffer.getMappedRange()))
    buffer.unmap()
    this.#readback.release(buffer, bytes)
    return taken
  }
}
