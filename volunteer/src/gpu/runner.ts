// Runs a graph on a WebGPU device. Each run, or early piece of the gradient, is one command buffer, one compute pass
// and one submit, and creates nothing.
import { type Precision, SerialQueue, systemClock } from '@starling-grid/protocol'
import { type AdapterTraits, lastSize, type OptimizerSpec, type PackedStorage } from '@starling-grid/shaders'
import { savingsText } from '../graph/attempts.ts'
import type { Graph } from '../graph/build.ts'
import type { VariantSelector } from '../graph/choice.ts'
import type { EncodeRequest } from '../graph/executor.ts'
import { loadConstants } from '../graph/fixed.ts'
import { gather, type SegmentPiece, segmentPieces } from '../graph/flat-views.ts'
import { OutOfDeviceMemory } from '../graph/out-of-device-memory.ts'
import type { Packing } from '../graph/packed.ts'
import {
  type AdapterLimits,
  defaultMicroBatch,
  MAX_WORK,
  planBytes,
  planGraph,
  type Plan,
  type PlannedPass,
  type Resource,
} from '../graph/plan.ts'
import { type DeviceTrouble, NO_TROUBLE } from '../graph/renewed-executor.ts'
import type { GraphRunner, ResidentVectors, RunRequest, Values } from '../graph/runner.ts'
import type { Tensor } from '../graph/tensor.ts'
import { placeColumns } from '../graph/vocabulary.ts'
import { BufferOwner } from './buffers.ts'
import { Completion } from './completion.ts'
import { DeviceWatch } from './device.ts'
import type { GradientEncoders, GradientEncodersParts, ReadyEncoder } from './gradient-encoders.ts'
import { hasMatrixUnits } from './matrix-units.ts'
import type { ReadText } from './pipelines.ts'
import { type BufferPiece, bufferPieces, createProgram, type Program } from './program.ts'
import { Readback, ringLengths } from './readback.ts'
import type { ResidentState } from './resident-state.ts'
import { type EncodedSection, type LogitsPiece, type Section, sectionsOf } from './sections.ts'
import { SUBMIT_MS, SubmitPace } from './submit-pace.ts'
import { inSubmits, type SubmitPiece } from './submit-pieces.ts'
import type { ParameterUpload } from './upload.ts'

/**
 * What an adapter said of itself when it was asked for. Hosts bring it, because some Safari 26 have no
 * `GPUDevice.adapterInfo`.
 */
export interface AdapterFacts extends Partial<
  Pick<GPUAdapterInfo, 'vendor' | 'architecture' | 'device' | 'description' | 'subgroupMinSize' | 'subgroupMaxSize'>
> {
  /** what its matrix units multiply (matrix-units.ts); not in WebGPU's types */
  readonly subgroupMatrixConfigs?: unknown
}

/** What a plan may use. */
interface PlanBounds {
  /** samples of one run at most; larger batches run in pieces */
  readonly maxMicroBatch?: number
  /** of the device's memory, as its owner allows; absent: what the adapter has */
  readonly maxBytes?: number
  /** how values between kernels are stored; absent: f32 */
  readonly precision?: Precision
  /** of buffers and bindings; absent: those of the device */
  readonly limits?: AdapterLimits
  /**
   * keep less and compute it again in backward: less memory, more time, equal bits; absent: where the memory does not
   * suffice otherwise
   */
  readonly recompute?: boolean
  /** how frozen matrices can lie; absent: as f32 alone */
  readonly packing?: Packing | undefined
}

