// Graph + capacity → static plan: every pass with the buffers that it binds. Made once; a run only replays it.
// Pure: it knows the limits of an adapter and touches no device.

import { GridError, type Precision } from '@starling-grid/protocol'
import {
  bindingBytes,
  boundBindings,
  type AdapterTraits,
  type Binding,
  type NamedPass,
  type Pass,
} from '@starling-grid/shaders'
import type { FloatRange } from '../floats.ts'
import { overLimit } from '../own-limits.ts'
import type { AdapterLimits } from './adapter-limits.ts'
import { type Attempt, attemptsFor, heldBytes } from './attempts.ts'
import { beginGradients, clearedRanges } from './begin-gradients.ts'
import type { Graph, GraphPart } from './build.ts'
import { defaultVariant, type VariantSelector } from './choice.ts'
import { draftPasses, PARTS, shareScratch, type DraftPass, type PassOrigin } from './drafts.ts'
import { deviceOffsetOf, flatViews, type FlatViews } from './flat-views.ts'
import { flopsOf } from './flops.ts'
import { fuseGraph } from './fuse.ts'
import { halfStorages, inHalf, traitsIn } from './half.ts'
import { assignBuffers, peakLiveBytes, type LiveRange, type BufferPlace, type PlacementOptions } from './memory.ts'
import { heldWords, type Packing } from './packed.ts'
import { lengthFor, type Tensor } from './tensor.ts'
import { tileAttention } from './tiled-attention.ts'

/**
 * What a binding binds: a piece of a pooled buffer, of the flat parameters or gradient (inside one of their segments),
 * or a fixed tensor.
 */
export type Resource = { readonly byteOffset: number; readonly bytes: number } & (
  | { readonly kind: 'pooled' | 'fixed'; readonly buffer: number }
  | { readonly kind: 'parameters' | 'gradient' }
)

export interface PlannedPass<P extends NamedPass = Pass> {
  readonly pass: P
  readonly origin: PassOrigin
  /** in the order of the pass's bound bindings */
  readonly resources: readonly Resource[]
  /** what it takes at capacity, at most: FLOP, and bytes that count as FLOP_PER_BYTE each */
  readonly work: number
}

export interface Plan<P extends NamedPass = Pass> {
  /** the graph whose calls it runs, after fusion */
  readonly graph: Graph
  /** some values are computed again in backward instead of kept */
  readonly recomputed: boolean
  /** samples that one run takes at most */
  readonly capacity: number
  readonly parts: Readonly<Record<GraphPart, readonly PlannedPass<P>[]>>
  /** bytes of each pooled buffer */
  readonly buffers: readonly number[]
  /** storage of a tensor → where in the pooled buffers it lies */
  readonly placement: ReadonlyMap<number, BufferPlace>
  /** the most that is alive at one time: no plan of these passes takes less */
  readonly peakLiveBytes: number
  /** the same without the scratch of kernels: the values of the graph alone */
  readonly leastTensorBytes: number
  readonly flat: FlatViews
  /** bytes of the buffer of each fixed tensor; 0 of those that no pass binds */
  readonly fixed: readonly number[]
  /** of the device's gradient: what a run that begins a sum must find as zeros */
  readonly cleared: readonly FloatRange[]
}

export type { AdapterLimits }

type AnyPlan = Plan<NamedPass>

export interface PlanOptions<P extends NamedPass = Pass> {
  readonly traits: AdapterTraits
  readonly limits: AdapterLimits
  readonly maxMicroBatch: number
  /** of the device's memory, as its owner allows; absent: what the adapter has */
  readonly maxBytes?: number
  /** absent: the first guess for the adapter */
  readonly choose?: VariantSelector<P>
  /** of values between kernels; absent: f32 */
  readonly precision?: Precision
  /**
   * compute values again in backward instead of keeping them: less memory, more time, equal bits; absent: where the
   * memory does not suffice otherwise
   */
  readonly recompute?: boolean
  /** how frozen matrices can lie; absent: as f32 alone */
  readonly packing?: Packing | undefined
}

