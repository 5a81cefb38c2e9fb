// The encoders of a gradient's early ranges, made when they are first ordered and again when the cut changes, and the
// losses that they keep. On an adapter where encoding before read-back takes longer than encoding on the CPU there are
// none.

import { systemClock } from '@starling-grid/protocol'
import type { EncodeRequest } from '../graph/executor.ts'
import { OutOfDeviceMemory } from '../graph/out-of-device-memory.ts'
import { BufferOwner } from './buffers.ts'
import { Completion } from './completion.ts'
import { encodingCut } from './encoding-cut.ts'
import type { ReadText } from './pipelines.ts'
import { Readback } from './readback.ts'
import { RunEncoder } from './run-encoder.ts'

/** Trials of each way: the fastest counts, because a volunteer's machine does other things too. */
const TRIALS = 3

export interface GradientEncodersParts {
  readonly device: GPUDevice
  readonly readText: ReadText
  /** told which way is taken */
  readonly say?: ((text: string) => void) | undefined
}

interface MadeEncoder {
  readonly encoding: EncodeRequest['encoding']
  readonly runs: EncodeRequest['runs']
  readonly owner: BufferOwner
  /** of each range; undefined where it has no runs */
  readonly encoders: readonly (RunEncoder | undefined)[]
  residualEpoch: number | undefined
}

export interface ReadyEncoder {
  readonly encoder: RunEncoder
  /** nothing that was lost before joins this time */
  readonly forgets: boolean
}

export class GradientEncoders {
  readonly #parts: GradientEncodersParts
  #made: MadeEncoder | undefined
  #pays: boolean | undefined

  constructor(parts: GradientEncodersParts) {
    this.#parts = parts
  }

  /** Encoders of the order's ranges, with the losses that it names. Undefined: it does not pay on this adapter. */
  async ready(order: EncodeRequest): Promise<readonly (ReadyEncoder | undefined)[] | undefined> {
    const made = await this.#madeFor(order)
    if (made === undefined) return void this.destroy()
    const isNext = made.residualEpoch !== undefined && order.residualEpoch === made.residualEpoch + 1
    if (isNext) for (const encoder of made.encoders) encoder?.swap()
    const forgets = !isNext && order.residualEpoch !== made.residualEpoch
    made.residualEpoch = order.residualEpoch
    return made.encoders.map((encoder) => encoder && { encoder, forgets })
  }

  /** Device buffers alive. */
  get liveBuffers(): number {
    return this.#made?.owner.count ?? 0
  }

  destroy(): void {
    this.#made?.owner.destroy()
    this.#made = undefined
  }

  /** Undefined: the CPU does it, now and later. */
  async #madeFor(order: EncodeRequest): Promise<MadeEncoder | undefined> {
    if (this.#pays === false) return undefined
    try {
      const made = this.#fits(order) ?? (await this.#make(order))
      this.#pays ??= await this.#measure(made, order)
      return this.#pays ? made : undefined
    } catch (error) {
      if (!(error instanceof OutOfDeviceMemory)) throw error
      this.#pays = false
      this.#parts.say?.(
        'The adapter has no memory to encode gradients before they are read back; the CPU encodes them.',
      )
      return undefined
    }
  }

  #fits({ encoding, runs }: EncodeRequest): MadeEncoder | undefined {
    return this.#made?.encoding === encoding && this.#made.runs === runs ? this.#made : undefined
  }

  async #make({ encoding, runs }: EncodeRequest): Promise<MadeEncoder> {
    this.destroy()
    const owner = new BufferOwner(this.#parts.device)
    const make = (lengths: readonly number[]) =>
      RunEncoder.create({ ...this.#parts, owner }, encoding, encodingCut(encoding, lengths))
    const encoders = await Promise.all(
      runs.map((range) => (range.length === 0 ? undefined : make(range.map(({ start, end }) => end - start)))),
    ).catch((error: unknown) => {
      owner.destroy()
      throw error
    })
    this.#made = { encoding, runs, owner, encoders, residualEpoch: undefined }
    return this.#made
  }

  async #measure({ encoders }: MadeEncoder, { cpuMsPerMillion, encoding }: EncodeRequest): Promise<boolean> {
    const [largest] = encoders.filter((encoder) => encoder !== undefined).sort((a, b) => b.cut.floats - a.cut.floats)
    if (largest === undefined) return false
    const owner = new BufferOwner(this.#parts.device)
    const readback = new Readback(this.#parts.device, owner)
    const { cut, input, output } = largest
    this.#parts.device.queue.writeBuffer(
      input,
      0,
      Float32Array.from({ length: cut.floats }, (_, i) => Math.sin(i)),
    ) // zeros would take less
    const encodedMs = await this.#fastest(readback, {
      source: output,
      bytes: 4 * cut.words,
      record: (encoder) => largest.record(encoder),
    })
    const floatsMs =
      (await this.#fastest(readback, { source: input, bytes: 4 * cut.floats, record: () => undefined })) +
      (cpuMsPerMillion * cut.floats) / 1e6
    owner.destroy()
    this.#parts.say?.(
      `${encoding} of ${cut.floats} floats takes ${encodedMs.toFixed(1)} ms on the adapter and ` +
        `${floatsMs.toFixed(1)} ms on the CPU, read-back included.`,
    )
    return encodedMs < floatsMs
  }

  async #fastest(
    readback: Readback,
    {
      source,
      bytes,
      record,
    }: { readonly source: GPUBuffer; readonly bytes: number; readonly record: (encoder: GPUCommandEncoder) => void },
  ): Promise<number> {
    const { device } = this.#parts
    const completion = new Completion(device)
    await device.queue.onSubmittedWorkDone()
    let fastest = Number.POSITIVE_INFINITY
    for (let trial = 0; trial < TRIALS; trial++) {
      const start = systemClock.now()
      const buffer = await readback.acquire(bytes)
      const encoder = device.createCommandEncoder()
      record(encoder)
      encoder.copyBufferToBuffer(source, 0, buffer, 0, bytes)
      device.queue.submit([encoder.finish()])
      await completion.map(buffer)
      buffer.unmap()
      readback.release(buffer, bytes)
      fastest = Math.min(fastest, systemClock.now() - start)
    }
    return fastest
  }
}