export interface GpuRunnerOptions extends PlanBounds {
  readonly device: GPUDevice
  readonly graph: Graph
  /** the host's way to the text of a kernel file */
  readonly readText: ReadText
  /** no GPU stands behind the device; absent: unknown, and taken for one */
  readonly software?: boolean
  /** absent: what the device says */
  readonly facts?: AdapterFacts | undefined
  /** what happened to this adapter before: it is asked for less at once */
  readonly trouble?: DeviceTrouble
  /** ms that one submit may keep a GPU busy, asked before each; absent: SUBMIT_MS */
  readonly submitMs?: (() => number) | undefined
  /** absent: the first guess for the adapter */
  readonly choose?: VariantSelector
  /** told what people should know: that the adapter lacks memory */
  readonly say?: (text: string) => void
}

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT

/** @throws GridError('adapter-limit') when the adapter cannot hold the model */
export async function createGpuRunner(options: GpuRunnerOptions): Promise<GpuRunner> {
  const plan = planFor(options)
  const saved = savingsText(plan, options)
  if (saved !== undefined) options.say?.(saved)
  return openSmaller(options, afterShortages(options, plan))
}

/** From a plan down to the first that the device has memory for. */
async function openSmaller(options: GpuRunnerOptions, plan: Plan): Promise<GpuRunner> {
  try {
    return await openRunner(options, plan)
  } catch (error) {
    const smaller = error instanceof OutOfDeviceMemory ? lessThan(plan, options) : undefined
    if (smaller === undefined) throw error
    options.say?.(`The adapter has no memory for ${plan.capacity} samples at a time; ${smaller.what}.`)
    const reduced = { ...options, ...smaller.options }
    return openSmaller(reduced, planFor(reduced))
  }
}

/** A device that had no memory in the midst of a run is opened with so many times less. */
function afterShortages(options: GpuRunnerOptions, plan: Plan): Plan {
  const { shortages } = options.trouble ?? NO_TROUBLE
  const smaller = shortages === 0 ? undefined : lessThan(plan, options)
  if (smaller === undefined) return plan
  const reduced = { ...options, ...smaller.options, trouble: { losses: 0, shortages: shortages - 1 } }
  return afterShortages(reduced, planFor(reduced))
}

/** What takes less of the device's memory than a plan that was made with `options`; undefined: nothing does. */
function lessThan(
  { graph, capacity, recomputed, fixed, buffers }: Plan,
  { recompute = false, packing }: GpuRunnerOptions,
): { readonly what: string; readonly options: Partial<GpuRunnerOptions> } | undefined {
  const sum = (all: readonly number[]): number => all.reduce((bytes, one) => bytes + one, 0)
  const packed =
    packing === undefined || graph.packed !== undefined
      ? undefined
      : { what: `keeping the base model in ${packing.storage}`, options: { packing: { ...packing, pieces: true } } }
  // Halving what is small beside the parameters saves little.
  if (packed && (capacity === 1 || sum(fixed) > sum(buffers))) return packed
  // Not every graph has values that can be computed again.
  const again =
    recomputed || recompute
      ? undefined
      : {
          what: 'computing some values again instead of keeping them',
          options: { maxMicroBatch: capacity, recompute: true },
        }
  if (graph.mixesSamples && again) return again
  if (capacity === 1) return again
  const half = Math.ceil(capacity / 2)
  return { what: `trying ${half}`, options: { maxMicroBatch: half } }
}

function planFor({
  device,
  graph,
  software = false,
  facts,
  choose,
  precision = 'f32',
  recompute = false,
  packing,
  maxMicroBatch = defaultMicroBatch(software),
  maxBytes = Number.POSITIVE_INFINITY,
  limits = device.limits,
}: GpuRunnerOptions): Plan {
  return planGraph(graph, {
    traits: traitsOf(device, software, facts),
    limits,
    maxMicroBatch,
    maxBytes,
    precision,
    recompute,
    packing,
    ...(choose ? { choose } : {}),
  })
}