const HALF_FEATURE = 'shader-f16'

/** Samples of one run unless memory asks for fewer: enough to keep a software adapter busy. */
const SOFTWARE_MICRO_BATCH = 64
/** A large GPU is idle with 64 small samples; what is submitted at once is bounded in time beside this. */
const GPU_MICRO_BATCH = 512
/** Bytes of pooled buffers: what a tab may take without crowding out its neighbours. */
const POOL_BUDGET_BYTES = 512 * 1024 * 1024
/** Adapters say how large a buffer may be and not how much memory they have: large ones have several times that. */
const POOL_SHARE_OF_BUFFER = 0.5
const MOST_POOL_BYTES = 4 * 1024 ** 3
const CROWDS = 'takes more memory than a page may'
/** … up to which scratch is kept from forward to backward: no adapter misses so little. */
const SHARED_SCRATCH_BYTES = 64 * 1024 * 1024

/** What a weak GPU computes while it moves a byte: 100 GFLOP/s beside 12 GB/s. */
export const FLOP_PER_BYTE = 8
/**
 * Work of one dispatch, and of what is submitted at once: 0.7 s of a weak GPU. Windows resets a driver that is busy for
 * two seconds, and a desktop shows nothing meanwhile.
 */
export const MAX_WORK = 2 ** 36
/** Of one pass, which is submitted in shares of its workgroups: a product of 4,096 × 4,096 × 4,096 twice. */
export const MAX_PASS_WORK = 4 * MAX_WORK

/**
 * The plan with the largest micro-batch that fits, from `maxMicroBatch` down. Where none fits, values are computed
 * again in backward, which takes less memory; before that, frozen matrices stay packed (attempts.ts). A model that
 * normalises over its batch needs the whole of a block at once, so that it computes again before its batch is cut.
 * @throws GridError('no-f16') when the adapter does not know it; 'adapter-limit' naming the limit when not even one
 * sample fits. GridError('own-limit') when it fits the adapter and not what its owner allows, or keeps the adapter busy
 * for too long
 */
export function planGraph(whole: Graph, options: PlanOptions): Plan {
  const traits = traitsIn(options.precision, options.traits)
  return planPasses(whole, { choose: defaultVariant(traits), ...options, traits })
}

type PassOptions<P extends NamedPass> = PlanOptions<P> & Required<Pick<PlanOptions<P>, 'choose'>>

/** The same of passes that another thing than WebGPU runs: `choose` knows them. */
export function planPasses<P extends NamedPass>(whole: Graph, options: PassOptions<P>): Plan<P> {
  const { traits, precision = 'f32', recompute = false, maxBytes = Number.POSITIVE_INFINITY, packing } = options
  if (precision === 'f16' && !traits.features.has(HALF_FEATURE))
    throw new GridError(
      'no-f16',
      `expected an adapter with the feature ${HALF_FEATURE}, which values in f16 need, got one without; ` +
        'choose another with --adapter, or use f32',
    )
  const wanted = { ...options, precision, recompute, maxBytes, packing }
  let refusal: GridError | undefined
  for (const attempt of attemptsFor(tileAttention(fuseGraph(whole), options.choose), wanted)) {
    const tried = planAttempt(attempt, options)
    if (!(tried instanceof GridError)) return tried
    refusal = tried
  }
  throw refusal ?? new Error('internal: a plan for no samples')
}

