// The Executor on the processor: WebAssembly's SIMD, on threads where the host has them. Said aloud wherever the
// adapter is shown: no GPU is used.
import type { ModelSpec } from '@starling-grid/model'
import { type Clock, isGridError, systemClock } from '@starling-grid/protocol'
import { type KernelCall, PLAIN_TRAITS } from '@starling-grid/shaders'
import { hasRelaxedSimd, type WasmPass, wasmRecipe } from '@starling-grid/shaders/wasm'
import { savingsText } from '../graph/attempts.ts'
import { buildGraph, type Graph } from '../graph/build.ts'
import type { Choice } from '../graph/choice.ts'
import { buildDecoder } from '../graph/decoder-graph.ts'
import type { AdapterDescription, Executor } from '../graph/executor.ts'
import { loadFrozen, packingOf } from '../graph/fixed.ts'
import type { FrozenSource } from '../graph/frozen-source.ts'
import { graphExecutor } from '../graph/graph-executor.ts'
import type { Packing } from '../graph/packed.ts'
import { type AdapterLimits, planPasses } from '../graph/plan.ts'
import { PROMPT_TOKENS, TokenDecoder } from '../graph/token-decoder.ts'
import type { WasmThreads } from './crew.ts'
import { createWasmProgram, type WasmPlan, type WasmProgram } from './program.ts'
import { WasmRunner } from './runner.ts'

/** Samples of one run unless memory asks for fewer: enough pieces for all threads, and values that stay in a cache. */
const WASM_MICRO_BATCH = 64
/** Of WebAssembly: addresses of 32 bits, any number of bindings. */
const LIMITS = {
  maxStorageBufferBindingSize: 2 ** 32,
  maxBufferSize: 2 ** 32,
  maxStorageBuffersPerShaderStage: Infinity,
}

export interface WasmExecutorOptions {
  /** absent: the thread that asks computes */
  readonly threads?: WasmThreads | undefined
  readonly maxMicroBatch?: number
  /** of models with frozen parameters: where these come from */
  readonly frozen?: FrozenSource | undefined
  /** of this process's memory, as its owner allows */
  readonly maxBytes?: number
  /** frozen matrices stay packed although there is room for f32; absent: where the memory does not suffice otherwise */
  readonly pack?: boolean
  /** told what people should know: that memory is short */
  readonly say?: (text: string) => void
  /** keep less and compute it again in backward; absent: where the memory does not suffice otherwise */
  readonly recompute?: boolean
  /** a · b + c may be rounded once; absent: where the engine can */
  readonly relaxed?: boolean
  /** of buffers and bindings, which WebAssembly does not have; tests plan as for a small adapter */
  readonly limits?: AdapterLimits
  readonly clock?: Clock
}

/** @example const executor = await createWasmExecutor(lenet5()) */
export async function createWasmExecutor(spec: ModelSpec, options: WasmExecutorOptions = {}): Promise<Executor> {
  const runner = await createWasmRunner(buildGraph(spec), options)
  await loadFrozen(runner, options.frozen)
  return graphExecutor(runner, wasmAdapter(options.threads))
}

/** What goes on with a text, token by token. */
export async function createWasmDecoder(
  spec: ModelSpec,
  { context, ...options }: WasmExecutorOptions & { readonly context: number },
): Promise<TokenDecoder> {
  const graph = buildDecoder(spec, context)
  const runner = await createWasmRunner(graph, { ...options, maxMicroBatch: PROMPT_TOKENS })
  await loadFrozen(runner, options.frozen)
  return new TokenDecoder(graph, runner)
}

export function wasmAdapter(threads?: Pick<WasmThreads, 'count'>): AdapterDescription {
  const count = threads?.count ?? 1
  return {
    name: `WebAssembly on the processor, ${count} ${count === 1 ? 'thread' : 'threads'}`,
    vendor: 'starling',
    software: true,
    executor: 'wasm',
  }
}

/** @throws GridError('adapter-limit') or GridError('own-limit') when the memory does not suffice */
export async function createWasmRunner(
  graph: Graph,
  options: WasmExecutorOptions = {},
  packing: Packing | undefined = packingOf(options.frozen, options.pack),
): Promise<WasmRunner> {
  const { threads, clock = systemClock, say = () => undefined } = options
  const plan = planWasm(graph, options, packing)
  const saved = savingsText(plan, { ...options, packing })
  if (saved !== undefined) say(saved)
  try {
    return new WasmRunner(graph, await programOf(plan, options), threads, clock)
  } catch (error) {
    // A module takes more than its plan, and an engine may have less than it may take.
    if (packing === undefined || packing.pieces === true || !isGridError(error)) throw error
    say(`${error.message}. Keeping the base model in ${packing.storage}, with the same result.`)
    return createWasmRunner(graph, options, { ...packing, pieces: true })
  }
}

function programOf(
  plan: WasmPlan,
  { threads, relaxed = hasRelaxedSimd(), maxBytes }: WasmExecutorOptions,
): Promise<WasmProgram> {
  return createWasmProgram(plan, {
    threads: threads?.count ?? 1,
    shared: threads !== undefined,
    relaxed,
    ...(maxBytes === undefined ? {} : { maxBytes }),
  })
}

export function planWasm(
  graph: Graph,
  {
    maxMicroBatch = WASM_MICRO_BATCH,
    maxBytes = Infinity,
    recompute = false,
    limits = LIMITS,
  }: WasmExecutorOptions = {},
  packing?: Packing,
): WasmPlan {
  return planPasses<WasmPass>(graph, {
    traits: PLAIN_TRAITS,
    limits,
    choose: onlyWay,
    maxMicroBatch,
    maxBytes,
    recompute,
    packing,
  })
}

function onlyWay(call: KernelCall<unknown>): Choice<WasmPass> {
  const recipe = (capacity: number) => wasmRecipe(call, capacity)
  return { candidate: { family: 'wasm', name: 'SIMD', suits: true, useful: 1, recipe }, why: 'the only one' }
}
