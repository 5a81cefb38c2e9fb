// A plan on a device: its buffers, pipelines and bind groups, made once. Encoding a run makes nothing new.

import { type GroupShare, type Pass, workgroupGrid, workgroupShare } from '@starling-grid/shaders'
import { segmentPieces } from '../graph/flat-views.ts'
import { planBytes, type Plan, type PlannedPass, type Resource } from '../graph/plan.ts'
import { withMemoryCheck, type BufferOwner } from './buffers.ts'
import { BUFFER_USAGE } from './flags.ts'
import { compilePasses, type CompiledPass, type ReadText } from './pipelines.ts'
import { RunScalars, type RunValues } from './run-scalars.ts'
import type { SubmitPiece } from './submit-pieces.ts'

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT

export interface ProgramBuffers {
  /** of each segment of the flat vectors */
  readonly parameters: readonly GPUBuffer[]
  readonly gradient: readonly GPUBuffer[]
  readonly pooled: readonly GPUBuffer[]
  /** of each fixed tensor that a pass binds */
  readonly fixed: readonly (GPUBuffer | undefined)[]
}

interface ProgramStep {
  readonly pass: Pass
  readonly pipeline: GPUComputePipeline
  readonly bindGroup: GPUBindGroup
  /** how many workgroups the last run needed: hardly any run has another number of samples than the one before */
  last: { readonly samples: number; readonly x: number; readonly y: number }
}

export interface Program {
  readonly buffers: ProgramBuffers
  /** What the shaders know as `run`, for the passes that are submitted next. */
  setScalars(queue: GPUQueue, scalars: RunValues): void
  /** Appends the dispatches of a submit. */
  encode(encoder: GPUComputePassEncoder, piece: SubmitPiece, samples: number): void
}

export async function createProgram(
  device: GPUDevice,
  plan: Plan,
  owner: BufferOwner,
  readText: ReadText,
): Promise<Program> {
  const planned = Object.values(plan.parts).flat()
  const scalars = new RunScalars(device, owner)
  // First, because compiling takes seconds on some drivers and is in vain where memory is short.
  const buffers = await withMemoryCheck(device, planBytes(plan), () => createBuffers(plan, owner))
  const compiled = await compilePasses(
    device,
    planned.map(({ pass }) => pass),
    { readText, immediates: scalars.immediate },
  )
  const steps = new Map(
    planned.map((pass, i) => [pass, createStep({ device, scalars, buffers, plan }, pass, compiled[i])]),
  )
  return {
    buffers,
    setScalars: (queue, values) => scalars.set(queue, values),
    encode(encoder, { passes, share }, samples) {
      const pieces = passes.map((pass) => {
        const step = steps.get(pass)
        if (!step) throw new Error('internal: a pass of another plan')
        return { step, grid: gridOf(step, samples, share) }
      })
      scalars.setFirst(device.queue, pieces[0]?.grid.first ?? 0)
      scalars.encode(encoder)
      let current: GPUComputePipeline | undefined
      for (const { step, grid } of pieces) {
        if (step.pipeline !== current) encoder.setPipeline(step.pipeline)
        current = step.pipeline
        encoder.setBindGroup(0, step.bindGroup)
        if (grid.x > 0) encoder.dispatchWorkgroups(grid.x, grid.y)
      }
    },
  }
}

function createBuffers(plan: Plan, owner: BufferOwner): ProgramBuffers {
  const usage = BUFFER_USAGE.STORAGE | BUFFER_USAGE.COPY_DST | BUFFER_USAGE.COPY_SRC
  const segmentsOf = (name: string) =>
    plan.flat.segments.map(({ start, end }, i) => owner.create((end - start) * FLOAT_BYTES, usage, `${name} ${i}`))
  return {
    parameters: segmentsOf('parameters'),
    gradient: segmentsOf('gradient'),
    pooled: plan.buffers.map((bytes, i) => owner.create(bytes, usage, `pooled ${i}`)),
    fixed: plan.fixed.map((bytes, i) => (bytes > 0 ? owner.create(bytes, usage, `fixed ${i}`) : undefined)),
  }
}

interface ProgramContext {
  readonly device: GPUDevice
  readonly scalars: RunScalars
  readonly buffers: ProgramBuffers
  readonly plan: Plan
}

function createStep(
  { device, scalars, buffers, plan }: ProgramContext,
  { pass, resources }: PlannedPass,
  compiled: CompiledPass | undefined,
): ProgramStep {
  if (!compiled) throw new Error('internal: a pass without a pipeline')
  const bindGroup = device.createBindGroup({
    label: `${pass.file}.${pass.entryPoint}`,
    layout: compiled.layout,
    entries: [
      ...scalars.entries,
      ...resources.map((resource, i) => ({ binding: i + 1, resource: bindingOf(resource, buffers, plan) })),
    ],
  })
  return { pass, pipeline: compiled.pipeline, bindGroup, last: { samples: 0, x: 0, y: 0 } }
}

/** A run of bytes of one buffer. */
export interface BufferPiece {
  readonly buffer: GPUBuffer
  readonly byteOffset: number
  /** in what was asked for */
  readonly from: number
  readonly bytes: number
}

/** What a resource is made of: one buffer, or several of a long run of a flat vector. */
export function bufferPieces(source: Resource, buffers: ProgramBuffers, { flat }: Pick<Plan, 'flat'>): BufferPiece[] {
  const { byteOffset, bytes } = source
  if ('buffer' in source) return [{ buffer: held(buffers[source.kind][source.buffer]), byteOffset, from: 0, bytes }]
  const of = { start: byteOffset / FLOAT_BYTES, end: (byteOffset + bytes) / FLOAT_BYTES }
  return segmentPieces(flat, of).map(({ segment, start, from, length }) => ({
    buffer: held(buffers[source.kind][segment]),
    byteOffset: start * FLOAT_BYTES,
    from: from * FLOAT_BYTES,
    bytes: length * FLOAT_BYTES,
  }))
}

function held(buffer: GPUBuffer | undefined): GPUBuffer {
  if (!buffer) throw new Error('internal: a resource without a buffer')
  return buffer
}

function bindingOf(resource: Resource, buffers: ProgramBuffers, plan: Pick<Plan, 'flat'>): GPUBufferBinding {
  const [piece, ...others] = bufferPieces(resource, buffers, plan)
  if (!piece || others.length > 0) throw new Error('internal: a binding over several buffers')
  return { buffer: piece.buffer, offset: piece.byteOffset, size: Math.ceil(resource.bytes / 4) * 4 }
}

/** Whole passes begin with their first workgroup. */
function gridOf(step: ProgramStep, samples: number, share: GroupShare | undefined) {
  const { pass, last } = step
  if (share) return workgroupShare(pass.threads(samples), pass.workgroup, share)
  if (last.samples !== samples) step.last = { samples, ...workgroupGrid(pass.threads(samples), pass.workgroup) }
  return { first: 0, ...step.last }
}
