// The Executor on WebGPU.

import type { ModelSpec } from '@starling-grid/model'
import type { Precision } from '@starling-grid/protocol'
import { buildGraph } from '../graph/build.ts'
import type { VariantSelector } from '../graph/choice.ts'
import type { AdapterDescription, Executor } from '../graph/executor.ts'
import { graphExecutor } from '../graph/graph-executor.ts'
import type { DeviceTrouble } from '../graph/renewed-executor.ts'
import type { TuningOptions } from './autotune.ts'
import type { ReadText } from './pipelines.ts'
import { type AdapterFacts, createGpuRunner } from './runner.ts'
import { tuneOn } from './tune-on.ts'

export interface GpuExecutorOptions {
  readonly device: GPUDevice
  readonly adapter: AdapterDescription
  readonly spec: ModelSpec
  /** the host's way to the text of a kernel file */
  readonly readText: ReadText
  /** samples of one run at most; larger batches run in pieces */
  readonly maxMicroBatch?: number
  /** of the device's memory, as its owner allows; absent: what the adapter has */
  readonly maxBytes?: number
  /** how values between kernels are stored; absent: f32 */
  readonly precision?: Precision
  /**
   * keep less and compute it again in backward: less memory, more time, equal bits; absent: where the memory does not
   * suffice otherwise
   */
  readonly recompute?: boolean
  /** told what people should know: that the adapter lacks memory */
  readonly say?: (text: string) => void
  /** what the adapter said when it was asked for; absent: what the device says */
  readonly facts?: AdapterFacts | undefined
  /** what happened to this adapter before; absent: nothing */
  readonly trouble?: DeviceTrouble
  /** ms that one submit may keep a GPU busy; absent: SUBMIT_MS */
  readonly submitMs?: (() => number) | undefined
  /** plan for a software adapter as for a GPU: what GPUs will run can then be tested where there is none */
  readonly asGpu?: boolean | undefined
  /** which variant of a kernel runs; absent: the first guess for the adapter */
  readonly choose?: VariantSelector
  /** measure variants first, unless `choose` says which to use */
  readonly tuning?: TuningOptions
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
  ...options
}: GpuExecutorOptions): Promise<Executor> {
  const common = { ...options, software: adapter.software && !asGpu, graph: buildGraph(spec) }
  const choose = chosen ?? (tuning && (await tuneOn(tuning, adapter, common)))
  return graphExecutor(await createGpuRunner({ ...common, ...(choose ? { choose } : {}) }), adapter)
}
