// The Executor on WebGPU.

import type { ModelSpec } from '@starling-grid/model'
import { buildGraph } from '../graph/build.ts'
import type { VariantSelector } from '../graph/choice.ts'
import { buildDecoder } from '../graph/decoder-graph.ts'
import type { AdapterDescription, Executor } from '../graph/executor.ts'
import { loadFrozen, packingOf } from '../graph/fixed.ts'
import type { FrozenSource } from '../graph/frozen-source.ts'
import { graphExecutor } from '../graph/graph-executor.ts'
import type { SharedVariants } from '../graph/shared-variants.ts'
import { PROMPT_TOKENS, TokenDecoder } from '../graph/token-decoder.ts'
import type { TuningOptions } from './autotune.ts'
import { createGpuRunner, type GpuRunnerOptions } from './runner.ts'
import type { tuneOn } from './tune-on.ts'

export interface GpuExecutorOptions extends Omit<GpuRunnerOptions, 'graph' | 'software' | 'packing'> {
  readonly adapter: AdapterDescription
  readonly spec: ModelSpec
  /** of models with frozen parameters: where these come from */
  readonly frozen?: FrozenSource | undefined
  /** frozen matrices stay packed although there is room for f32; absent: where the memory does not suffice otherwise */
  readonly pack?: boolean
  /** plan for a software adapter as for a GPU: what GPUs will run can then be tested where there is none */
  readonly asGpu?: boolean | undefined
  /** measure variants first, unless `choose` says which to use */
  readonly tuning?: TuningOptions
  /** of `tuning`: what others with this class of adapter measured; absent: all is measured here */
  readonly variants?: SharedVariants | undefined
}

/** Software adapters are not measured: pages load how when there is a GPU. */
async function tuned(...asked: Parameters<typeof tuneOn>): Promise<VariantSelector> {
  return (await import('./tune-on.ts')).tuneOn(...asked)
}

/**
 * @throws GridError('adapter-limit') when the adapter cannot hold the model
 * @example const executor = await createGpuExecutor({ device, adapter, spec: lenet5(), readText: url =>
 * fetch(url).then(r => r.text()) })
 */
export async function createGpuExecutor({
  adapter,
  spec,
  choose: chosen,
  tuning,
  asGpu = false,
  frozen,
  pack,
  ...options
}: GpuExecutorOptions): Promise<Executor> {
  const common = {
    ...options,
    software: adapter.software && !asGpu,
    graph: buildGraph(spec),
    packing: packingOf(frozen, pack),
  }
  const choose = chosen ?? (tuning && (await tuned(tuning, adapter, common)))
  const runner = await createGpuRunner({ ...common, ...(choose ? { choose } : {}) })
  try {
    await loadFrozen(runner, frozen)
  } catch (error) {
    runner.destroy()
    throw error
  }
  return graphExecutor(runner, adapter)
}

export interface GpuDecoderOptions extends Pick<
  GpuExecutorOptions,
  'device' | 'adapter' | 'facts' | 'spec' | 'readText' | 'frozen' | 'pack' | 'maxBytes' | 'submitMs' | 'say'
> {
  /** places of a text that the model sees */
  readonly context: number
}

/**
 * What goes on with a text, token by token.
 * @throws GridError('adapter-limit') when the adapter cannot hold the model
 */
export async function createGpuDecoder({
  adapter,
  spec,
  context,
  frozen,
  pack,
  ...options
}: GpuDecoderOptions): Promise<TokenDecoder> {
  const graph = buildDecoder(spec, context)
  const runner = await createGpuRunner({
    ...options,
    software: adapter.software,
    graph,
    maxMicroBatch: PROMPT_TOKENS,
    packing: packingOf(frozen, pack),
  })
  try {
    await loadFrozen(runner, frozen)
  } catch (error) {
    runner.destroy()
    throw error
  }
  return new TokenDecoder(graph, runner)
}