async function openRunner(options: GpuRunnerOptions, plan: Plan): Promise<GpuRunner> {
  const { device, graph, readText, precision = 'f32', say } = options
  const watch = new DeviceWatch(device)
  const owner = new BufferOwner(device)
  try {
    const program = await createProgram(device, plan, owner, readText)
    const readback = new Readback(device, owner)
    await reserveStaging(readback, plan)
    watch.check()
    const encoding = { device, readText, say }
    const submits = submitsOf(options)
    const upload = await uploadFor(options, plan, { owner, targets: program.buffers.parameters })
    const runner = new GpuRunner({
      ...{ graph, plan, precision, program, watch, owner, readback, encoding, submits, upload },
      maxBytes: options.maxBytes ?? Number.POSITIVE_INFINITY,
      software: options.software ?? false,
    })
    loadConstants(runner)
    return runner
  } catch (error) {
    owner.destroy()
    watch.stop()
    throw error
  }
}

/** Bytes of parameters from which memory of their own is worth it: smaller writes fit what Dawn has at hand. */
const LEAST_UPLOAD_BYTES = 8 * 1024 * 1024

/** Of memory that parameters are uploaded from. A software adapter would copy them twice. */
export function uploadBytes({ flat }: Plan, software: boolean): number {
  const bytes = FLOAT_BYTES * flat.deviceLength
  return software || bytes < LEAST_UPLOAD_BYTES ? 0 : bytes
}

/** Few models are large enough: pages load how when one is. */
async function uploadFor(
  { device, software = false, say }: GpuRunnerOptions,
  plan: Plan,
  { owner, targets }: { readonly owner: BufferOwner; readonly targets: readonly GPUBuffer[] },
): Promise<ParameterUpload | undefined> {
  if (uploadBytes(plan, software) === 0) return undefined
  try {
    return await (await import('./upload.ts')).ParameterUpload.create(device, owner, targets)
  } catch (error) {
    if (!(error instanceof OutOfDeviceMemory)) throw error
    say?.('The device has no memory for uploads of its own: loading parameters takes longer.')
    return undefined
  }
}

/** The staging of a training run, so that a device without memory for it gets a smaller plan and not a failed step. */
async function reserveStaging(readback: Readback, plan: Plan): Promise<void> {
  await readback.reserve(stagingSizes(plan))
}

/** Bytes of the staging buffers of a training run. */
function stagingSizes(plan: Plan): number[] {
  return trainingSections(plan).map(({ bytes }) => bytes)
}

function trainingSections(plan: Plan): Section[] {
  const { lossTensors, parameterCount: length } = plan.graph
  if (lossTensors === undefined) return []
  const read = [lossTensors.loss, lossTensors.correct]
  const request = { samples: plan.capacity, parts: ['forward', 'loss', 'backward'] as const, read }
  return sectionsOf(plan, { ...request, gradientInto: { length } })
}

/** Bytes of all staging buffers that training takes at most. */
export function stagingBytes(plan: Plan): number {
  return [...ringLengths(stagingSizes(plan))].reduce((sum, [bytes, count]) => sum + bytes * count, 0)
}

/** A software adapter blocks no screen: what it is given at once is bounded by its driver's patience alone. */
function submitsOf({ software = false, submitMs = () => SUBMIT_MS, trouble = NO_TROUBLE }: GpuRunnerOptions) {
  const halvings = 2 ** trouble.losses
  return software
    ? { workInSubmit: () => MAX_WORK / halvings, measured: () => undefined }
    : pacedSubmits(new SubmitPace(), () => submitMs() / halvings)
}

interface Submits {
  /** of one submit, for now */
  workInSubmit(): number
  measured: SubmitPace['measured']
}

function pacedSubmits(pace: SubmitPace, ms: () => number): Submits {
  return {
    workInSubmit: () => Math.min(MAX_WORK, pace.workIn(ms())),
    measured: (work, times) => pace.measured(work, times),
  }
}

/** Vendors whose compute units have so few registers that 8 × 8 results of an invocation do not fit. */
const FEW_REGISTERS = /^(intel|qualcomm|arm|img-tec|imagination|broadcom|samsung)/i

