// Libraries in this Node process, Starling and its peers on the same adapter, and PyTorch in a process of its own.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { bundle } from '@starling-grid/cli/browser'
import { openGpu, type OpenGpu, wasmThreads } from '@starling-grid/client-node'
import { countGpuCalls, gpuCalls } from '../gpu-calls.ts'
import { type OwnExecutor, starlingOnBoth } from '../libraries/starling.ts'
import { openTorch } from '../libraries/torch.ts'
import type { Library, Missing, PeerModule } from '../library.ts'
import type { Peers } from '../peers.ts'
import type { BenchPlace } from './place.ts'

export async function openNode(
  { adapter, executor }: { readonly adapter: string | undefined; readonly executor: OwnExecutor },
  peers: Peers,
): Promise<BenchPlace> {
  const gpu = await openGpu({ adapter })
  countGpuCalls()
  const device = { device: gpu.device, adapter: gpu.description, readText: (url: URL) => readFile(url, 'utf8') }
  const own = starlingOnBoth(executor, device, wasmThreads(undefined))
  const torch = await openTorch()
  const others = await openPeers(gpu, peers)
  const torchMissing: Missing[] = 'reason' in torch ? [torch] : []
  return {
    name: 'node',
    adapter: own[0]?.adapter ?? gpu.description.name,
    libraries: [...own, ...others.libraries, ...('reason' in torch ? [] : [torch])],
    missing: [...peers.missing, ...others.missing, ...torchMissing],
    gpuCalls: async () => gpuCalls(),
    async close() {
      if ('close' in torch) torch.close()
      await others.close()
      gpu.close()
    },
  }
}

async function openPeers(
  { description }: OpenGpu,
  peers: Peers,
): Promise<{ libraries: Library[]; missing: Missing[]; close(): Promise<void> }> {
  const { create } = await import('webgpu')
  const gpu = create([])
  pretendToBeAPage({
    requestAdapter: () => adapterNamed(gpu, description.name),
    wgslLanguageFeatures: gpu.wgslLanguageFeatures,
  })
  const folder = await mkdtemp(join(tmpdir(), 'starling-peers-'))
  const libraries: Library[] = []
  const missing: Missing[] = []
  try {
    if (Object.keys(peers.modules).length > 0) await bundle(peers.modules, folder)
    await writeFile(join(folder, 'package.json'), '{"type":"module"}')
    for (const name of Object.keys(peers.modules)) {
      const { openLibraries } = (await import(pathToFileURL(join(folder, `${name}.js`)).href)) as PeerModule
      const opened = await openLibraries('node')
      libraries.push(
        ...opened.libraries.map((library) =>
          library.adapter === 'webgpu' ? { ...library, adapter: description.name } : library,
        ),
      )
      missing.push(...opened.missing)
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
  return { libraries, missing, close: async () => void Reflect.deleteProperty(globalThis, 'navigator') }
}

/**
 * What the peers look for in a browser; tfjs takes a Worker's global for one, and so does without modules of Node's.
 */
function pretendToBeAPage(gpu: Pick<GPU, 'requestAdapter' | 'wgslLanguageFeatures'>): void {
  const navigator = { gpu, userAgent: 'Node', hardwareConcurrency: availableParallelism() }
  Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true })
  Object.assign(globalThis, { WorkerGlobalScope: class {} })
}

/** Peers ask for any adapter and get the one that Starling has. */
async function adapterNamed(gpu: GPU, name: string): Promise<GPUAdapter | null> {
  for (const way of [{}, { powerPreference: 'low-power' }, { forceFallbackAdapter: true }] as const) {
    const adapter = await gpu.requestAdapter(way)
    if (adapter && (adapter.info.description || adapter.info.device) === name) return adapter
  }
  return null
}
