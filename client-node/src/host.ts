// The headless process's VolunteerHost: everything that differs from a tab.
import { readFile } from 'node:fs/promises'
import { GridError, isLoopbackUrl, systemClock } from '@starling-grid/protocol'
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
import { openGpu } from './gpu.ts'
import { sendRequest } from './http.ts'
import { openNotes } from './kept-notes.ts'
import { openPeerNetwork } from './rtc-link.ts'
import { DEFAULT_DISK_BYTES, openShardCache } from './shard-cache.ts'
import { openSigner } from './signer.ts'
import { dialRelaySocket, dialSocket } from './socket.ts'
import { witnessIn } from './witness-folder.ts'

export { openWebRtc } from './rtc-link.ts'

/** What a volunteer's start may take longer for faster kernels; later starts find them in the cache. */
const TUNING_BUDGET_MS = 1500

export interface NodeHostOptions {
  /** http(s) origin of the coordinator */
  readonly coordinatorUrl: string
  readonly executor: 'webgpu' | 'reference'
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
}

export function createNodeHost({
  coordinatorUrl,
  executor,
  adapter,
  asGpu = false,
  allowedIce = [],
  maxDiskBytes = DEFAULT_DISK_BYTES,
  limits = DEFAULT_LIMITS,
  relaysOnly = false,
}: NodeHostOptions): VolunteerHost {
  return {
    client: 'node',
    clock: systemClock,
    coordinatorUrl,
    allowedIce,
    limits,
    relaysOnly,
    declined: openNotes('declined', LOSSES_KEPT_MS),
    // Grids of this machine alone send through its loopback: what its owner gives to others is not used up by them.
    ...(isLoopbackUrl(coordinatorUrl) ? {} : { uploaded: openNotes('uploaded', UPLOADS_KEPT_MS) }),
    signer: openSigner,
    openPeerNetwork,
    sendRequest,
    shards: openShardCache({ maxBytes: maxDiskBytes }),
    ...witnessIn(process.env['STARLING_WITNESS']),
    dialCoordinator: (path) => dialSocket(coordinatorUrl.replace(/^http/, 'ws') + path),
    dialRelay: (path, token) => dialRelaySocket(coordinatorUrl.replace(/^http/, 'ws') + path, token),
    async createExecutor(spec, blockSamples, bounds) {
      const size = microBatchFor(spec, blockSamples)
      if (executor === 'webgpu') return openGpuExecutor({ spec, ...size, asGpu, bounds }, adapter)
      requireF32(bounds)
      return openReferenceExecutor(spec, { ...size, frozen: bounds?.frozen })
    },
  }
}

/** @throws GridError 'no-f16' */
function requireF32(bounds: ExecutorBounds | undefined): void {
  if (bounds?.precision !== 'f16') return
  throw new GridError(
    'no-f16',
    'expected a GPU for a job in f16, got the reference executor, which computes in f32; ' +
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