export function traitsOf(
  { features, limits, adapterInfo }: GPUDevice,
  software: boolean,
  facts: AdapterFacts | undefined = adapterInfo,
): AdapterTraits {
  const { maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup } = limits
  const { vendor = '', subgroupMinSize, subgroupMaxSize, subgroupMatrixConfigs: configs } = facts ?? {}
  const isFixed = features.has('subgroups') && subgroupMinSize !== undefined && subgroupMinSize === subgroupMaxSize
  const subgroupSize = isFixed ? subgroupMinSize : undefined
  return {
    software,
    features: new Set(features),
    maxComputeWorkgroupStorageSize,
    maxComputeInvocationsPerWorkgroup,
    fewRegisters: FEW_REGISTERS.test(vendor),
    ...(subgroupSize === undefined ? {} : { subgroupSize }),
    ...(hasMatrixUnits({ features, subgroupSize, configs }) ? { matrixUnits: true } : {}),
  }
}

interface EncodeOptions {
  readonly samples: number
  readonly clearGradient: boolean
  /** of the runs of this section that are encoded */
  readonly ready: ReadyEncoder | undefined
}

interface GpuRunnerParts {
  readonly graph: Graph
  readonly plan: Plan
  readonly precision: Precision
  readonly program: Program
  readonly watch: DeviceWatch
  readonly owner: BufferOwner
  readonly readback: Readback
  readonly encoding: GradientEncodersParts
  readonly submits: Submits
  readonly upload: ParameterUpload | undefined
  /** bytes of the device's memory that its owner allows */
  readonly maxBytes: number
  readonly software: boolean
}

export class GpuRunner implements GraphRunner {
  readonly graph: Graph
  readonly capacity: number
  readonly precision: Precision
  readonly #plan: Plan
  readonly #program: Program
  readonly #watch: DeviceWatch
  readonly #owner: BufferOwner
  readonly #readback: Readback
  readonly packed: PackedStorage | undefined
  readonly #completion: Completion
  readonly #submits: Submits
  readonly #encoding: GradientEncodersParts
  readonly #upload: ParameterUpload | undefined
  readonly #parameterPieces: readonly ParameterPiece[]
  readonly #maxBytes: number
  readonly #software: boolean
  #encoders: GradientEncoders | undefined
  #resident: ResidentState | undefined
  /** runs submit in the order in which they were asked for */
  readonly #tasks = new SerialQueue()
  /** tasks that wait for their turn */
  #waiting = 0

  constructor(parts: GpuRunnerParts) {
    const { graph, plan, precision, program, watch, owner, readback, encoding, submits, upload } = parts
    this.#maxBytes = parts.maxBytes
    this.#software = parts.software
    this.graph = graph
    this.capacity = plan.capacity
    this.precision = precision
    this.packed = plan.graph.packed
    this.#plan = plan
    this.#program = program
    this.#watch = watch
    this.#owner = owner
    this.#encoding = encoding
    this.#submits = submits
    this.#readback = readback
    this.#upload = upload
    this.#parameterPieces = parameterPieces(plan)
    this.#completion = new Completion(watch.device)
  }

  /** Device buffers alive, for tests of leaks. */
  get liveBuffers(): number {
    return this.#owner.count + (this.#encoders?.liveBuffers ?? 0) + (this.#resident?.liveBuffers ?? 0)
  }

