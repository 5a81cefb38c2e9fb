// What computes in this tab, and how it is opened: for those who lend it, and for those who try a model on it.
import { GridError, isGridError } from '@starling-grid/protocol'
import { createGpuExecutor, type Executor, type GpuExecutorOptions, type ShardCache } from '@starling-grid/volunteer'
import type { SoftwareOptions } from './executor-choice.ts'
import { describeAdapter, openDevice, requestAdapter } from './gpu.ts'
import type { TabExecutor } from './worker-messages.ts'

/** What a tab's start may take longer for faster kernels; later starts find them in the cache. */
const TUNING_BUDGET_MS = 1500

/** A GPU, or what is faster without one. A browser without WebGPU computes on the processor, which is said. */
export async function chooseExecutor(shards: ShardCache): Promise<TabExecutor> {
  try {
    const adapter = describeAdapter(await requestAdapter())
    if (!adapter.software) return 'webgpu'
    const { fasterHere } = await import('./executor-choice.ts')
    const openSmall: SoftwareOptions['openOnGpu'] = (spec) => openOnGpu(shards, { spec })
    return await fasterHere({ adapter: adapter.name, cache: shards, say, openOnGpu: openSmall })
  } catch (error) {
    if (!isGridError(error) || error.code !== 'no-adapter') throw error
    say(`WebAssembly computes on the processor: ${error.message}`)
    return 'wasm'
  }
}

export async function openOnGpu(
  shards: ShardCache,
  wanted: Omit<GpuExecutorOptions, 'device' | 'adapter' | 'facts' | 'readText' | 'say' | 'tuning'>,
): Promise<Executor> {
  const { device, adapter, facts } = await openDevice()
  const { userAgent } = navigator
  // Software adapters compile slowly, and their first guess was measured.
  const tuning = adapter.software ? {} : { tuning: { budgetMs: TUNING_BUDGET_MS, cache: shards, userAgent, say } }
  return createGpuExecutor({ device, adapter, facts, readText, say, ...tuning, ...wanted })
}

export function say(text: string): void {
  console.warn(text)
}

/** A kernel's text. */
export async function readText(url: URL): Promise<string> {
  const response = await fetch(url).catch((cause: unknown) => {
    throw new GridError(
      'coordinator-lost',
      `expected ${url.pathname} from the coordinator, got no answer; reload the page`,
      {
        cause,
      },
    )
  })
  if (!response.ok)
    throw new GridError(
      'coordinator-lost',
      `expected ${url.pathname} from the coordinator, got HTTP ${response.status}; reload the page`,
    )
  return response.text()
}
