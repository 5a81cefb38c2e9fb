// Runs a graph on a WebGPU device: per run one command buffer, one compute pass, one submit, and nothing created.

import type { AdapterTraits } from '@starling-grid/shaders'
import type { Graph } from '../graph/build.ts'
import type { Choose } from '../graph/choice.ts'
import type { Precision } from '../graph/half.ts'
import { gather, spread } from '../graph/flat-views.ts'
import { planGraph, type Plan } from '../graph/plan.ts'
import type { GraphRunner, RunRequest, Values } from '../graph/runner.ts'
import { lengthFor, type Tensor } from '../graph/tensor.ts'
import { BufferOwner, OutOfDeviceMemory } from './buffers.ts'
import { DeviceWatch } from './device.ts'
import { MAP_READ_MODE } from './flags.ts'
import type { ReadText } from './pipelines.ts'
import { createProgram, type Program } from './program.ts'
import { Readback } from './readback.ts'

/** Samples of one run unless memory asks for fewer: enough to keep a software adapter and most GPUs busy. */
export const DEFAULT_MICRO_BATCH = 64

export interface GpuRunnerOptions {
  readonly device: GPUDevice
  readonly graph: Graph
  readonly readText: ReadText
  /** no GPU stands behind the device; absent: unknown, and taken for one */
  readonly software?: boolean
  /** absent: the first guess for the adapter */
  readonly choose?: Choose
  readonly maxMicroBatch?: number
  /** absent: f32 */
  readonly precision?: Precision
  /** keep less and compute it again in backward */
  readonly recompute?: boolean
  /** told what people should know: that the adapter lacks memory */
  readonly say?: (text: string) => void
}

/** @throws GridError('adapter-limit') when the adapter cannot hold the model */
export async function createGpuRunner(options: GpuRunnerOptions): Promise<GpuRunner> {
  const plan = planFor(options)
  try {
    return await openRunner(options, plan)
  } catch (error) {
    if (!(error instanceof OutOfDeviceMemory) || plan.capacity === 1) throw error
    const smaller = Math.ceil(plan.capacity / 2)
    options.say?.(`The adapter has no memory for ${plan.capacity} samples at a time; trying ${smaller}.`)
    return openRunner(options, planFor({ ...options, maxMicroBatch: smaller }))
  }
}

function planFor({ device, graph, software = false, choose, precision = 'f32', recompute = false, maxMicroBatch = DEFAULT_MICRO_BATCH }: GpuRunnerOptions): Plan {
  return planGraph(graph, { traits: traitsOf(device, software), limits: device.limits, maxMicroBatch, precision, recompute, ...(choose ? { choose } : {}) })
}

async function openRunner({ device, graph, readText, precision = 'f32' }: GpuRunnerOptions, plan: Plan): Promise<GpuRunner> {
  const watch = new DeviceWatch(device)
  const owner = new BufferOwner(device)
  try {
    const program = await createProgram(device, plan, owner, readText)
    watch.check()
    return new GpuRunner({ graph, plan, precision, program, watch, owner })
  } catch (error) {
    owner.destroy()
    watch.stop()
    throw error
  }
}

export function traitsOf({ features, limits }: GPUDevice, software: boolean): AdapterTraits {
  const { maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup } = limits
  return { software, features: new Set(features), maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup }
}

interface GpuRunnerParts {
  readonly graph: Graph
  readonly plan: Plan
  readonly precision: Precision
  readonly program: Program
  readonly watch: DeviceWatch
  readonly owner: BufferOwner
}

export class GpuRunner implements GraphRunner {
  readonly graph: Graph
  readonly capacity: number
  readonly precision: Precision
  private readonly plan: Plan
  private readonly program: Program
  private readonly watch: DeviceWatch
  private readonly owner: BufferOwner
  private readonly readback: Readback
  /** runs submit in the order in which they were asked for */
  private turn: Promise<unknown> = Promise.resolve()
  /** tasks that wait for their turn */
  private waiting = 0
  /** parameters in device order; reused while nothing waits that still needs the old ones */
  private readonly upload: Float32Array<ArrayBuffer>

  constructor({ graph, plan, precision, program, watch, owner }: GpuRunnerParts) {
    this.graph = graph
    this.capacity = plan.capacity
    this.precision = precision
    this.plan = plan
    this.program = program
    this.watch = watch
    this.owner = owner
    this.readback = new Readback(owner)
    this.upload = new Float32Array(plan.flat.deviceLength)
  }

  /** Device buffers alive, for tests of leaks. */
  get liveBuffers(): number {
    return this.owner.count
  }

