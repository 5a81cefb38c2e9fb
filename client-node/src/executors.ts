// What computes on this machine: an executor for each model, on what its owner chose.
import type { ModelSpec } from '@starling-grid/model'
import { type ExecutorKind, GridError } from '@starling-grid/protocol'
import { type Executor, type ExecutorBounds, microBatchFor } from '@starling-grid/volunteer'
import { openReferenceExecutor } from '@starling-grid/volunteer/language'
import { createWasmExecutor } from '@starling-grid/volunteer/wasm'
import { chooseExecutor, requireNoAdapter, type ExecutorWish } from './executor-choice.ts'
import { openGpuExecutor, openOnDevice, placeOn } from './gpu-executor.ts'
import type { GpuSeat } from './gpu-seats.ts'
import { MirroredGpus } from './mirrored-gpus.ts'
import { wasmThreads } from './wasm-threads.ts'

export interface ExecutorOptions {
  readonly executor: ExecutorWish
  /** of the executor on WebAssembly; absent: one for each core */
  readonly threads?: number | undefined
  /** part of the wanted adapter's name */
  readonly adapter?: string | undefined
  /** several adapters, which compute as one; instead of `adapter` */
  readonly gpus?: readonly GpuSeat[] | undefined
  /** plan for a software adapter as for a GPU */
  readonly asGpu?: boolean
  /** for people; absent: on stderr */
  readonly say?: (text: string) => void
}

export type ExecutorOpener = (
  spec: ModelSpec,
  blockSamples: number,
  bounds: ExecutorBounds | undefined,
) => Promise<Executor>

/** @throws GridError 'usage' when the options exclude each other */
export function executorOpener({
  executor: wanted,
  adapter,
  gpus,
  threads,
  asGpu = false,
  say = (text) => console.error(text),
}: ExecutorOptions): ExecutorOpener {
  requireNoAdapter(wanted, adapter)
  requireNoAdapter(wanted, gpus, '--gpus')
  const mirrored = gpus && new MirroredGpus(gpus, { say })
  let choice: Promise<ExecutorKind> | undefined
  /** An adapter that was named computes, and only an adapter has shader-f16. */
  const chosenFor = (bounds: ExecutorBounds | undefined): Promise<ExecutorKind> | ExecutorKind => {
    if (wanted !== 'auto') return wanted
    if (adapter !== undefined || asGpu || bounds?.needsF16 === true) return 'webgpu'
    choice ??= chooseExecutor({ threads, say, openOnGpu: (spec) => openOnDevice({ spec }, placeOn(undefined, say)) })
    return choice
  }
  return async (spec, blockSamples, bounds) => {
    const size = microBatchFor(spec, blockSamples)
    if (mirrored) return mirrored.open({ spec, ...size, asGpu, bounds })
    const executor = await chosenFor(bounds)
    if (executor === 'webgpu') return openGpuExecutor({ spec, ...size, asGpu, bounds }, placeOn(adapter, say))
    requireNoF16(bounds, executor)
    const { maxBytes, frozen } = bounds ?? {}
    const inBounds = { ...size, frozen, say, ...(maxBytes === undefined ? {} : { maxBytes }) }
    if (executor === 'reference') return openReferenceExecutor(spec, inBounds)
    return createWasmExecutor(spec, { ...inBounds, threads: wasmThreads(threads) })
  }
}

/** @throws GridError 'no-f16' */
function requireNoF16(bounds: ExecutorBounds | undefined, executor: ExecutorKind): void {
  if (bounds?.needsF16 !== true) return
  throw new GridError(
    'no-f16',
    `expected an adapter with shader-f16, which the job requires, got the executor ${executor}, which has none; ` +
      'start the volunteer with --executor webgpu',
  )
}
