// Parameters and the optimizer's state that stay on the device from one inner step to the next. They lie beside those
// that runs read, which other tasks replace meanwhile: a run of an inner step gets a copy on the device.
import {
  boundBindings,
  CHUNK_ELEMENTS,
  CHUNK_WORDS,
  type OptimizerSpec,
  type Pass,
  slotNames,
  squaresPass,
  STEP_SCALARS,
  stepPass,
  workgroupGrid,
} from '@starling-grid/shaders'
import { deviceRange, gather } from '../graph/flat-views.ts'
import type { Plan } from '../graph/plan.ts'
import type { ResidentVectors } from '../graph/runner.ts'
import { BufferOwner, withMemoryCheck } from './buffers.ts'
import type { Completion } from './completion.ts'
import type { DeviceWatch } from './device.ts'
import { BUFFER_USAGE } from './flags.ts'
import { type CompiledPass, compilePasses, type ReadText } from './pipelines.ts'
import { type BufferPiece, bufferPieces, type ProgramBuffers } from './program.ts'
import type { Readback } from './readback.ts'
import { residentSpans, type ResidentSpan } from './resident-spans.ts'
import { RunScalars } from './run-scalars.ts'
import type { Section } from './sections.ts'

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT

export interface ResidentStateParts {
  readonly watch: DeviceWatch
  readonly completion: Completion
  readonly readback: Readback
  readonly readText: ReadText
  readonly plan: Plan
  readonly buffers: ProgramBuffers
  /** staging of the gradient, through which parameters come back, too */
  readonly sections: readonly Section[]
  /** writes a layout's vector into the buffers of a flat vector */
  write(flat: Float32Array, segments: readonly GPUBuffer[]): void
  /** in the order of the runs */
  inTurn<T>(task: () => Promise<T>): Promise<T>
}

/** The vectors of the state, each in segments as the parameters. */
interface ResidentBuffers {
  readonly parameters: readonly GPUBuffer[]
  readonly slots: readonly (readonly GPUBuffer[])[]
  readonly scalars: GPUBuffer
  /** of each span */
  readonly chunks: readonly GPUBuffer[]
  readonly partials: readonly GPUBuffer[]
}

interface SpanSteps {
  readonly span: ResidentSpan
  readonly run: RunScalars
  readonly squares: BoundPass
  readonly step: BoundPass
}

interface BoundPass {
  readonly pipeline: GPUComputePipeline
  readonly bindGroup: GPUBindGroup
  readonly grid: { readonly x: number; readonly y: number }
}

/** Bytes of the device's memory that it takes. */
export function residentBytes({ flat }: Plan, optimizer: OptimizerSpec): number {
  const chunks = (2 * flat.deviceLength) / CHUNK_ELEMENTS
  return FLOAT_BYTES * (flat.deviceLength * (1 + slotNames(optimizer).length) + chunks * (CHUNK_WORDS + 1))
}

export class ResidentState implements ResidentVectors {
  readonly #parts: ResidentStateParts
  readonly #owner: BufferOwner
  readonly #buffers: ResidentBuffers
  readonly #steps: readonly SpanSteps[]

  /** Zeros but for the parameters, which hold nothing yet. @throws OutOfDeviceMemory */
  static async create(parts: ResidentStateParts, optimizer: OptimizerSpec): Promise<ResidentState> {
    const { plan, watch } = parts
    const { device } = watch
    const owner = new BufferOwner(device)
    try {
      const spans = residentSpans(plan.flat, plan.graph.parameters, optimizer, device.limits)
      const make = () => createBuffers(owner, plan, { optimizer, spans })
      const buffers = await withMemoryCheck(device, residentBytes(plan, optimizer), make)
      for (const [i, { table }] of spans.entries()) device.queue.writeBuffer(held(buffers.chunks[i]), 0, table)
      const steps = await bindSpans(parts, owner, { optimizer, spans, buffers })
      return new ResidentState(parts, owner, buffers, steps)
    } catch (error) {
      owner.destroy()
      throw error
    }
  }

  // oxlint-disable-next-line max-params -- what `create` made, in its order
  private constructor(
    parts: ResidentStateParts,
    owner: BufferOwner,
    buffers: ResidentBuffers,
    steps: readonly SpanSteps[],
  ) {
    this.#parts = parts
    this.#owner = owner
    this.#buffers = buffers
    this.#steps = steps
  }

