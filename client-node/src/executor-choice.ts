// What computes on this machine where its owner did not choose: a GPU, or without one what is faster on the processor.
// The volunteer says which.
import { type ExecutorKind, GridError, isGridError, systemClock } from '@starling-grid/protocol'
import { type Executor } from '@starling-grid/volunteer'
import {
  createWasmExecutor,
  knownMeasure,
  measuredText,
  measureExecutors,
  type FasterOptions,
} from '@starling-grid/volunteer/wasm'
import { adapterLabel, openGpu } from './gpu.ts'
import { adapterEnvironment } from './runtime/adapter-environment.ts'
import { openShardCache } from './shard-cache.ts'
import { wasmThreads } from './wasm-threads.ts'

/** 'auto': what is found and measured here */
export type ExecutorWish = ExecutorKind | 'auto'

export const EXECUTOR_CHOICES: readonly ExecutorWish[] = ['auto', 'webgpu', 'wasm', 'reference']
export const EXECUTOR_TEXT =
  'what computes: a GPU by WebGPU, the processor by WebAssembly, or plain TypeScript; ' +
  'auto: the GPU, or the faster of the first two without one'

export interface ChoiceOptions {
  readonly threads: number | undefined
  readonly say: (text: string) => void
  readonly openOnGpu: (spec: Parameters<FasterOptions['open']>[1]) => Promise<Executor>
}

/** @throws GridError what opening an adapter throws, but for 'no-adapter' */
export async function chooseExecutor({ threads, say, openOnGpu }: ChoiceOptions): Promise<'webgpu' | 'wasm'> {
  const { description } = await adapterEnvironment()
  const { count } = wasmThreads(threads)
  const cache = openShardCache()
  const place = `${description}, Node ${process.versions.node}, ${count} threads`
  const known = await knownMeasure({ place, cache })
  if (known) return said(description, known, say)
  const label = await adapterHere(say)
  if (label === undefined) return 'wasm'
  if (!label.software) return 'webgpu'
  const measured = await measureExecutors({
    place,
    cache,
    clock: systemClock,
    open: (executor, spec) =>
      executor === 'wasm' ? createWasmExecutor(spec, { threads: wasmThreads(threads) }) : openOnGpu(spec),
  })
  return said(label.text, measured, say)
}

function said(
  adapter: string,
  measured: NonNullable<Awaited<ReturnType<typeof knownMeasure>>>,
  say: (text: string) => void,
) {
  const isWasm = measured.wasm <= measured.webgpu
  say(measuredText(adapter, measured))
  return isWasm ? 'wasm' : 'webgpu'
}

/** Undefined: none, which is said. */
async function adapterHere(say: (text: string) => void): Promise<{ text: string; software: boolean } | undefined> {
  try {
    const { description, close } = await openGpu()
    close()
    return { text: adapterLabel(description), software: description.software }
  } catch (error) {
    if (!isGridError(error) || error.code !== 'no-adapter') throw error
    say('No GPU, and no software adapter either: WebAssembly computes on the processor.')
    return undefined
  }
}

/** @throws GridError 'usage' when an adapter is named for something that has none */
export function requireNoAdapter(
  executor: ExecutorWish,
  adapter: unknown,
  option: '--adapter' | '--gpus' = '--adapter',
): void {
  if (adapter === undefined || executor === 'auto' || executor === 'webgpu') return
  throw new GridError('usage', `expected ${option} with --executor webgpu, got ${executor}; leave one of them out`)
}
