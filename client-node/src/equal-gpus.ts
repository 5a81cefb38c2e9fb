// Dawn chooses an adapter by name, and equal GPUs have the same. A driver shows one GPU alone where variables of the
// environment say so. Which variables it heeds is tried, in short processes: what shows one adapter where there were
// several is taken. Knows no hardware: it is given what lists adapters.
import { GridError } from '@starling-grid/protocol'
import type { ListedAdapter } from './gpu-wish.ts'

/** Variables under which a driver shows one GPU alone. */
export type GpuSelection = Readonly<Record<string, string>>

/**
 * A selection layer comes with Mesa, and works for drivers of all makers: by the address of the GPU, and with the
 * second variable it hides all others. CUDA_VISIBLE_DEVICES is NVIDIA's own.
 */
const BY_ADDRESS = (address: string): GpuSelection => ({
  DRI_PRIME: `pci-${address.replaceAll(/[:.]/g, '_')}`,
  MESA_VK_DEVICE_SELECT_FORCE_DEFAULT_DEVICE: '1',
})
const BY_NUMBER = (number: number): GpuSelection => ({ CUDA_VISIBLE_DEVICES: String(number) })

/** All that selections may set. */
export const SELECTION_VARIABLES: readonly string[] = [...Object.keys(BY_ADDRESS('')), ...Object.keys(BY_NUMBER(0))]

export interface SelectionTrials {
  /** addresses of the machine's graphics devices on its PCI bus, such as 0000:65:00.0 */
  readonly addresses: readonly string[]
  /** what a process sees under these variables */
  list(selection: GpuSelection): Promise<readonly ListedAdapter[]>
}

/**
 * One selection for each of `count` GPUs of this name. @throws GridError 'no-adapter' when they cannot be told apart
 */
export async function selectEqual(name: string, count: number, trials: SelectionTrials): Promise<GpuSelection[]> {
  const ways = [trials.addresses.map(BY_ADDRESS), Array.from({ length: count }, (_, number) => BY_NUMBER(number))]
  for (const way of ways) {
    const works: GpuSelection[] = []
    for (const selection of way) {
      const [only, ...others] = await trials.list(selection)
      if (only?.name === name && others.length === 0) works.push(selection)
    }
    if (works.length >= count) return works.slice(0, count)
  }
  throw new GridError(
    'no-adapter',
    `expected a driver that shows one of ${count} GPUs "${name}" alone, got one that shows all of them whatever is ` +
      "asked; install Mesa's device selection (`apt-get install mesa-vulkan-drivers`), or start a volunteer for each " +
      'GPU, in containers that have one each',
  )
}