/** What hinders it is returned: another attempt may do better. */
function planAttempt<P extends NamedPass>(
  { graph, recomputed, capacity }: Attempt,
  { traits, limits, maxBytes = Number.POSITIVE_INFINITY, choose, precision }: PassOptions<P>,
): Plan<P> | GridError {
  const exact = beginGradients(draftPasses(graph, choose, capacity))
  const drafts = precision === 'f16' ? inHalf(exact, halfStorages(graph)) : exact
  // Sharing scratch saves time and costs memory: where that is much, preparing twice does better.
  const crowds = poolBudget(traits, limits)
  const worthBytes = Math.min(capacity === 1 ? Infinity : crowds, maxBytes - heldBytes(graph))
  const bytes = { maxBufferBytes: limits.maxBufferSize, worthBytes }
  const shared = shareScratch(drafts)
  const ways = shared.length === drafts.length ? [drafts] : [shared, drafts]
  const plans = ways.map((passes) => planCapacity(graph, passes, { recomputed, capacity, ...bytes }))
  const allowed = plans.filter((plan) => ownObstacle(plan, maxBytes) === undefined)
  const fitting = allowed.filter(
    (plan) => !firstObstacle(plan, limits) && (poolBytes(plan) <= crowds || capacity === 1),
  )
  const [best] = fitting.filter((plan, i) => poolBytes(plan) <= SHARED_SCRATCH_BYTES || i === fitting.length - 1)
  if (best) return best
  const [obstacle] = plans.map((plan) => firstObstacle(plan, limits))
  const last = plans.at(-1)
  const own = last && ownObstacle(last, maxBytes)
  if (obstacle === undefined && own !== undefined) return own
  return new GridError('adapter-limit', `The model ${graph.spec.name} ${obstacle ?? CROWDS}.`)
}

/** Bytes of pooled buffers that more than one sample at a time may take. */
function poolBudget({ software }: AdapterTraits, { maxBufferSize }: AdapterLimits): number {
  if (software) return POOL_BUDGET_BYTES
  return Math.min(MOST_POOL_BYTES, Math.max(POOL_BUDGET_BYTES, POOL_SHARE_OF_BUFFER * maxBufferSize))
}

/** Samples of one run at most, where a model does not ask for another number. */
export function defaultMicroBatch(software: boolean): number {
  return software ? SOFTWARE_MICRO_BATCH : GPU_MICRO_BATCH
}

/** What the owner of the adapter does not give, although the adapter could. */
function ownObstacle(plan: AnyPlan, maxBytes: number): GridError | undefined {
  const bytes = planBytes(plan)
  if (bytes > maxBytes) return overLimit('memory', bytes, maxBytes)
  const passes = PARTS.flatMap((part) => plan.parts[part])
  const longest = passes.reduce<PlannedPass<NamedPass> | undefined>(
    (max, pass) => (pass.work > (max?.work ?? MAX_PASS_WORK) ? pass : max),
    undefined,
  )
  if (longest === undefined) return undefined
  return new GridError(
    'own-limit',
    `expected kernels of at most ${(MAX_PASS_WORK / 1e9).toFixed(0)} GFLOP, ` +
      `got ${longest.origin.kernel} with ${(longest.work / 1e9).toFixed(0)}; take part in a job with a smaller model`,
  )
}

/** Of all buffers. */
export function planBytes(plan: Pick<AnyPlan, 'buffers' | 'flat' | 'fixed'>): number {
  const { flat, fixed } = plan
  return fixed.reduce(
    (sum, bytes) => sum + bytes,
    poolBytes(plan) + 2 * Float32Array.BYTES_PER_ELEMENT * flat.deviceLength,
  )
}

export function poolBytes({ buffers }: Pick<AnyPlan, 'buffers'>): number {
  return buffers.reduce((sum, bytes) => sum + bytes, 0)
}

function firstObstacle({ buffers, flat, fixed, parts }: AnyPlan, limits: AdapterLimits): string | undefined {
  const bound = PARTS.flatMap((part) => parts[part].map(({ resources }) => resources))
  const needs = {
    maxStorageBufferBindingSize: Math.max(0, ...bound.flatMap((resources) => resources.map(({ bytes }) => bytes))),
    maxBufferSize: Math.max(
      ...flat.segments.map(({ start, end }) => (end - start) * Float32Array.BYTES_PER_ELEMENT),
      ...buffers,
      ...fixed,
    ),
    maxStorageBuffersPerShaderStage: Math.max(0, ...bound.map((resources) => resources.length)),
  }
  for (const [name, need] of Object.entries(needs)) {
    const has = limits[name as keyof AdapterLimits]
    if (need > has) return `needs ${name} of at least ${need}, got ${has} on this adapter`
  }
  return undefined
}

