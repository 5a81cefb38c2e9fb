// A plan in the memory of a WebAssembly module: where its vectors, buffers and addresses lie, and its code. Made once;
// a run only writes inputs and reads results.
import { GridError } from '@starling-grid/protocol'
import { PAGE_BYTES, wasmCode, type WasmPass } from '@starling-grid/shaders/wasm'
import type { GraphPart } from '../graph/build.ts'
import type { Plan, PlannedPass, Resource } from '../graph/plan.ts'
import { overLimit } from '../own-limits.ts'
import { controlWords } from './control.ts'
import type { PassPlace } from './thread.ts'

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT
const ALIGNMENT_BYTES = 256
/** Kernels may read so far behind the last buffer, without effect on results. */
const SLACK_BYTES = 64 * 1024
/** Addresses are numbers of 32 bits. */
const MOST_PAGES = 65_536

export type WasmPlan = Plan<WasmPass>
export type PlannedWasmPass = PlannedPass<WasmPass>

export interface WasmProgram {
  readonly plan: WasmPlan
  readonly module: WebAssembly.Module
  readonly memory: WebAssembly.Memory
  /** in the order of the parts in the plan */
  readonly passes: readonly PlannedWasmPass[]
  readonly places: readonly PassPlace[]
  /** of each thread */
  readonly scratch: readonly number[]
  readonly controlWords: number
  readonly parameters: Float32Array
  readonly gradient: Float32Array
  /** of each fixed tensor */
  readonly fixed: readonly Float32Array[]
  addressOf(resource: Pick<Resource, 'byteOffset'> & { readonly buffer: number }): number
}

export interface ProgramOptions {
  readonly threads: number
  /** threads of their own see the memory */
  readonly shared: boolean
  readonly relaxed: boolean
  readonly maxBytes?: number
}

/** Parts that run one after the other lie so: training's, and evaluation before them. */
const ORDER: readonly GraphPart[] = ['evaluation', 'logits', 'forward', 'loss', 'backward']

/** @throws GridError('own-limit') or GridError('adapter-limit') where the memory does not suffice */
export async function createWasmProgram(plan: WasmPlan, options: ProgramOptions): Promise<WasmProgram> {
  const { forward, evaluation } = plan.parts
  const passes = ORDER.filter((part) => part !== 'evaluation' || evaluation !== forward).flatMap(
    (part) => plan.parts[part],
  )
  const layout = layOut(plan, passes, options)
  const memory = openMemory(layout.bytes, options)
  const code = wasmCode(
    passes.map(({ pass }) => pass),
    { pages: memory.buffer.byteLength / PAGE_BYTES, shared: options.shared },
    { relaxed: options.relaxed },
  )
  const program = new Int32Array(memory.buffer)
  for (const [i, { resources }] of passes.entries())
    program.set(
      resources.map((resource) => layout.addressOf(resource)),
      (layout.tables[i] ?? 0) / FLOAT_BYTES,
    )
  const flat = (address: number) => new Float32Array(memory.buffer, address, plan.flat.deviceLength)
  return {
    plan,
    module: await WebAssembly.compile(code.bytes),
    memory,
    passes,
    places: passes.map(({ pass }, i) => ({ function: code.functions.get(pass) ?? -1, table: layout.tables[i] ?? 0 })),
    scratch: layout.scratch,
    controlWords: controlWords(passes.length),
    parameters: flat(layout.parameters),
    gradient: flat(layout.gradient),
    fixed: plan.fixed.map((size, i) => new Float32Array(memory.buffer, layout.fixed[i], size / FLOAT_BYTES)),
    addressOf: ({ buffer, byteOffset }) => (layout.buffers[buffer] ?? 0) + byteOffset,
  }
}

interface Layout {
  readonly bytes: number
  /** of each pass */
  readonly tables: readonly number[]
  readonly parameters: number
  readonly gradient: number
  readonly buffers: readonly number[]
  readonly fixed: readonly number[]
  readonly scratch: readonly number[]
  addressOf(resource: Resource): number
}

function layOut(plan: WasmPlan, passes: readonly PlannedWasmPass[], { threads }: ProgramOptions): Layout {
  let bytes = controlWords(passes.length) * FLOAT_BYTES
  const take = (size: number): number => {
    const address = Math.ceil(bytes / ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    bytes = address + size
    return address
  }
  const tables = passes.map(({ resources }) => take(resources.length * FLOAT_BYTES))
  const flatBytes = plan.flat.deviceLength * FLOAT_BYTES
  const [parameters, gradient] = [take(flatBytes), take(flatBytes)]
  const buffers = plan.buffers.map((size) => take(size))
  const fixed = plan.fixed.map((size) => take(size))
  const scratchBytes = Math.max(0, ...passes.map(({ pass }) => pass.scratchBytes))
  const scratch = Array.from({ length: threads }, () => take(scratchBytes + ALIGNMENT_BYTES))
  take(SLACK_BYTES)
  return {
    bytes,
    tables,
    parameters,
    gradient,
    buffers,
    fixed,
    scratch,
    addressOf(resource) {
      if (resource.kind === 'fixed') return (fixed[resource.buffer] ?? 0) + resource.byteOffset
      if (resource.kind === 'pooled') return (buffers[resource.buffer] ?? 0) + resource.byteOffset
      return (resource.kind === 'parameters' ? parameters : gradient) + resource.byteOffset
    },
  }
}

function openMemory(bytes: number, { shared, maxBytes = Infinity }: ProgramOptions): WebAssembly.Memory {
  if (bytes > maxBytes) throw overLimit('memory', bytes, maxBytes)
  const pages = Math.ceil(bytes / PAGE_BYTES)
  try {
    if (pages > MOST_PAGES) throw new RangeError('WebAssembly has 4 GB')
    return new WebAssembly.Memory({ initial: pages, maximum: pages, shared })
  } catch (cause) {
    throw new GridError(
      'adapter-limit',
      `expected ${(bytes / 1e6).toFixed(0)} MB of memory for WebAssembly, got none; ` +
        'close other programs, or take part in a job with a smaller model',
      { cause },
    )
  }
}
