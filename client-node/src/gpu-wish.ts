// Which adapters `--gpus` means. Pure.
import { GridError } from '@starling-grid/protocol'
import { isNamed } from './adapter-names.ts'

/** What a volunteer is to compute on. */
export type GpuWish =
  | { readonly type: 'all' }
  | { readonly type: 'count'; readonly count: number }
  /** parts of names, one for each adapter */
  | { readonly type: 'names'; readonly names: readonly string[] }

/** An adapter as Dawn lists it (runtime/list-adapters.mjs). Equal ones are listed as often as they are there. */
export interface ListedAdapter {
  /** 'vulkan', 'metal', 'd3d12', … */
  readonly backend: string
  readonly name: string
  /** what its `info` says */
  readonly device: string
  readonly driver: string
  readonly vendor: string
  readonly software: boolean
}

/** More do not fit a machine. */
const MOST_GPUS = 64
/** Of several interfaces to the same hardware the one that Dawn takes by itself. */
const BACKENDS = ['metal', 'd3d12', 'vulkan']

/** @throws GridError 'usage' */
export function gpuWishIn(text: string): GpuWish {
  if (text === 'all') return { type: 'all' }
  const names = text.split(',').map((name) => name.trim())
  const [only = ''] = names
  if (names.length === 1 && /^\d+$/.test(only)) {
    const count = Number(only)
    if (count >= 1 && count <= MOST_GPUS) return { type: 'count', count }
  } else if (names.length <= MOST_GPUS && names.every((name) => name !== '')) return { type: 'names', names }
  throw new GridError(
    'usage',
    `expected --gpus all, a number from 1 to ${MOST_GPUS}, or parts of names such as "4090,a770", ` +
      `got "${text.slice(0, 40)}"`,
  )
}

/**
 * In the order of the wish. A software adapter is chosen by name alone, as often as it is named: it is a program.
 * @throws GridError 'no-adapter'
 */
export function chosenAdapters(wish: GpuWish, all: readonly ListedAdapter[]): ListedAdapter[] {
  const listed = ofOneBackend(all)
  if (wish.type === 'names') return namedAdapters(wish.names, listed)
  const gpus = gpusAmong(all)
  const wanted = wish.type === 'all' ? Math.max(1, gpus.length) : wish.count
  if (gpus.length >= wanted) return gpus.slice(0, wanted)
  throw new GridError(
    'no-adapter',
    `expected ${wanted} ${wanted === 1 ? 'GPU' : 'GPUs'} for --gpus, got ${gpus.length} (${namesOf(listed)}); ` +
      'ask for fewer, install the driver, or name software adapters such as --gpus lavapipe,swiftshader',
  )
}

/** What `--gpus all` means. */
export function gpusAmong(all: readonly ListedAdapter[]): ListedAdapter[] {
  return ofOneBackend(all).filter(({ software }) => !software)
}

/** Hardware is listed once for each interface to it. */
function ofOneBackend(all: readonly ListedAdapter[]): ListedAdapter[] {
  const backend = BACKENDS.find((name) => all.some((adapter) => adapter.backend === name)) ?? all[0]?.backend
  return all.filter((adapter) => adapter.backend === backend)
}

function namedAdapters(names: readonly string[], listed: readonly ListedAdapter[]): ListedAdapter[] {
  const left = [...listed]
  return names.map((text) => {
    const at = left.findIndex(({ name, driver, vendor }) => isNamed(text, [name, driver, vendor]))
    const found = left[at]
    if (found === undefined)
      throw new GridError(
        'no-adapter',
        `expected ${listed.length === left.length ? 'an' : 'another'} adapter whose name contains "${text}", ` +
          `got ${namesOf(listed)}; name some of these, each GPU once`,
      )
    if (!found.software) left.splice(at, 1)
    return found
  })
}

function namesOf(listed: readonly ListedAdapter[]): string {
  return listed.length === 0 ? 'no adapter' : listed.map(({ name }) => name).join(', ')
}
