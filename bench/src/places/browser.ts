// Libraries in one page of headless Chromium: one adapter, one set of flags for all. Here they are only spoken to.
import { fromBase64, type OpenPage, openPage } from '@starling-grid/cli/browser'
import type { GpuCalls } from '../gpu-calls.ts'
import type { OwnExecutor } from '../libraries/starling.ts'
import type { Library, Missing, PreparedTask } from '../library.ts'
import type { Peers } from '../peers.ts'
import type { BenchPlace } from './place.ts'

/** What the page answers to `open`. */
export interface OpenedInPage {
  readonly adapter: string
  readonly libraries: readonly Omit<Library, 'prepare'>[]
  readonly missing: readonly Missing[]
}

export async function openBrowser(executor: OwnExecutor, peers: Peers): Promise<BenchPlace> {
  const page = await openPage({
    modules: { ...peers.modules, page: new URL('../pages/bench.ts', import.meta.url) },
    files: peers.files,
  })
  try {
    const opened = (await page.call('open', { executor, peers: Object.keys(peers.modules) })) as OpenedInPage
    return {
      name: 'browser',
      adapter: opened.adapter,
      libraries: opened.libraries.map((library) => remote(page, library)),
      missing: [...peers.missing, ...opened.missing],
      close: () => page.close(),
      gpuCalls: async () => (await page.call('gpuCalls')) as GpuCalls,
    }
  } catch (error) {
    await page.close()
    throw error
  }
}

function remote(page: OpenPage, library: Omit<Library, 'prepare'>): Library {
  return {
    ...library,
    async prepare(task): Promise<PreparedTask> {
      const id = await page.call('prepare', { library: library.name, task })
      return {
        result: async () => new Float32Array(fromBase64(String(await page.call('result', id))).buffer),
        time: async (repeats) => Number(await page.call('time', { id, repeats })),
        close: async () => void (await page.call('close', id)),
      }
    },
  }
}
