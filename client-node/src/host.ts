// The headless process's VolunteerHost: everything that differs from a tab.
import { type ExecutorKind, GridError, isLoopbackUrl, systemClock } from '@starling-grid/protocol'
import {
  DEFAULT_LIMITS,
  type ExecutorBounds,
  LOSSES_KEPT_MS,
  microBatchFor,
  type OwnLimits,
  UPLOADS_KEPT_MS,
  type VolunteerHost,
} from '@starling-grid/volunteer'
import { openReferenceExecutor } from '@starling-grid/volunteer/language'
import { createWasmExecutor } from '@starling-grid/volunteer/wasm'
import { chooseExecutor, requireNoAdapter, type ExecutorWish } from './executor-choice.ts'
import { openGpuExecutor, openOnDevice, placeOn } from './gpu-executor.ts'
import type { GpuSeat } from './gpu-seats.ts'
import { HashThread } from './hash-thread.ts'
import { sendRequest } from './http.ts'
import { openNotes } from './kept-notes.ts'
import { MirroredGpus } from './mirrored-gpus.ts'
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

export interface NodeHostOptions {
  /** http(s) origin of the coordinator */
  readonly coordinatorUrl: string
  readonly executor: ExecutorWish
  /** of the executor on WebAssembly; absent: one for each core */
  readonly threads?: number | undefined
  /** part of the wanted adapter's name */
  readonly adapter?: string | undefined
  /** several adapters, which compute as one; instead of `adapter` */
  readonly gpus?: readonly GpuSeat[] | undefined
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
  gpus,
  threads,
  asGpu = false,
  allowedIce = [],
  maxDiskBytes = DEFAULT_DISK_BYTES,
  limits = DEFAULT_LIMITS,
  relaysOnly = false,
  tcp = {},
}: NodeHostOptions): VolunteerHost {
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
      if (mirrored) return mirrored.open({ spec, ...size, asGpu, bounds })
      const executor = await chosenFor(bounds)
      if (executor === 'webgpu') return openGpuExecutor({ spec, ...size, asGpu, bounds }, placeOn(adapter, say))
      requireNoF16(bounds, executor)
      const { maxBytes, frozen } = bounds ?? {}
      const inBounds = { ...size, frozen, say, ...(maxBytes === undefined ? {} : { maxBytes }) }
      if (executor === 'reference') return openReferenceExecutor(spec, inBounds)
      return createWasmExecutor(spec, { ...inBounds, threads: wasmThreads(threads) })
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

function say(text: string): void {
  console.error(text)
}