  get liveBuffers(): number {
    return this.#owner.count
  }

  set(flat: Float32Array): Promise<void> {
    return this.#parts.inTurn(async () => {
      this.#parts.watch.check()
      this.#parts.write(flat, this.#buffers.parameters)
    })
  }

  use(): Promise<void> {
    return this.#submit((encoder) => {
      for (const [i, from] of this.#buffers.parameters.entries())
        encoder.copyBufferToBuffer(from, 0, held(this.#parts.buffers.parameters[i]), 0, from.size)
    })
  }

  /** In pieces of one span each, so that none keeps the device busy for long. */
  async step(scalars: Float32Array<ArrayBuffer>): Promise<void> {
    const { watch, inTurn } = this.#parts
    await inTurn(async () => {
      watch.check()
      watch.device.queue.writeBuffer(this.#buffers.scalars, 0, scalars)
      for (const { span, run, step } of this.#steps) this.#run((encoder) => dispatch(encoder, span, run, step))
    })
  }

  async squares(): Promise<number | undefined> {
    const bytes = FLOAT_BYTES * this.#steps.reduce((sum, { span }) => sum + span.chunks, 0)
    const values = await this.#brought(bytes, (encoder, into) => {
      let offset = 0
      for (const [i, { span, run, squares }] of this.#steps.entries()) {
        dispatch(encoder, span, run, squares)
        const partials = held(this.#buffers.partials[i])
        encoder.copyBufferToBuffer(partials, 0, into, offset, FLOAT_BYTES * span.chunks)
        offset += FLOAT_BYTES * span.chunks
      }
    })
    return sumOf(values)
  }

  async read(into: Float32Array): Promise<void> {
    const { plan, sections } = this.#parts
    for (const { gradient: range, bytes } of sections) {
      if (range === undefined) continue
      const { start, end } = deviceRange(plan.flat, range)
      const pieces = this.#pieces(start, end)
      const values = await this.#brought(bytes, (encoder, staging) => {
        for (const { buffer, byteOffset, from, bytes: size } of pieces)
          encoder.copyBufferToBuffer(buffer, byteOffset, staging, from, size)
      })
      gather(plan.flat, range, values.subarray(0, end - start), into)
    }
  }

  destroy(): void {
    this.#owner.destroy()
  }

  #pieces(start: number, end: number): BufferPiece[] {
    const { plan, buffers } = this.#parts
    const own = { ...buffers, parameters: this.#buffers.parameters }
    const source = { kind: 'parameters', byteOffset: FLOAT_BYTES * start, bytes: FLOAT_BYTES * (end - start) } as const
    return bufferPieces(source, own, plan)
  }

  #submit(record: (encoder: GPUCommandEncoder) => void): Promise<void> {
    return this.#parts.inTurn(async () => {
      this.#parts.watch.check()
      this.#run(record)
    })
  }

  #run(record: (encoder: GPUCommandEncoder) => void): void {
    const { device } = this.#parts.watch
    const encoder = device.createCommandEncoder()
    record(encoder)
    device.queue.submit([encoder.finish()])
  }

  /** A copy of what `record` puts into a staging buffer of that size. */
  async #brought(bytes: number, record: (encoder: GPUCommandEncoder, into: GPUBuffer) => void): Promise<Float32Array> {
    const { watch, completion, readback, inTurn } = this.#parts
    const buffer = await inTurn(async () => {
      watch.check()
      const free = await watch.during(readback.acquire(bytes))
      this.#run((encoder) => record(encoder, free))
      return free
    })
    try {
      await watch.during(completion.map(buffer))
      return new Float32Array(buffer.getMappedRange()).slice()
    } finally {
      buffer.unmap()
      readback.release(buffer, bytes)
    }
  }
}

/** Undefined: a partial sum says that an element is not finite, or is not finite itself. */
function sumOf(partials: Float32Array): number | undefined {
  let sum = 0
  for (const partial of partials) {
    if (!(partial >= 0)) return undefined
    sum += partial
  }
  return Number.isFinite(sum) ? sum : undefined
}

