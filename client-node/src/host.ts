// The headless process's VolunteerHost: everything that differs from a tab.
import { readFile } from 'node:fs/promises'
import { type ExecutorKind, GridError, isLoopbackUrl, systemClock } from '@starling-grid/protocol'
import {
  createGpuExecutor,
  DEFAULT_LIMITS,
  type Executor,
  type ExecutorBounds,
  type GpuExecutorOptions,
  LOSSES_KEPT_MS,
  microBatchFor,
  type OwnLimits,
  renewedExecutor,
  UPLOADS_KEPT_MS,
  type VolunteerHost,
} from '@starling-grid/volunteer'
import { openReferenceExecutor } from '@starling-grid/volunteer/language'
import { createWasmExecutor } from '@starling-grid/volunteer/wasm'
import { chooseExecutor, requireNoAdapter, type ExecutorWish } from './executor-choice.ts'
import { openGpu } from './gpu.ts'
import { HashThread } from './hash-thread.ts'
import { sendRequest } from './http.ts'
import { openNotes } from './kept-notes.ts'
import { openPeerNetwork } from './rtc-link.ts'
import { DEFAULT_DISK_BYTES, openShardCache } from './shard-cache.ts'
import { openSigner } from './signer.ts'
import { dialRelaySocket, dialSocket } from './socket.ts'
import type { ListenPlace } from './tcp-door.ts'
import { wasmThreads } from './wasm-threads.ts'
import { witnessIn } from './witness-folder.ts'

export { openWebRtc } from './rtc-link.ts'
export { type ListenPlace, listenPlaceIn } from './tcp-door.ts'

/** Of all volunteers of this process. */
const hashes = new HashThread()
/** What a volunteer's start may take longer for faster kernels; later starts find them in the cache. */
const TUNING_BUDGET_MS = 1500

export interface NodeHostOptions {
  /** http(s) origin of the coordinator */
  readonly coordinatorUrl: string
  readonly executor: ExecutorWish
  /** of the executor on WebAssembly; absent: one for each core */
  readonly threads?: number | undefined
  /** part of the wanted adapter's name */
  readonly adapter?: string | undefined
  /** plan for a software adapter as for a GPU */
  readonly asGpu?: boolean
  /** hosts of STUN and TURN servers beside the coordinator's own */
  readonly allowedIce?: readonly string[]
  /** of shards that are kept for later */
  readonly maxDiskBytes?: number
  readonly limits?: OwnLimits
  /** its address is shown to no other volunteer */
  readonly relaysOnly?: boolean
  /** where links over TCP are taken; false: neither taken nor dialled */
  readonly tcp?: ListenPlace | false
}

export function createNodeHost({
  coordinatorUrl,
  executor: wanted,
  adapter,
  threads,
  asGpu = false,
  allowedIce = [],
  maxDiskBytes = DEFAULT_DISK_BYTES,
  limits = DEFAULT_LIMITS,
  relaysOnly = false,
  tcp = {},
}: NodeHostOptions): VolunteerHost {
  requireNoAdapter(wanted, adapter)
  let choice: Promise<ExecutorKind> | undefined
  /** An adapter that was named computes, and only an adapter has shader-f16. */
  const chosenFor = (bounds: ExecutorBounds | undefined): Promise<ExecutorKind> | ExecutorKind => {
    if (wanted !== 'auto') return wanted
    if (adapter !== undefined || asGpu || bounds?.needsF16 === true) return 'webgpu'
    choice ??= chooseExecutor({ threads, say, openOnGpu: (spec) => openOnDevice({ spec }, undefined) })
    return choice
  }
  return {
    client: 'node',
    clock: systemClock,
    allowedIce,
    limits,
    relaysOnly,
    declined: openNotes('declined', LOSSES_KEPT_MS),
    // Grids of this machine alone send through its loopback: what its owner gives to others is not used up by them.
    ...(isLoopbackUrl(coordinatorUrl) ? {} : { uploaded: openNotes('uploaded', UPLOADS_KEPT_MS) }),
    signer: openSigner,
    openPeerNetwork: (access) => openPeerNetwork(access, tcp),
    sendRequest,
    shards: openShardCache({ maxBytes: maxDiskBytes }),
    digestOf: (bytes) => hashes.digestOf(bytes),
    ...witnessIn(process.env['STARLING_WITNESS']),
    ...doorOf(coordinatorUrl),
    at: doorOf,
    async createExecutor(spec, blockSamples, bounds) {
      const size = microBatchFor(spec, blockSamples)
      const executor = await chosenFor(bounds)
      if (executor === 'webgpu') return openGpuExecutor({ spec, ...size, asGpu, bounds }, adapter)
      requireNoF16(bounds, executor)
      if (executor === 'reference') return openReferenceExecutor(spec, { ...size, frozen: bounds?.frozen })
      const { maxBytes } = bounds ?? {}
      return createWasmExecutor(spec, {
        ...size,
        frozen: bounds?.frozen,
        ...(maxBytes === undefined ? {} : { maxBytes }),
        threads: wasmThreads(threads),
      })
    },
  }
}

function doorOf(coordinatorUrl: string): ReturnType<NonNullable<VolunteerHost['at']>> {
  const origin = coordinatorUrl.replace(/^http/, 'ws')
  return {
    coordinatorUrl,
    dialCoordinator: (path) => dialSocket(origin + path),
    dialRelay: (path, token) => dialRelaySocket(origin + path, token),
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

type WantedExecutor = Pick<GpuExecutorOptions, 'spec' | 'maxMicroBatch' | 'asGpu'> & {
  readonly bounds: ExecutorBounds | undefined
}

function openGpuExecutor({ bounds, ...size }: WantedExecutor, wanted: string | undefined): Promise<Executor> {
  const given = bounds ? { maxBytes: bounds.maxBytes, precision: bounds.precision ?? 'f32', frozen: bounds.frozen } : {}
  const options = { ...size, ...given }
  return renewedExecutor((trouble) => openOnDevice({ ...options, trouble }, wanted), {
    say,
    onLost: () => bounds?.onDeviceLost(),
  })
}

async function openOnDevice(
  options: Pick<
    GpuExecutorOptions,
    'spec' | 'maxMicroBatch' | 'maxBytes' | 'precision' | 'trouble' | 'asGpu' | 'frozen'
  >,
  wanted: string | undefined,
): Promise<Executor> {
  const gpu = await openGpu({ adapter: wanted })
  try {
    const executor = await createGpuExecutor({
      device: gpu.device,
      adapter: gpu.description,
      facts: gpu.facts,
      ...options,
      readText: (url) => readFile(url, 'utf8'),
      say,
      // Software adapters compile slowly, and their first guess was measured.
      ...(gpu.description.software ? {} : { tuning: { budgetMs: TUNING_BUDGET_MS, cache: openShardCache(), say } }),
    })
    const destroy = executor.destroy.bind(executor)
    // The device belongs to this executor alone: it ends with it, and lets the process exit.
    return Object.assign(executor, {
      destroy() {
        destroy()
        gpu.close()
      },
    })
  } catch (error) {
    gpu.close()
    throw error
  }
}

function say(text: string): void {
  console.error(text)
}
