// Graph + capacity → static plan: every pass with the buffers that it binds. Made once; a run only replays it.
// Pure: it knows the limits of an adapter and touches no device.

import { bindingBytes, boundBindings, type Binding, type KernelFamily, type Pass } from '@starling-grid/shaders'
import { GridError } from '@starling-grid/protocol'
import type { Graph } from './build.ts'
import { draftPasses, PARTS, shareScratch, type DraftPass } from './drafts.ts'
import { flatViews, type FlatViews } from './flat-views.ts'
import { assignBuffers, type Life } from './memory.ts'
import type { GraphPart } from './runner.ts'
import { lengthFor, type Tensor } from './tensor.ts'

/** What a binding binds: a whole pooled buffer, or a view into the flat parameters or the flat gradient. */
export type Resource =
  | { readonly kind: 'pooled'; readonly buffer: number }
  | { readonly kind: 'parameters' | 'gradient'; readonly byteOffset: number; readonly bytes: number }

export interface PlannedPass {
  readonly pass: Pass
  /** in the order of the pass's bound bindings */
  readonly resources: readonly Resource[]
}

export interface Plan {
  /** samples that one run takes at most */
  readonly capacity: number
  readonly parts: Readonly<Record<GraphPart, readonly PlannedPass[]>>
  /** bytes of each pooled buffer */
  readonly buffers: readonly number[]
  /** storage of a tensor → pooled buffer */
  readonly placement: ReadonlyMap<number, number>
  readonly flat: FlatViews
}

/** The limits of an adapter that a plan can meet. */
export interface PlanLimits {
  readonly maxStorageBufferBindingSize: number
  readonly maxBufferSize: number
  readonly maxStorageBuffersPerShaderStage: number
}

export interface PlanOptions {
  readonly family: KernelFamily
  readonly limits: PlanLimits
  readonly maxMicroBatch: number
}

/** Bytes of pooled buffers: what a tab may take without crowding out its neighbours. */
const POOL_BUDGET_BYTES = 512 * 1024 * 1024

/**
 * The plan with the largest micro-batch that fits, from `maxMicroBatch` down.
 * @throws GridError('adapter-limit') naming the limit when not even one sample fits
 */
export function planGraph(graph: Graph, { family, limits, maxMicroBatch }: PlanOptions): Plan {
  for (let capacity = maxMicroBatch; ; capacity = Math.ceil(capacity / 2)) {
    const drafts = draftPasses(graph, family, capacity)
    // Sharing scratch saves time and costs memory: where it does not fit, preparing twice does better than half the samples.
    const plans = [shareScratch(drafts), drafts].map(passes => planCapacity(graph, passes, capacity))
    const fitting = plans.find(plan => !firstObstacle(plan, limits) && (!isCrowded(plan) || capacity === 1))
    if (fitting) return fitting
    if (capacity > 1) continue
    const [obstacle] = plans.map(plan => firstObstacle(plan, limits))
    throw new GridError('adapter-limit', `The model ${graph.spec.name} ${obstacle}.`)
  }
}

function isCrowded({ buffers }: Plan): boolean {
  return buffers.reduce((sum, bytes) => sum + bytes, 0) > POOL_BUDGET_BYTES
}

function firstObstacle({ buffers, flat, parts }: Plan, limits: PlanLimits): string | undefined {
  const largest = Math.max(flat.deviceLength * Float32Array.BYTES_PER_ELEMENT, ...buffers)
  const widest = Math.max(0, ...PARTS.flatMap(part => parts[part].map(({ resources }) => resources.length)))
  const needs = { maxStorageBufferBindingSize: largest, maxBufferSize: largest, maxStorageBuffersPerShaderStage: widest }
  for (const [name, need] of Object.entries(needs)) {
    const has = limits[name as keyof PlanLimits]
    if (need > has) return `needs ${name} of at least ${need}, and the adapter has ${has}`
  }
  return undefined
}

