// The adapters that a volunteer computes on: which of this machine's, and how a thread opens exactly that one.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { SerialQueue } from '@starling-grid/protocol'
import { type GpuSelection, SELECTION_VARIABLES, selectEqual, type SelectionTrials } from './equal-gpus.ts'
import { chosenAdapters, type GpuWish, type ListedAdapter } from './gpu-wish.ts'
import { allAdapters, listAdapters } from './runtime/all-adapters.ts'
import { applyEnvironment } from './runtime/prepare-process.ts'

/** One adapter of this machine, for one thread. */
export interface GpuSeat {
  readonly adapter: ListedAdapter
  /** where another adapter has the same name */
  readonly selection?: GpuSelection | undefined
}

const PCI_DEVICES = '/sys/bus/pci/devices'
/** First digits of the class of display controllers on the PCI bus. */
const DISPLAY = '0x03'

/** Makes this process see all adapters. Call it on the main thread. @throws GridError 'no-adapter' */
export async function findSeats(wish: GpuWish): Promise<readonly GpuSeat[]> {
  const all = await allAdapters(wish.type === 'names')
  applyEnvironment(all)
  const trials: SelectionTrials = {
    addresses: displayAddresses(),
    list: (selection) => listAdapters({ ...all.env, ...selection }),
  }
  return seatsOf(chosenAdapters(wish, all.listed), all.listed, trials)
}

/** `listed`: all adapters of the machine. @throws GridError 'no-adapter' when equal ones cannot be told apart */
export async function seatsOf(
  chosen: readonly ListedAdapter[],
  listed: readonly ListedAdapter[],
  trials: SelectionTrials,
): Promise<GpuSeat[]> {
  const selections = new Map<string, GpuSelection[]>()
  const seats: GpuSeat[] = []
  for (const adapter of chosen) {
    const { name, backend } = adapter
    // Dawn takes the first adapter whose name contains what it was given.
    const alike = listed.filter((other) => other.backend === backend && other.name.includes(name))
    if (alike.length <= 1) {
      seats.push({ adapter })
      continue
    }
    const equal = alike.filter((other) => other.name === name).length
    const left = selections.get(name) ?? (await selectEqual(name, equal, trials))
    selections.set(name, left)
    seats.push({ adapter, selection: left.shift() })
  }
  return seats
}

function displayAddresses(): string[] {
  try {
    return readdirSync(PCI_DEVICES)
      .filter((address) => readFileSync(join(PCI_DEVICES, address, 'class'), 'utf8').startsWith(DISPLAY))
      .sort()
  } catch {
    // No PCI bus, or none that may be looked at.
    return []
  }
}

/**
 * Opens adapters one at a time: drivers read the variables of a selection when they are asked for adapters, and the
 * environment is the process's.
 */
export class OpeningTurns {
  readonly #queue = new SerialQueue()

  /** `open`: what asks for the adapter, and ends when it has it */
  take<T>({ selection = {} }: GpuSeat, open: () => Promise<T>): Promise<T> {
    return this.#queue.run(async () => {
      const before = SELECTION_VARIABLES.map((name) => [name, process.env[name]] as const)
      for (const [name, value] of before) setVariable(name, selection[name] ?? value)
      try {
        return await open()
      } finally {
        for (const [name, value] of before) setVariable(name, value)
      }
    })
  }
}

function setVariable(name: string, value: string | undefined): void {
  if (value === undefined) delete process.env[name]
  else process.env[name] = value
}
