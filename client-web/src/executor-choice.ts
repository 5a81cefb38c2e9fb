// What computes in this tab where nothing was asked for: a GPU; without one, what is faster on the processor. Loaded
// only where the processor may compute; its counterpart in Node has the same name.
import { systemClock } from '@starling-grid/protocol'
import type { Executor, ShardCache } from '@starling-grid/volunteer'
import { createWasmExecutor, knownMeasure, measuredText, measureExecutors } from '@starling-grid/volunteer/wasm'
import { wasmThreads } from './wasm-threads.ts'
import type { TabExecutor } from './worker-messages.ts'

type ModelOfExecutor = Parameters<typeof createWasmExecutor>[0]

export interface SoftwareOptions {
  /** name of the only adapter */
  readonly adapter: string
  readonly cache: ShardCache
  readonly say: (text: string) => void
  readonly openOnGpu: (spec: ModelOfExecutor) => Promise<Executor>
}

/** Of a software adapter and WebAssembly the one that was measured faster here. */
export async function fasterHere({ adapter, cache, say, openOnGpu }: SoftwareOptions): Promise<TabExecutor> {
  const place = `${adapter}, ${navigator.userAgent}, ${wasmThreads()?.count ?? 0} threads`
  const measured =
    (await knownMeasure({ place, cache })) ??
    (await measureExecutors({
      place,
      cache,
      clock: systemClock,
      open: (executor, spec) => (executor === 'wasm' ? openOnProcessor(spec) : openOnGpu(spec)),
    }))
  say(measuredText(adapter, measured))
  return measured.wasm <= measured.webgpu ? 'wasm' : 'webgpu'
}

export async function openOnProcessor(
  spec: ModelOfExecutor,
  size: Pick<
    NonNullable<Parameters<typeof createWasmExecutor>[1]>,
    'maxMicroBatch' | 'maxBytes' | 'frozen' | 'say'
  > = {},
): Promise<Executor> {
  return createWasmExecutor(spec, { ...size, threads: wasmThreads() })
}
