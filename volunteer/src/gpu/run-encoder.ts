// Encodes runs of floats on the device, and keeps there what encoding lost of them. Whose floats they are, and when the
// loss is one of a committed step, is its caller's business.

import {
  bindingBytes,
  boundBindings,
  encodePasses,
  workgroupGrid,
  type Binding,
  type Pass,
} from '@starling-grid/shaders'
import type { AdapterEncoding } from '../graph/executor.ts'
import { type BufferOwner, withMemoryCheck } from './buffers.ts'
import { type EncodingCut } from './encoding-cut.ts'
import { BUFFER_USAGE } from './flags.ts'
import { compilePasses, type CompiledPass, type ReadText } from './pipelines.ts'
import { RunScalars } from './run-scalars.ts'

/** what is encoded, and two losses */
const FLOAT_BUFFERS = 3

export interface RunEncoderParts {
  readonly device: GPUDevice
  readonly owner: BufferOwner
  readonly readText: ReadText
}

interface EncoderStep {
  readonly pipeline: GPUComputePipeline
  readonly bindGroup: GPUBindGroup
  readonly grid: { readonly x: number; readonly y: number }
}

interface Buffers {
  readonly table: GPUBuffer
  readonly x: GPUBuffer
  readonly words: GPUBuffer
  readonly residuals: readonly [GPUBuffer, GPUBuffer]
  readonly parts: GPUBuffer | undefined
}

export class RunEncoder {
  readonly cut: EncodingCut
  readonly #buffers: Buffers
  readonly #scalars: RunScalars
  /** two ways round: what one writes as the new loss, the other reads as the old one */
  readonly #ways: readonly [readonly EncoderStep[], readonly EncoderStep[]]
  #way: 0 | 1 = 0

  /** @throws OutOfDeviceMemory */
  static async create(
    { device, owner, readText }: RunEncoderParts,
    encoding: AdapterEncoding,
    cut: EncodingCut,
  ): Promise<RunEncoder> {
    const passes = encodePasses(encoding, cut)
    const scalars = new RunScalars(device, owner)
    const compiled = await compilePasses(device, passes, { readText, immediates: scalars.immediate })
    const buffers = await withMemoryCheck(device, 4 * (FLOAT_BUFFERS * cut.floats + cut.words), () =>
      createBuffers(owner, passes),
    )
    device.queue.writeBuffer(buffers.table, 0, cut.table)
    scalars.set(device.queue, { samples: cut.blocks, lossScale: 1, adds: false })
    const way = (turned: 0 | 1) =>
      passes.map((pass, i) => createStep({ device, scalars, buffers, turned, blocks: cut.blocks }, pass, compiled[i]))
    return new RunEncoder({ cut, buffers, scalars, ways: [way(0), way(1)] })
  }

  private constructor({
    cut,
    buffers,
    scalars,
    ways,
  }: {
    readonly cut: EncodingCut
    readonly buffers: Buffers
    readonly scalars: RunScalars
    readonly ways: readonly [EncoderStep[], EncoderStep[]]
  }) {
    this.cut = cut
    this.#buffers = buffers
    this.#scalars = scalars
    this.#ways = ways
  }

  /** (floats,): what is encoded, copied here before `record` */
  get input(): GPUBuffer {
    return this.#buffers.x
  }

  /** the encoded bytes */
  get output(): GPUBuffer {
    return this.#buffers.words
  }

  /** What was lost last is what joins the floats from now on. */
  swap(): void {
    this.#way = this.#way === 0 ? 1 : 0
  }

  /** Nothing was lost so far. */
  forget(encoder: GPUCommandEncoder): void {
    encoder.clearBuffer(this.#buffers.residuals[this.#way])
  }

  record(encoder: GPUCommandEncoder): void {
    const pass = encoder.beginComputePass()
    this.#scalars.encode(pass)
    for (const { pipeline, bindGroup, grid } of this.#ways[this.#way]) {
      pass.setPipeline(pipeline)
      pass.setBindGroup(0, bindGroup)
      pass.dispatchWorkgroups(grid.x, grid.y)
    }
    pass.end()
  }
}

function createBuffers(owner: BufferOwner, passes: readonly Pass[]): Buffers {
  const bindings = new Map(passes.flatMap(boundBindings).map((binding) => [binding.operand, binding]))
  const make = (name: string): GPUBuffer => {
    const binding = bindings.get(name)
    if (!binding) throw new Error(`internal: no encoding kernel has ${name}`)
    return owner.create(
      bindingBytes(binding),
      BUFFER_USAGE.STORAGE | BUFFER_USAGE.COPY_DST | BUFFER_USAGE.COPY_SRC,
      `encoding ${name}`,
    )
  }
  return {
    table: make('table'),
    x: make('x'),
    words: make('words'),
    residuals: [make('residual'), make('next')],
    parts: bindings.has('parts') ? make('parts') : undefined,
  }
}

interface EncoderContext {
  readonly device: GPUDevice
  readonly scalars: RunScalars
  readonly buffers: Buffers
  readonly turned: 0 | 1
  readonly blocks: number
}

function createStep(
  { device, scalars, buffers, turned, blocks }: EncoderContext,
  pass: Pass,
  compiled: CompiledPass | undefined,
): EncoderStep {
  if (!compiled) throw new Error('internal: a pass without a pipeline')
  const { table, x, words, residuals, parts } = buffers
  const byName = new Map<string, GPUBuffer | undefined>([
    ['table', table],
    ['x', x],
    ['words', words],
    ['parts', parts],
    ['residual', residuals[turned]],
    ['next', residuals[turned === 0 ? 1 : 0]],
  ])
  const bufferOf = ({ operand }: Binding): GPUBuffer => {
    const buffer = byName.get(operand)
    if (!buffer) throw new Error(`internal: ${operand} has no buffer`)
    return buffer
  }
  const bindGroup = device.createBindGroup({
    label: `encode.${pass.entryPoint}`,
    layout: compiled.layout,
    entries: [
      ...scalars.entries,
      ...boundBindings(pass).map((binding, i) => ({ binding: i + 1, resource: { buffer: bufferOf(binding) } })),
    ],
  })
  return { pipeline: compiled.pipeline, bindGroup, grid: workgroupGrid(pass.threads(blocks), pass.workgroup) }
}