interface CapacityOptions extends Required<Pick<PlacementOptions, 'maxBufferBytes' | 'worthBytes'>> {
  readonly recomputed: boolean
  readonly capacity: number
}

function planCapacity<P extends NamedPass>(
  graph: Graph,
  drafts: readonly DraftPass<P>[],
  { recomputed, capacity, ...bytes }: CapacityOptions,
): Plan<P> {
  const pool = new Pool(graph, capacity)
  for (const [index, draft] of drafts.entries()) pool.use(draft, index)
  const memory = pool.assign(bytes)
  const { chunks } = graph
  const maxLength = Math.floor(bytes.maxBufferBytes / Float32Array.BYTES_PER_ELEMENT)
  const flat = flatViews(graph.parameters, { maxLength, ...(chunks ? { chunks } : {}) })
  const planned = (part: GraphPart) =>
    drafts
      .filter((draft) => draft.part === part)
      .map(({ pass, origin, operands }) => ({
        pass,
        origin,
        resources: boundBindings(pass).map((binding, i) => resourceOf(operands[i], binding, flat, memory.placeOf)),
        work: workOf(graph, { pass, origin }, capacity),
      }))
  const forward = planned('forward')
  return {
    graph,
    recomputed,
    capacity,
    flat,
    fixed: fixedBytes(graph, drafts),
    cleared: clearedRanges(drafts, flat),
    buffers: memory.buffers,
    peakLiveBytes: memory.peakLiveBytes,
    leastTensorBytes: memory.leastTensorBytes,
    parts: {
      forward,
      evaluation: graph.evaluation === graph.forward ? forward : planned('evaluation'),
      loss: planned('loss'),
      backward: planned('backward'),
      logits: planned('logits'),
    },
    placement: new Map([...memory.placeOf].flatMap(([key, place]) => (typeof key === 'number' ? [[key, place]] : []))),
  }
}

function fixedBytes({ fixed, packed }: Graph, drafts: readonly DraftPass[]): number[] {
  const bound = new Set(
    drafts.flatMap(({ operands }) =>
      operands.flatMap((operand) => (typeof operand !== 'string' && operand.role === 'fixed' ? [operand.offset] : [])),
    ),
  )
  return fixed.map((entry, i) =>
    bound.has(i) ? Float32Array.BYTES_PER_ELEMENT * elementsWithSlack(heldWords(entry, packed)) : 0,
  )
}

/** Matrix kernels may touch up to two groups of four past the end of a tensor, without effect on results. */
function elementsWithSlack(length: number): number {
  return 4 * Math.ceil(length / 4) + 8
}

/** Of all passes of its call: a bound of each. */
function workOf(graph: Graph, { pass, origin }: Pick<DraftPass, 'pass' | 'origin'>, capacity: number): number {
  const [part, index] = origin.call.split('.')
  const call = graph[part as GraphPart]?.[Number(index)]
  if (call === undefined) throw new Error(`internal: no call ${origin.call}`)
  const bytes = boundBindings(pass).reduce((sum, binding) => sum + bindingBytes(binding), 0)
  return flopsOf(call, capacity) / origin.useful + FLOP_PER_BYTE * bytes
}

/**
 * Collects the lives of everything that is not a view into a flat vector. Key: storage of a tensor, or name of a
 * scratch buffer.
 */
class Pool {
  readonly #lives = new Map<number | string, { index: number; bytes: number; first: number; last: number }>()
  /** life → lives that are written where it is read, or the other way round */
  readonly #apart: Set<number>[] = []