  loadParameters(flat: Float32Array): void {
    if (this.#waiting === 0) return this.#writeParameters(plain(flat))
    const kept = flat.slice()
    void this.#inTurn(async () => this.#writeParameters(kept))
  }

  loadFixed(index: number, values: Values): void {
    const buffer = this.#program.buffers.fixed[index]
    if (buffer) this.#queue.writeBuffer(buffer, 0, plain(values))
  }

  async run(request: RunRequest): Promise<Float32Array[]> {
    if (request.samples > this.capacity)
      throw new Error(`internal: ${request.samples} samples exceed the capacity of ${this.capacity}`)
    const reads = await this.#inTurn(() => this.#submit(request))
    return this.#joined(request, await Promise.all(reads))
  }

  /** In the order of what was asked for; the output of pieces in its place. */
  #joined({ read = [], samples }: RunRequest, sections: readonly SectionValues[]): Float32Array[] {
    const values = sections.flatMap((section) => (section.piece === undefined ? section.values : []))
    const pieces = sections.filter(({ piece }) => piece !== undefined)
    if (pieces.length === 0) return values
    const { output } = this.#plan.graph
    const logits = new Float32Array(samples * output.size)
    for (const {
      piece,
      values: [found],
    } of pieces)
      if (piece && found) placeColumns(logits, lastSize(output.shape), { ...piece, values: found })
    return read.map((tensor) => (tensor.storage === output.storage ? logits : (values.shift() ?? new Float32Array())))
  }

  /**
   * The one before is given up. Few jobs have inner steps: pages load how when one does. Of a software adapter the
   * parameters are in the host's memory anyway, and the host's update is faster than its kernels.
   */
  async resident(optimizer: OptimizerSpec): Promise<ResidentVectors | undefined> {
    if (this.#software) return undefined
    const { ResidentState, residentBytes } = await import('./resident-state.ts')
    this.#resident?.destroy()
    this.#resident = undefined
    const [plan, watch] = [this.#plan, this.#watch]
    const needed = residentBytes(plan, optimizer)
    const uploads = this.#upload === undefined ? 0 : uploadBytes(plan, false)
    const has = this.#maxBytes - planBytes(plan) - stagingBytes(plan) - uploads
    try {
      if (needed > has) throw new OutOfDeviceMemory(needed, `${Math.max(0, has)} bytes of what it may use are left.`)
      this.#resident = await ResidentState.create(
        {
          watch,
          plan,
          completion: this.#completion,
          readback: this.#readback,
          readText: this.#encoding.readText,
          buffers: this.#program.buffers,
          sections: trainingSections(plan),
          write: (flat, segments) => this.#writeSegments(plain(flat), segments),
          inTurn: (task) => this.#inTurn(task),
        },
        optimizer,
      )
    } catch (error) {
      if (!(error instanceof OutOfDeviceMemory)) throw error
      this.#encoding.say?.(`Inner steps go over the processor: ${error.message}`)
    }
    return this.#resident
  }

  destroy(): void {
    this.#watch.stop()
    this.#encoders?.destroy()
    this.#resident?.destroy()
    this.#owner.destroy()
  }

  get #queue(): GPUQueue {
    return this.#watch.device.queue
  }