function dispatch(encoder: GPUCommandEncoder, { chunks }: ResidentSpan, run: RunScalars, bound: BoundPass): void {
  const pass = encoder.beginComputePass()
  run.encode(pass)
  pass.setPipeline(bound.pipeline)
  pass.setBindGroup(0, bound.bindGroup)
  if (chunks > 0) pass.dispatchWorkgroups(bound.grid.x, bound.grid.y)
  pass.end()
}

interface SpanOptions {
  readonly optimizer: OptimizerSpec
  readonly spans: readonly ResidentSpan[]
}

function createBuffers(owner: BufferOwner, { flat }: Plan, { optimizer, spans }: SpanOptions): ResidentBuffers {
  const usage = BUFFER_USAGE.STORAGE | BUFFER_USAGE.COPY_DST | BUFFER_USAGE.COPY_SRC
  const vector = (name: string) =>
    flat.segments.map(({ start, end }, i) => owner.create(FLOAT_BYTES * (end - start), usage, `resident ${name} ${i}`))
  return {
    parameters: vector('parameters'),
    slots: slotNames(optimizer).map(vector),
    scalars: owner.create(FLOAT_BYTES * STEP_SCALARS, usage, 'step scalars'),
    chunks: spans.map(({ chunks }, i) => owner.create(FLOAT_BYTES * CHUNK_WORDS * chunks, usage, `chunks ${i}`)),
    partials: spans.map(({ chunks }, i) => owner.create(FLOAT_BYTES * chunks, usage, `partial sums ${i}`)),
  }
}

async function bindSpans(
  { watch: { device }, readText, buffers: program }: ResidentStateParts,
  owner: BufferOwner,
  { optimizer, spans, buffers }: SpanOptions & { readonly buffers: ResidentBuffers },
): Promise<SpanSteps[]> {
  const names = slotNames(optimizer)
  return Promise.all(
    spans.map(async (span, i) => {
      const run = new RunScalars(device, owner)
      run.set(device.queue, { samples: span.chunks, lossScale: 1, adds: false })
      const passes = [squaresPass(span), stepPass(optimizer, span)]
      const compiled = await compilePasses(device, passes, { readText, immediates: run.immediate })
      const own = { chunks: buffers.chunks[i], partials: buffers.partials[i], scalars: buffers.scalars }
      const vectors = new Map<string, readonly GPUBuffer[] | undefined>([
        ['gradient', program.gradient],
        ['parameters', buffers.parameters],
        ...names.map((name, slot) => [name === 'momentum_buffer' ? 'velocity' : name, buffers.slots[slot]] as const),
      ])
      const resourceOf = (operand: string): GPUBufferBinding => {
        const segments = vectors.get(operand)
        if (segments === undefined) return { buffer: held(own[operand as keyof typeof own]) }
        const size = FLOAT_BYTES * Math.ceil(span.elements / 4) * 4
        return { buffer: held(segments[span.segment]), offset: FLOAT_BYTES * span.start, size }
      }
      const [squares, step] = passes.map((pass, at) =>
        bind(device, { pass, compiled: compiled[at], run, resourceOf, chunks: span.chunks }),
      )
      if (!squares || !step) throw new Error('internal: a span without its passes')
      return { span, run, squares, step }
    }),
  )
}

interface BindParts {
  readonly pass: Pass
  readonly compiled: CompiledPass | undefined
  readonly run: RunScalars
  readonly chunks: number
  resourceOf(operand: string): GPUBufferBinding
}

function bind(device: GPUDevice, { pass, compiled, run, chunks, resourceOf }: BindParts): BoundPass {
  if (!compiled) throw new Error('internal: a pass without a pipeline')
  const bindGroup = device.createBindGroup({
    label: `optimizer.${pass.entryPoint}`,
    layout: compiled.layout,
    entries: [
      ...run.entries,
      ...boundBindings(pass).map(({ operand }, i) => ({ binding: i + 1, resource: resourceOf(operand) })),
    ],
  })
  return { pipeline: compiled.pipeline, bindGroup, grid: workgroupGrid(pass.threads(chunks), pass.workgroup) }
}

function held(buffer: GPUBuffer | undefined): GPUBuffer {
  if (!buffer) throw new Error('internal: a vector without a buffer')
  return buffer
}