  constructor(graph: Graph, capacity: number) {
    for (const tensor of [graph.input, graph.keys, graph.outputGradient, graph.lossTensors?.target])
      if (tensor && ['input', 'keys', 'target', 'upstream'].includes(tensor.role)) this.#keep(tensor, capacity, -1, -1)
    for (const tensor of graph.resident) this.#keep(tensor, capacity, -1, Infinity)
    const output = graph.logits === undefined ? graph.output : undefined
    for (const tensor of [output, graph.inputGradient, graph.lossTensors?.loss, graph.lossTensors?.correct])
      if (tensor) this.#keep(tensor, capacity, Infinity, Infinity)
  }

  #keep(tensor: Tensor, capacity: number, first: number, last: number): void {
    this.#extend(tensor.storage, lengthFor(tensor, capacity) * Float32Array.BYTES_PER_ELEMENT, first, last)
  }

  use({ pass, operands }: DraftPass, index: number): void {
    const [read, written]: [number[], number[]] = [[], []]
    for (const [i, binding] of boundBindings(pass).entries()) {
      const operand = operands[i]
      if (operand === undefined) throw new Error('internal: a binding without an operand')
      if (typeof operand !== 'string' && (isFlat(operand) || operand.role === 'fixed')) continue
      const life = this.#extend(
        typeof operand === 'string' ? operand : operand.storage,
        bindingBytes(binding),
        index,
        index,
      )
      ;(binding.access === 'read' ? read : written).push(life)
    }
    for (const a of written) for (const b of read) if (a !== b) this.#separate(a, b)
  }

  assign(options: PlacementOptions) {
    const lives: LiveRange[] = [...this.#lives.values()]
    const { buffers, places } = assignBuffers(lives, { ...options, apart: this.#apart })
    const placeOf = new Map(
      [...this.#lives.entries()].map(([key, { index }]) => [key, places[index] ?? { buffer: -1, byteOffset: 0 }]),
    )
    const tensors = [...this.#lives].flatMap(([key, life]) => (typeof key === 'number' ? [life] : []))
    return { buffers, placeOf, peakLiveBytes: peakLiveBytes(lives), leastTensorBytes: peakLiveBytes(tensors) }
  }

  #extend(key: number | string, bytes: number, first: number, last: number): number {
    const life = this.#lives.get(key)
    if (life) {
      Object.assign(life, {
        bytes: Math.max(life.bytes, bytes),
        first: Math.min(life.first, first),
        last: Math.max(life.last, last),
      })
      return life.index
    }
    const index = this.#lives.size
    this.#lives.set(key, { index, bytes, first, last })
    this.#apart.push(new Set())
    return index
  }

  #separate(a: number, b: number): void {
    this.#apart[a]?.add(b)
    this.#apart[b]?.add(a)
  }
}

function isFlat({ role }: Tensor): boolean {
  return role === 'parameter' || role === 'parameterGradient'
}

function resourceOf(
  operand: Tensor | string | undefined,
  binding: Binding,
  flat: FlatViews,
  placeOf: ReadonlyMap<number | string, BufferPlace>,
): Resource {
  if (operand === undefined) throw new Error('internal: a binding without an operand')
  const bytes = bindingBytes(binding)
  if (typeof operand !== 'string' && operand.role === 'fixed')
    return {
      kind: 'fixed',
      buffer: operand.offset,
      byteOffset: (operand.start ?? 0) * Float32Array.BYTES_PER_ELEMENT,
      bytes,
    }
  if (typeof operand !== 'string' && isFlat(operand)) {
    const deviceOffset = deviceOffsetOf(flat, operand.offset)
    if (deviceOffset === undefined) throw new Error(`internal: ${operand.name} is not in the layout`)
    return {
      kind: operand.role === 'parameter' ? 'parameters' : 'gradient',
      byteOffset: deviceOffset * Float32Array.BYTES_PER_ELEMENT,
      bytes,
    }
  }
  const place = placeOf.get(typeof operand === 'string' ? operand : operand.storage)
  if (place === undefined) throw new Error('internal: an operand without a buffer')
  return { kind: 'pooled', ...place, bytes }
}
