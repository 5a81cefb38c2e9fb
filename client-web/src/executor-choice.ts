// What computes in this tab where nothing was asked for: a GPU; without one, what is faster on the processor. Loaded
// only where the processor may compute; its counterpart in Node has the same name.
import { type ExecutorKind, systemClock } from '@starling-grid/protocol'
import type { Executor, ShardCache } from '@starling-grid/volunteer'
import { openReferenceExecutor } from '@starling-grid/volunteer/language'
import { createWasmExecutor, knownMeasure, measuredText, measureExecutors } from '@starling-grid/volunteer/wasm'
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

export async function openOnProcessor(
  executor: Exclude<ExecutorKind, 'webgpu'>,
  spec: ModelOfExecutor,
  size: Pick<NonNullable<Parameters<typeof createWasmExecutor>[1]>, 'maxMicroBatch' | 'maxBytes' | 'frozen'> = {},
): Promise<Executor> {
  if (executor === 'reference') return openReferenceExecutor(spec, size)
  return createWasmExecutor(spec, { ...size, threads: wasmThreads() })
}
