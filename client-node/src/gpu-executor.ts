// The executor on an adapter of this machine: opened, and opened again when its device is lost. In the volunteer's own
// thread, or in one for each of several GPUs.
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import {
  createGpuExecutor,
  type Executor,
  type ExecutorBounds,
  type GpuExecutorOptions,
  renewedExecutor,
} from '@starling-grid/volunteer'
import { openGpu, type OpenGpu } from './gpu.ts'
import { openShardCache } from './shard-cache.ts'

/** What a volunteer's start may take longer for faster kernels; later starts find them in the cache. */
const TUNING_BUDGET_MS = 1500

/** Of a job. */
export type WantedExecutor = Pick<GpuExecutorOptions, 'spec' | 'maxMicroBatch' | 'asGpu'> & {
  readonly bounds: ExecutorBounds | undefined
}

export interface GpuPlace {
  open(): Promise<OpenGpu>
  /** for people */
  say(text: string): void
}

/** The adapter whose name contains `wanted`, or the first. */
export function placeOn(wanted: string | undefined, say: GpuPlace['say']): GpuPlace {
  return { open: () => openGpu({ adapter: wanted }), say }
}

export function openGpuExecutor({ bounds, ...size }: WantedExecutor, place: GpuPlace): Promise<Executor> {
  return renewedExecutor((trouble) => openOnDevice({ ...size, ...bounds, trouble }, place), {
    say: place.say,
    onLost: () => bounds?.onDeviceLost(),
  })
}

/** Dawn's, which compiles kernels for the driver. */
const { version } = createRequire(import.meta.url)('webgpu/package.json') as { readonly version: string }

export async function openOnDevice(
  options: Pick<
    GpuExecutorOptions,
    'spec' | 'maxMicroBatch' | 'maxBytes' | 'precision' | 'trouble' | 'asGpu' | 'frozen' | 'variants'
  >,
  { open, say }: GpuPlace,
): Promise<Executor> {
  const gpu = await open()
  try {
    const executor = await createGpuExecutor({
      device: gpu.device,
      adapter: gpu.description,
      facts: gpu.facts,
      ...options,
      readText: (url) => readFile(url, 'utf8'),
      say,
      // Software adapters compile slowly, and their first guess was measured.
      ...(gpu.description.software
        ? {}
        : { tuning: { budgetMs: TUNING_BUDGET_MS, cache: openShardCache(), userAgent: `webgpu/${version}`, say } }),
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
