// Decides which Vulkan drivers a process will see, and returns the environment to start that process with (see
// prepare-process.ts for a process that runs already). Order: what the system offers (a GPU wins, else Mesa's
// lavapipe), then the bundled SwiftShader.
import { execFile } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { bundleRunsHere } from './bundle.ts'
import { softwareAdapter } from './software-adapter.ts'
import { driversNamedByUser, installedDrivers } from './system-vulkan.ts'

type Env = NodeJS.ProcessEnv

/** Set by the process that prepared the environment: it names the choice and stops a child from choosing again. */
export const ADAPTER_CHOICE = 'STARLING_ADAPTER_CHOICE'

const PROBE = fileURLToPath(new URL('./probe-adapter.mjs', import.meta.url))
/** A first start of a GPU driver compiles caches; a probe that takes longer hangs. */
const PROBE_LIMIT_MS = 15_000

/** Mesa release. Dawn refuses 22; 24 is the oldest that our kernels were run on. */
const OLDEST_LAVAPIPE = 24

export interface AdapterEnvironment {
  /** the whole environment to start a process with */
  readonly env: Env
  /** what was chosen and, where nothing was found, what was tried */
  readonly description: string
  /** libvulkan.so.1 when it is the bundled one, which only `env` makes known to the system */
  readonly loader?: string | undefined
}

export interface AdapterWish {
  /** part of an adapter's name, as given to `--adapter` */
  readonly adapter?: string | undefined
}

type PreparedEnvironment = Omit<AdapterEnvironment, 'description'>

interface Probed {
  readonly name: string
  readonly software: boolean
}

/** Never fails: where no driver is found the description lists the attempts, and opening the GPU reports it. */
export async function adapterEnvironment(wish: AdapterWish = {}, env: Env = process.env): Promise<AdapterEnvironment> {
  const chosen = env[ADAPTER_CHOICE]
  if (chosen) return { env, description: chosen }
  if (process.platform !== 'linux') return described({ env }, `what ${process.platform} offers`)
  const named = driversNamedByUser(env)
  if (named)
    return (
      (await probeSystem(env, `named in ${named}`))?.choice ??
      described({ env }, `none (no usable driver is named in ${named})`)
    )
  return chooseOnLinux(wish, env)
}

async function chooseOnLinux(wish: AdapterWish, env: Env): Promise<AdapterEnvironment> {
  const drivers = installedDrivers(env)
  const system = drivers.length > 0 ? await probeSystem(env, 'installed on this system') : undefined
  if (system && !wantsSwiftShader(wish, system.found) && !isOldLavapipe(system.found)) return system.choice
  if (bundleRunsHere) return swiftShader(env)
  const tried =
    drivers.length > 0 ? `${drivers.length} installed Vulkan drivers, none usable` : 'no Vulkan driver is installed'
  return described({ env }, `none (${tried}; the bundled SwiftShader is for Linux x64 only)`)
}

/** Tries the system's own Vulkan loader, then the bundled one, which containers with a GPU but no loader need. */
async function probeSystem(
  env: Env,
  origin: string,
): Promise<{ found: Probed; choice: AdapterEnvironment } | undefined> {
  for (const candidate of [() => ({ env }), () => withBundledLoader(env)]) {
    const tried = await candidate()
    const found = await probe(tried.env)
    if (!found) continue
    // lavapipe keeps its shared memory there.
    const settled = found.software ? { ...tried, env: { XDG_RUNTIME_DIR: tmpdir(), ...tried.env } } : tried
    return { found, choice: described(settled, `${found.name}${found.software ? ' (software)' : ''}, ${origin}`) }
  }
  return undefined
}

async function swiftShader(env: Env): Promise<AdapterEnvironment> {
  const { icd } = await softwareAdapter()
  const { env: withLibraries, loader } = await withBundledLoader(env)
  return described({ env: { ...withLibraries, VK_ICD_FILENAMES: icd }, loader }, 'SwiftShader (software), bundled')
}

function wantsSwiftShader(wish: AdapterWish, system: Probed): boolean {
  const text = wish.adapter?.toLowerCase()
  return text !== undefined && 'swiftshader'.includes(text) && !system.name.toLowerCase().includes(text)
}

function isOldLavapipe(system: Probed): boolean {
  const mesa = /llvmpipe.*Mesa (\d+)/.exec(system.name)?.[1]
  return mesa !== undefined && Number(mesa) < OLDEST_LAVAPIPE
}

async function probe(env: Env): Promise<Probed | undefined> {
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [PROBE], { env, timeout: PROBE_LIMIT_MS })
    const found: unknown = JSON.parse(stdout.trim().split('\n').at(-1) ?? 'null')
    return isProbed(found) ? found : undefined
  } catch {
    // A driver that crashes or hangs is as good as none.
    return undefined
  }
}

function isProbed(value: unknown): value is Probed {
  return typeof value === 'object' && value !== null && 'name' in value && 'software' in value
}

/** For a system that has no Vulkan loader, or none that this process finds. */
export async function withBundledLoader(env: Env): Promise<PreparedEnvironment> {
  if (!bundleRunsHere) return { env }
  const { libraryPath } = await softwareAdapter()
  // Behind the user's own folders; LD_LIBRARY_PATH as a whole comes before the system's.
  const folders = [env['LD_LIBRARY_PATH'], libraryPath].filter((folder) => folder)
  return { env: { ...env, LD_LIBRARY_PATH: folders.join(':') }, loader: join(libraryPath, 'libvulkan.so.1') }
}

function described(prepared: PreparedEnvironment, description: string): AdapterEnvironment {
  return { ...prepared, env: { ...prepared.env, [ADAPTER_CHOICE]: description }, description }
}
