// What computes in this tab where nothing was asked for: a GPU; without one, what is faster on the processor. Loaded
// only where the processor may compute; its counterpart in Node has the same name.
import { type ExecutorKind, systemClock } from '@starling-grid/protocol'
import { buildGraph, createReferenceExecutor, type Executor, type ShardCache } from '@starling-grid/volunteer'
import {
  createWasmExecutor,
  knownMeasure,
  measuredText,
  measureExecutors,
  wasmLacks,
} from '@starling-grid/volunteer/wasm'
import { wasmThreads } from './wasm-threads.ts'

type ModelOfExecutor = Parameters<typeof createWasmExecutor>[0]

export interface SoftwareOptions {
  /** name of the only adapter */
  readonly adapter: string
  readonly cache: ShardCache
  readonly say: (text: string) => void
  readonly openOnGpu: (spec: ModelOfExecutor) => Promise<Executor>
}

/** Of a software adapter and WebAssembly the one that was measured faster here. */
export async function fasterHere({ adapter, cache, say, openOnGpu }: SoftwareOptions): Promise<ExecutorKind> {
  const place = `${adapter}, ${navigator.userAgent}, ${wasmThreads()?.count ?? 0} threads`
  const measured =
    (await knownMeasure({ place, cache })) ??
    (await measureExecutors({
      place,
      cache,
      clock: systemClock,
      open: (executor, spec) => (executor === 'wasm' ? openOnProcessor(executor, spec) : openOnGpu(spec)),
    }))
  say(measuredText(adapter, measured))
  return measured.wasm <= measured.webgpu ? 'wasm' : 'webgpu'
}

/** What a model needs that only WebGPU has; undefined: WebAssembly computes it. */
export function lacksHere(spec: ModelOfExecutor): string | undefined {
  return wasmLacks(buildGraph(spec))
}

export async function openOnProcessor(
  executor: Exclude<ExecutorKind, 'webgpu'>,
  spec: ModelOfExecutor,
  size: { readonly maxMicroBatch?: number; readonly maxBytes?: number } = {},
): Promise<Executor> {
  if (executor === 'reference') return createReferenceExecutor(spec, size)
  return createWasmExecutor(spec, { ...size, threads: wasmThreads() })
}
