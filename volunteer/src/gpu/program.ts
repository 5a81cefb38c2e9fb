// A plan on a device: its buffers, pipelines and bind groups, made once. Encoding a run makes nothing new.

import { workgroupGrid, type Pass } from '@starling-grid/shaders'
import type { Plan, PlannedPass, Resource } from '../graph/plan.ts'
import type { GraphPart } from '../graph/runner.ts'
import { withMemoryCheck, type BufferOwner } from './buffers.ts'
import { BUFFER_USAGE } from './flags.ts'
import { compilePasses, type CompiledPass, type ReadText } from './pipelines.ts'

/** Bytes of the uniform `Run`: WebGPU binds uniforms of 16 bytes and more everywhere. */
const RUN_BYTES = 16

export interface ProgramBuffers {
  readonly run: GPUBuffer
  readonly parameters: GPUBuffer
  readonly gradient: GPUBuffer
  readonly pooled: readonly GPUBuffer[]
}

interface Step {
  readonly pass: Pass
  readonly pipeline: GPUComputePipeline
  readonly bindGroup: GPUBindGroup
}

export interface Program {
  readonly buffers: ProgramBuffers
  /** Appends the dispatches of one part; `run` must hold the number of samples when they execute. */
  encode(encoder: GPUComputePassEncoder, part: GraphPart, samples: number): void
}

export async function createProgram(device: GPUDevice, plan: Plan, owner: BufferOwner, readText: ReadText): Promise<Program> {
  const planned = Object.values(plan.parts).flat()
  const compiled = await compilePasses(device, planned.map(({ pass }) => pass), readText)
  const bytes = plan.buffers.reduce((sum, size) => sum + size, 2 * plan.flat.deviceLength * Float32Array.BYTES_PER_ELEMENT)
  const buffers = await withMemoryCheck(device, bytes, () => createBuffers(plan, owner))
  const steps = new Map(planned.map((pass, i) => [pass, createStep(device, pass, compiled[i], buffers)]))
  return {
    buffers,
    encode(encoder, part, samples) {
      for (const pass of plan.parts[part]) dispatch(encoder, steps.get(pass), samples)
    },
  }
}

function createBuffers(plan: Plan, owner: BufferOwner): ProgramBuffers {
  const usage = BUFFER_USAGE.STORAGE | BUFFER_USAGE.COPY_DST | BUFFER_USAGE.COPY_SRC
  const flatBytes = plan.flat.deviceLength * Float32Array.BYTES_PER_ELEMENT
  return {
    run: owner.create(RUN_BYTES, BUFFER_USAGE.UNIFORM | BUFFER_USAGE.COPY_DST, 'run'),
    parameters: owner.create(flatBytes, usage, 'parameters'),
    gradient: owner.create(flatBytes, usage, 'gradient'),
    pooled: plan.buffers.map((bytes, i) => owner.create(bytes, usage, `pooled ${i}`)),
  }
}

function createStep(device: GPUDevice, { pass, resources }: PlannedPass, compiled: CompiledPass | undefined, buffers: ProgramBuffers): Step {
  if (!compiled) throw new Error('internal: a pass without a pipeline')
  const bound: GPUBindingResource[] = [{ buffer: buffers.run }, ...resources.map(resource => bindingOf(resource, buffers))]
  const bindGroup = device.createBindGroup({
    label: `${pass.file}.${pass.entryPoint}`, layout: compiled.layout,
    entries: bound.map((resource, binding) => ({ binding, resource })),
  })
  return { pass, pipeline: compiled.pipeline, bindGroup }
}

function bindingOf(resource: Resource, buffers: ProgramBuffers): GPUBufferBinding {
  const buffer = resource.kind === 'pooled' ? buffers.pooled[resource.buffer] : buffers[resource.kind]
  if (!buffer) throw new Error('internal: a resource without a buffer')
  return { buffer, offset: resource.byteOffset, size: Math.ceil(resource.bytes / 4) * 4 }
}

function dispatch(encoder: GPUComputePassEncoder, step: Step | undefined, samples: number): void {
  if (!step) throw new Error('internal: a pass of another plan')
  const { x, y } = workgroupGrid(step.pass.threads(samples), step.pass.workgroup)
  encoder.setPipeline(step.pipeline)
  encoder.setBindGroup(0, step.bindGroup)
  encoder.dispatchWorkgroups(x, y)
}
