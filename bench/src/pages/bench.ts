// The page in which libraries are measured: it opens them, keeps what they prepared, and passes results on as text.
import { toBase64 } from '@starling-grid/cli/browser'
import { openDevice } from '@starling-grid/client-web/gpu'
import { wasmThreads } from '@starling-grid/client-web/wasm-threads'
import { countGpuCalls, gpuCalls } from '../gpu-calls.ts'
import { type OwnExecutor, starlingOnBoth } from '../libraries/starling.ts'
import type { Library, Missing, PeerModule, PreparedTask } from '../library.ts'
import type { OpenedInPage } from '../places/browser.ts'
import type { BenchTask } from '../task.ts'

const libraries = new Map<string, Library>()
const prepared: PreparedTask[] = []

interface OpenOptions {
  readonly executor: OwnExecutor
  readonly peers: readonly string[]
}

async function open({ executor, peers }: OpenOptions): Promise<OpenedInPage> {
  countGpuCalls()
  const { device, adapter } = await openDevice()
  const readText = async (url: URL) => (await fetch(url)).text()
  const opened: Library[] = starlingOnBoth(executor, { device, adapter, readText }, wasmThreads())
  const missing: Missing[] = []
  for (const peer of peers) {
    const module = (await import(/* @vite-ignore */ `/${peer}.js`)) as PeerModule
    const found = await module.openLibraries('browser')
    opened.push(
      ...found.libraries.map((library) =>
        library.adapter === 'webgpu' ? { ...library, adapter: adapter.name } : library,
      ),
    )
    missing.push(...found.missing)
  }
  for (const library of opened) libraries.set(library.name, library)
  return {
    adapter: opened[0]?.adapter ?? adapter.name,
    missing,
    libraries: opened.map(({ name, version, adapter: on }) => ({ name, version, adapter: on })),
  }
}

async function prepare({ library, task }: { readonly library: string; readonly task: BenchTask }): Promise<number> {
  const found = libraries.get(library)
  if (!found) throw new Error(`internal: the page has no library ${library}`)
  return prepared.push(await found.prepare(task)) - 1
}

async function result(id: number): Promise<string> {
  return toBase64(new Uint8Array((await at(id).result()).buffer))
}

function time({ id, repeats }: { readonly id: number; readonly repeats: number }): Promise<number> {
  return at(id).time(repeats)
}

function close(id: number): Promise<void> {
  return at(id).close()
}

function at(id: number): PreparedTask {
  const found = prepared[id]
  if (!found) throw new Error('internal: nothing was prepared under this number')
  return found
}

Object.assign(globalThis, { page: { open, prepare, result, time, close, gpuCalls } })
