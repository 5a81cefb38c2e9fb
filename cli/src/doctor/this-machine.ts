// The checks of this machine alone: Node, adapter, browser and disk.
import { mkdtemp, rm, statfs } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import {
  adapterLabel,
  allAdapters,
  exists,
  findChromium,
  gpusAmong,
  type ListedAdapter,
  openGpu,
} from '@starling-grid/client-node'
import { type AdapterDescription, describeError } from '@starling-grid/protocol'
import { traitsOf } from '@starling-grid/volunteer'
import { type CheckResult, failure, ok, warning } from './check.ts'

const OLDEST_NODE = [20, 19] as const
const MEBIBYTE = 2 ** 20
/** The demo's data, versions and journal fit many times over. */
const COMFORTABLE_FREE_MIB = 1024
/** Less does not hold the journal and two versions of a small network. */
const LEAST_FREE_MIB = 100

export function checkNode(version: string = process.versions.node): CheckResult {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const [oldestMajor, oldestMinor] = OLDEST_NODE
  const recent = major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)
  if (recent) return ok('node', `Node ${version}`)
  return failure('node', `Node ${version}`, `Install Node ${OLDEST_NODE.join('.')} or later.`)
}

export async function checkAdapter(): Promise<CheckResult> {
  try {
    const { device, description, facts, close } = await openGpu()
    const halves = halvesText(description, traitsOf(device, description.software, facts))
    close()
    const detail = `${adapterLabel(description)}, ${halves}${severalText((await allAdapters(false)).listed)}`
    if (!description.software) return ok('adapter', detail)
    return warning(
      'adapter',
      detail,
      "It works, slowly. If this machine has a GPU, install its maker's driver with Vulkan.",
    )
  } catch (error) {
    return warning(
      'adapter',
      describeError(error),
      'WebAssembly computes on the processor instead. If this machine has a GPU, install its driver with Vulkan.',
    )
  }
}

/** What jobs in f16 get of an adapter. */
export function halvesText({ f16 }: AdapterDescription, { matrixUnits }: { readonly matrixUnits?: boolean }): string {
  if (f16 !== true) return 'without shader-f16: jobs that require it go to others'
  return matrixUnits === true ? 'with shader-f16 and matrix units for it' : 'with shader-f16'
}

/** Of a machine with several GPUs, what lends all of them; empty otherwise. */
export function severalText(listed: readonly ListedAdapter[]): string {
  const gpus = gpusAmong(listed)
  if (gpus.length < 2) return ''
  const names = gpus.map(({ name }) => name).join(', ')
  return `; ${gpus.length} GPUs: ${names} (\`starling volunteer URL --gpus all\` lends them as one member)`
}

/** Only tests and screenshots need a browser on this machine, so its absence is no failure. */
export async function checkBrowser(): Promise<CheckResult> {
  const cure =
    'Tests need one: run `npx playwright install --with-deps chromium`, or name a Chrome in STARLING_CHROMIUM.'
  try {
    const { executable, origin, env } = await findChromium()
    const { chromium } = await import('playwright-core')
    const browser = await chromium.launch({ executablePath: executable, args: ['--no-sandbox'], env: { ...env } })
    const version = browser.version()
    await browser.close()
    return ok('browser', `Chromium ${version}, ${origin}`)
  } catch (error) {
    const [firstLine = ''] = describeError(error).split('\n')
    return warning('browser', firstLine, cure)
  }
}

/** Looks at the folder without creating it. */
export async function checkDisk(dataFolder: string): Promise<CheckResult> {
  const folder = await nearestExisting(resolve(dataFolder))
  const another = 'Make room, or name another folder with `--data-dir`.'
  try {
    await rm(await mkdtemp(join(folder, '.starling-doctor-')), { recursive: true })
    const { bavail, bsize } = await statfs(folder)
    const freeMiB = Math.floor((bavail * bsize) / MEBIBYTE)
    const detail = `${resolve(dataFolder)} can be written, ${freeMiB} MiB free`
    if (freeMiB < LEAST_FREE_MIB) return failure('disk', detail, another)
    return freeMiB < COMFORTABLE_FREE_MIB ? warning('disk', detail, another) : ok('disk', detail)
  } catch (error) {
    return failure('disk', `${folder} cannot be written: ${describeError(error)}`, another)
  }
}

async function nearestExisting(folder: string): Promise<string> {
  if ((await exists(folder)) || dirname(folder) === folder) return folder
  return nearestExisting(dirname(folder))
}
