// All adapters of this machine, for a volunteer that computes on several, and the environment under which a process
// sees them: every driver that is installed and, where software adapters are wanted, the bundled SwiftShader.
import { execFile } from 'node:child_process'
import { tmpdir } from 'node:os'
import { delimiter } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { ListedAdapter } from '../gpu-wish.ts'
import { ADAPTER_CHOICE, type AdapterEnvironment, withBundledLoader } from './adapter-environment.ts'
import { bundleRunsHere } from './bundle.ts'
import { softwareAdapter } from './software-adapter.ts'
import { driversNamedByUser, installedDrivers } from './system-vulkan.ts'

const LIST = fileURLToPath(new URL('./list-adapters.mjs', import.meta.url))
/** As for a probe: a driver's first start compiles caches. Each adapter is opened once. */
const LIST_LIMIT_MS = 30_000

export interface AllAdapters extends AdapterEnvironment {
  readonly listed: readonly ListedAdapter[]
}

/** Never fails: where there are no adapters none are listed. */
export async function allAdapters(withSoftware: boolean, env: NodeJS.ProcessEnv = process.env): Promise<AllAdapters> {
  const seeing = await seeingAll(withSoftware, env)
  const listed = await listAdapters(seeing)
  if (listed.length > 0 || !bundleRunsHere) return described({ env: seeing }, listed)
  // Containers with a GPU may have no loader.
  const bundled = await withBundledLoader(seeing)
  return described(bundled, await listAdapters(bundled.env))
}

/** What a process with this environment sees. */
export async function listAdapters(env: NodeJS.ProcessEnv): Promise<readonly ListedAdapter[]> {
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [LIST], { env, timeout: LIST_LIMIT_MS })
    const found: unknown = JSON.parse(stdout.trim().split('\n').at(-1) ?? '[]')
    return Array.isArray(found) ? found.filter(isListed) : []
  } catch {
    // A driver that crashes or hangs is as good as none.
    return []
  }
}

function isListed(value: unknown): value is ListedAdapter {
  if (typeof value !== 'object' || value === null) return false
  const texts = ['backend', 'name', 'device', 'driver', 'vendor'].map((key): unknown => Reflect.get(value, key))
  return texts.every((text) => typeof text === 'string') && typeof Reflect.get(value, 'software') === 'boolean'
}

/** Drivers that a parent process or the user chose stay the only ones. */
async function seeingAll(withSoftware: boolean, env: NodeJS.ProcessEnv): Promise<NodeJS.ProcessEnv> {
  if (process.platform !== 'linux' || env[ADAPTER_CHOICE] || driversNamedByUser(env)) return env
  // lavapipe keeps its shared memory there.
  const settled = { XDG_RUNTIME_DIR: tmpdir(), ...env }
  if (!withSoftware || !bundleRunsHere) return settled
  const { icd } = await softwareAdapter()
  return { ...settled, VK_ICD_FILENAMES: [...installedDrivers(env), icd].join(delimiter) }
}

function described(seeing: Pick<AdapterEnvironment, 'env' | 'loader'>, listed: readonly ListedAdapter[]): AllAdapters {
  const description = listed.length === 0 ? 'none' : listed.map(({ name }) => name).join(', ')
  return { ...seeing, env: { ...seeing.env, [ADAPTER_CHOICE]: description }, description, listed }
}