  #inTurn<T>(task: () => Promise<T>): Promise<T> {
    this.#waiting++
    return this.#tasks.run(task).finally(() => {
      this.#waiting--
    })
  }

  /** Few jobs encode: pages load how when one does. */
  async #encodersFor(order: EncodeRequest): Promise<readonly (ReadyEncoder | undefined)[] | undefined> {
    this.#encoders ??= new (await import('./gradient-encoders.ts')).GradientEncoders(this.#encoding)
    return this.#encoders.ready(order)
  }

  /** A section is read while the device computes those behind it. */
  async #submit(request: RunRequest): Promise<Promise<SectionValues>[]> {
    this.#watch.check()
    const { encode } = request.early ?? {}
    const encoders = encode && (await this.#watch.during(this.#encodersFor(encode)))
    const sections = sectionsOf(
      this.#plan,
      request,
      encoders?.map((ready) => ready?.encoder.cut),
    )
    const reads: Promise<SectionValues>[] = []
    for (const [index, section] of sections.entries()) {
      const buffer = await this.#readback.acquire(section.bytes)
      if (index === 0) this.#prepare(request)
      const options = { samples: request.samples, clearGradient: index === 0 && request.clearGradient === true }
      const submitted = systemClock.now()
      this.#submitSection(section, buffer, {
        ...options,
        ready: section.final === undefined ? undefined : encoders?.[section.final],
      })
      const work = (workOf(section.passes) * request.samples) / this.capacity
      const ended = (): void => this.#submits.measured(work, { submitted, end: systemClock.now() })
      const before = reads.at(-1)
      const read = this.#read(request, section, { buffer, before, ended }).then(({ values, encoded }) => {
        if (section.final !== undefined) request.early?.onFinal(section.final, encoded)
        return { values, piece: section.piece }
      })
      read.catch(() => undefined) // the caller of the run gets it, also when a later submit fails first
      reads.push(read)
    }
    return reads
  }

  #prepare({ write, samples, lossScale = 1, clearGradient = false }: RunRequest): void {
    for (const [tensor, values] of write) this.#write(tensor, values)
    this.#program.setScalars(this.#queue, { samples, lossScale, adds: !clearGradient })
  }

  /** In pieces that each keep the device busy for a moment only: what its owner sees is drawn between them. */
  #submitSection(section: Section, buffer: GPUBuffer, options: EncodeOptions): void {
    const pieces = inSubmits(section.passes, this.#submits.workInSubmit())
    for (const [index, piece] of pieces.entries()) {
      const encoder = this.#watch.device.createCommandEncoder()
      if (index === 0 && options.clearGradient) this.#clearGradient(encoder)
      this.#encodePasses(encoder, piece, options.samples)
      if (index === pieces.length - 1) this.#encodeCopies(encoder, section, { buffer, ready: options.ready })
      this.#queue.submit([encoder.finish()])
    }
  }

  #clearGradient(encoder: GPUCommandEncoder): void {
    for (const { start, end } of this.#plan.cleared)
      for (const { buffer, byteOffset, bytes } of this.#piecesOf(gradientBytes(start, end - start)))
        encoder.clearBuffer(buffer, byteOffset, bytes)
  }

  #encodePasses(encoder: GPUCommandEncoder, piece: SubmitPiece, samples: number): void {
    if (piece.passes.length === 0) return
    const pass = encoder.beginComputePass()
    this.#program.encode(pass, piece, samples)
    pass.end()
  }

  #encodeCopies(
    encoder: GPUCommandEncoder,
    { copies, encoded }: Section,
    { buffer, ready }: { readonly buffer: GPUBuffer; readonly ready: ReadyEncoder | undefined },
  ): void {
    for (const { source, offset } of copies)
      for (const piece of this.#piecesOf(source))
        if (piece.bytes > 0)
          encoder.copyBufferToBuffer(piece.buffer, piece.byteOffset, buffer, offset + piece.from, piece.bytes)
    if (encoded && ready) this.#encodeRuns(encoder, encoded, ready)
    if (encoded && ready) encoder.copyBufferToBuffer(ready.encoder.output, 0, buffer, encoded.offset, encoded.bytes)
  }

  #encodeRuns(encoder: GPUCommandEncoder, { inputs }: EncodedSection, { encoder: runs, forgets }: ReadyEncoder): void {
    let at = 0
    for (const { deviceStart, length } of inputs) {
      for (const piece of this.#piecesOf(gradientBytes(deviceStart, length)))
        encoder.copyBufferToBuffer(piece.buffer, piece.byteOffset, runs.input, at + piece.from, piece.bytes)
      at += FLOAT_BYTES * length
    }
    if (forgets) runs.forget(encoder)
    runs.record(encoder)
  }

  async #read(
    { gradientInto }: RunRequest,
    { copies, bytes, gradient, encoded }: Section,
    { buffer, before, ended }: SectionRead,
  ): Promise<{ readonly values: Float32Array[]; readonly encoded?: readonly Uint8Array[] }> {
    try {
      await Promise.all([this.#watch.during(this.#completion.map(buffer)).then(ended), before])
      const range = buffer.getMappedRange()
      const mapped = new Float32Array(range)
      const results = copies.map(({ source, offset }) => mapped.subarray(offset / 4, (offset + source.bytes) / 4))
      const piece = gradient && results.pop()
      if (gradientInto && gradient && piece) gather(this.#plan.flat, gradient, piece, gradientInto)
      if (!gradientInto || !encoded) return { values: results.map((result) => result.slice()) }
      placeFloats(encoded, results.splice(results.length - encoded.floats.length), gradientInto)
      return {
        values: results.map((result) => result.slice()),
        encoded: encoded.runs.map((run) => new Uint8Array(range, encoded.offset + run.byteOffset, run.bytes).slice()),
      }
    } finally {
      buffer.unmap()
      this.#readback.release(buffer, bytes)
    }
  }

  /** Each to its place: one copy less than to bring all of them into the device's order first. */
  #writeParameters(flat: Float32Array<ArrayBuffer>): void {
    const pieces = this.#parameterPieces
    const isUploaded = this.#upload?.write((targets) => {
      for (const { segment, start, first, length } of pieces)
        targets[segment]?.set(flat.subarray(first, first + length), start)
    })
    if (isUploaded !== true) this.#writeSegments(flat, this.#program.buffers.parameters)
  }

  #writeSegments(flat: Float32Array<ArrayBuffer>, segments: readonly GPUBuffer[]): void {
    for (const { segment, start, first, length } of this.#parameterPieces) {
      const buffer = segments[segment]
      if (buffer) this.#queue.writeBuffer(buffer, FLOAT_BYTES * start, flat, first, length)
    }
  }

  #write(tensor: Tensor, values: Values): void {
    const place = this.#plan.placement.get(tensor.storage)
    if (!place) throw new Error(`internal: ${tensor.name} has no buffer`)
    for (const { buffer, byteOffset } of this.#piecesOf({ kind: 'pooled', ...place, bytes: values.byteLength }))
      this.#queue.writeBuffer(buffer, byteOffset, plain(values))
  }

  #piecesOf(source: Resource): BufferPiece[] {
    return bufferPieces(source, this.#program.buffers, this.#plan)
  }
}