  loadParameters(flat: Float32Array): void {
    const idle = this.waiting === 0
    const upload = idle ? this.upload : new Float32Array(this.upload.length)
    spread(this.plan.flat, flat, upload)
    const write = () => this.queue.writeBuffer(this.program.buffers.parameters, 0, upload)
    if (idle) write()
    else void this.inTurn(async () => write())
  }

  async run(request: RunRequest): Promise<Float32Array[]> {
    if (request.samples > this.capacity) throw new Error(`internal: ${request.samples} samples exceed the capacity of ${this.capacity}`)
    const staging = this.stagingLayout(request)
    const buffer = await this.inTurn(() => this.submit(request, staging))
    try {
      await this.watch.during(buffer.mapAsync(MAP_READ_MODE))
      return this.collect(request, staging, new Float32Array(buffer.getMappedRange()))
    } finally {
      buffer.unmap()
      this.readback.release(buffer, staging.bytes)
    }
  }

  destroy(): void {
    this.watch.stop()
    this.owner.destroy()
  }

  private get queue(): GPUQueue {
    return this.watch.device.queue
  }

  private inTurn<T>(task: () => Promise<T>): Promise<T> {
    this.waiting++
    const done = this.turn.then(task)
    this.turn = done.catch(() => undefined).then(() => { this.waiting-- })
    return done
  }

  private async submit(request: RunRequest, staging: StagingLayout): Promise<GPUBuffer> {
    this.watch.check()
    const buffer = await this.readback.acquire(staging.bytes)
    for (const [tensor, values] of request.write) this.write(tensor, values)
    this.program.setScalars(this.queue, { samples: request.samples, lossScale: request.lossScale ?? 1 })
    this.queue.submit([this.encode(request, staging, buffer)])
    return buffer
  }

  private encode({ samples, parts, clearGradient }: RunRequest, staging: StagingLayout, buffer: GPUBuffer): GPUCommandBuffer {
    const encoder = this.watch.device.createCommandEncoder()
    if (clearGradient) encoder.clearBuffer(this.program.buffers.gradient)
    const pass = encoder.beginComputePass()
    this.program.encode(pass, parts, samples)
    pass.end()
    for (const { source, sourceOffset, offset, bytes } of staging.copies) if (bytes > 0) encoder.copyBufferToBuffer(source, sourceOffset, buffer, offset, bytes)
    return encoder.finish()
  }

  /** Sizes follow the capacity and not the samples: every run of a kind uses the same ring. */
  private stagingLayout({ samples, read = [], gradientInto }: RunRequest): StagingLayout {
    const copies: StagingCopy[] = []
    let bytes = 0
    const add = (from: { buffer: GPUBuffer; byteOffset: number }, used: number, reserved: number) => {
      copies.push({ source: from.buffer, sourceOffset: from.byteOffset, offset: bytes, bytes: used })
      bytes += reserved
    }
    for (const tensor of read) add(this.pooled(tensor), bytesFor(tensor, samples), bytesFor(tensor, this.capacity))
    const { gradient } = this.program.buffers
    if (gradientInto) add({ buffer: gradient, byteOffset: 0 }, gradient.size, gradient.size)
    return { copies, bytes: Math.max(bytes, Float32Array.BYTES_PER_ELEMENT) }
  }

  private collect({ read = [], gradientInto }: RunRequest, { copies }: StagingLayout, mapped: Float32Array): Float32Array[] {
    const results = copies.map(({ offset, bytes }) => mapped.subarray(offset / 4, (offset + bytes) / 4))
    const gradient = results[read.length]
    if (gradientInto && gradient) gather(this.plan.flat, gradient, gradientInto)
    return results.slice(0, read.length).map(result => result.slice())
  }

  private write(tensor: Tensor, values: Values): void {
    const { buffer, byteOffset } = this.pooled(tensor)
    this.queue.writeBuffer(buffer, byteOffset, plain(values))
  }

  private pooled(tensor: Tensor): { buffer: GPUBuffer; byteOffset: number } {
    const place = this.plan.placement.get(tensor.storage)
    const buffer = this.program.buffers.pooled[place?.buffer ?? -1]
    if (!place || !buffer) throw new Error(`internal: ${tensor.name} has no buffer`)
    return { buffer, byteOffset: place.byteOffset }
  }
}

interface StagingCopy {
  readonly source: GPUBuffer
  readonly sourceOffset: number
  /** in the staging buffer */
  readonly offset: number
  readonly bytes: number
}

interface StagingLayout {
  readonly copies: readonly StagingCopy[]
  readonly bytes: number
}

function bytesFor(tensor: Tensor, samples: number): number {
  return lengthFor(tensor, samples) * Float32Array.BYTES_PER_ELEMENT
}

/** The queue takes no views of shared memory. */
function plain(values: Values): Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> {
  return values.buffer instanceof ArrayBuffer ? (values as Float32Array<ArrayBuffer>) : values.slice()
}