function planCapacity(graph: Graph, drafts: readonly DraftPass[], capacity: number): Plan {
  const pool = new Pool(graph, capacity)
  for (const [index, { pass, operands }] of drafts.entries())
    for (const [i, binding] of boundBindings(pass).entries()) pool.use(operands[i], binding, index)
  const { buffers, bufferOf } = pool.assign()
  const flat = flatViews(graph.parameters)
  const planned = (part: GraphPart) => drafts.filter(draft => draft.part === part).map(({ pass, operands }) => ({
    pass, resources: operands.map((operand, i) => resourceOf(operand, boundBindings(pass)[i], flat, bufferOf)),
  }))
  const forward = planned('forward')
  return {
    capacity, buffers, flat,
    parts: { forward, evaluation: graph.evaluation === graph.forward ? forward : planned('evaluation'), loss: planned('loss'), backward: planned('backward') },
    placement: new Map([...bufferOf].flatMap(([key, buffer]) => (typeof key === 'number' ? [[key, buffer]] : []))),
  }
}

/** Collects the lives of everything that is not a view into a flat vector. Key: storage of a tensor, or name of a scratch buffer. */
class Pool {
  private readonly lives = new Map<number | string, { bytes: number; first: number; last: number }>()

  constructor(graph: Graph, capacity: number) {
    for (const tensor of [graph.input, graph.keys, graph.outputGradient, graph.lossTensors?.target])
      if (tensor && ['input', 'keys', 'target', 'upstream'].includes(tensor.role)) this.keep(tensor, capacity, -1, -1)
    for (const tensor of [graph.output, graph.inputGradient, graph.lossTensors?.loss, graph.lossTensors?.correct])
      if (tensor) this.keep(tensor, capacity, Infinity, Infinity)
  }

  private keep(tensor: Tensor, capacity: number, first: number, last: number): void {
    this.extend(tensor.storage, lengthFor(tensor, capacity) * Float32Array.BYTES_PER_ELEMENT, first, last)
  }

  use(operand: Tensor | string | undefined, binding: Binding, pass: number): void {
    if (operand === undefined) throw new Error('internal: a binding without an operand')
    if (typeof operand === 'string') this.extend(operand, bindingBytes(binding), pass, pass)
    else if (!isFlat(operand)) this.extend(operand.storage, bindingBytes(binding), pass, pass)
  }

  private extend(key: number | string, bytes: number, first: number, last: number): void {
    const life = this.lives.get(key)
    if (!life) this.lives.set(key, { bytes, first, last })
    else Object.assign(life, { bytes: Math.max(life.bytes, bytes), first: Math.min(life.first, first), last: Math.max(life.last, last) })
  }

  assign(): { buffers: readonly number[]; bufferOf: ReadonlyMap<number | string, number> } {
    const lives: Life[] = [...this.lives.values()]
    const { buffers, assignment } = assignBuffers(lives)
    return { buffers, bufferOf: new Map([...this.lives.keys()].map((key, i) => [key, assignment[i] ?? -1])) }
  }
}

function isFlat({ role }: Tensor): boolean {
  return role === 'parameter' || role === 'parameterGradient'
}

function resourceOf(
  operand: Tensor | string, binding: Binding | undefined, flat: FlatViews, bufferOf: ReadonlyMap<number | string, number>,
): Resource {
  if (typeof operand !== 'string' && isFlat(operand)) {
    const view = flat.views.get(operand.offset)
    if (!view || !binding) throw new Error(`internal: ${operand.name} is not in the layout`)
    const kind = operand.role === 'parameter' ? 'parameters' : 'gradient'
    return { kind, byteOffset: view.deviceOffset * Float32Array.BYTES_PER_ELEMENT, bytes: bindingBytes(binding) }
  }
  const buffer = bufferOf.get(typeof operand === 'string' ? operand : operand.storage)
  if (buffer === undefined) throw new Error('internal: an operand without a buffer')
  return { kind: 'pooled', buffer }
}