interface ParameterPiece extends SegmentPiece {
  /** its first element in the layout */
  readonly first: number
}

/** Where the parameters of a layout lie on the device. */
function parameterPieces({ flat }: Plan): ParameterPiece[] {
  return [...flat.views.values()].flatMap(({ offset, length, deviceOffset }) =>
    segmentPieces(flat, { start: deviceOffset, end: deviceOffset + length }).map((piece) => ({
      ...piece,
      first: offset + piece.from,
    })),
  )
}

function gradientBytes(start: number, length: number): Resource {
  return { kind: 'gradient', byteOffset: FLOAT_BYTES * start, bytes: FLOAT_BYTES * length }
}

/** Zeros where runs were encoded: they come as bytes. */
function placeFloats({ inputs, floats }: EncodedSection, values: readonly Float32Array[], into: Float32Array): void {
  for (const { start, length } of inputs) into.fill(0, start, start + length)
  for (const [i, { start }] of floats.entries()) into.set(values[i] ?? [], start)
}

/** The queue takes no views of shared memory. */
function plain(values: Float32Array): Float32Array<ArrayBuffer>
function plain(values: Values): Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>
function plain(values: Values): Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> {
  return values.buffer instanceof ArrayBuffer ? (values as Float32Array<ArrayBuffer>) : values.slice()
}

interface SectionValues {
  readonly values: Float32Array[]
  readonly piece: LogitsPiece | undefined
}

interface SectionRead {
  readonly buffer: GPUBuffer
  /** the section before it, which is handed out first */
  readonly before: Promise<unknown> | undefined
  /** its work is done */
  readonly ended: () => void
}

function workOf(passes: readonly PlannedPass[]): number {
  return passes.reduce((sum, { work }) => sum + work, 0)
}
