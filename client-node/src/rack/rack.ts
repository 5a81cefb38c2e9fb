// A volunteer with other machines of its rack: all are one member. Each computes a slice of every batch; a machine that
// goes leaves its samples to the others, and takes part again when it is back.
import { type ModelSpec, parameterCount } from '@starling-grid/model'
import { type Clock, describeError, GridError, isGridError, systemClock } from '@starling-grid/protocol'
import type { ExecutorBounds } from '@starling-grid/volunteer'
import { backoffMs, mirroredExecutor } from '@starling-grid/volunteer/mirrored'
import type { ExecutorOpener } from '../executors.ts'
import { type MachineAddress, nameOf } from './machine-address.ts'
import { openRackMachine, type RackMachine } from './rack-machine.ts'

/** f32 vectors of the model's length that this process holds for each device: its gradient, its last parameters. */
const VECTORS_OF_EACH = 2
/** between tries to reach a machine that is not there */
const AGAIN = { firstMs: 2000, mostMs: 30_000 }
/** ms that a job waits for its machines; those that open later join then */
const FIRST_MS = 30_000
/** ms that a machine computes before it counts as well again: one that fails each step is asked less and less */
const STEADY_MS = 60_000
/** What another try may change; what it says of the model stays so. */
const PASSES: ReadonlySet<string> = new Set(['link-lost', 'device-lost', 'grid-full'])

export interface RackParts {
  readonly machines: readonly MachineAddress[]
  readonly key: Buffer
  /** for people */
  say(text: string): void
  readonly clock?: Clock
}

/** What `openOwn` opens, joined by all machines that can be reached, then or later. */
export function withMachines(openOwn: ExecutorOpener, parts: RackParts): ExecutorOpener {
  return async (spec, blockSamples, bounds) => {
    const own = await openOwn(spec, blockSamples, bounds && besideVectors(spec, bounds, parts.machines.length + 1))
    const { say, clock = systemClock } = parts
    const together = mirroredExecutor([own], { spec, say, clock })
    const end = new AbortController()
    const open = (at: MachineAddress): Promise<RackMachine> =>
      openRackMachine({ spec, blockSamples, bounds }, { key: parts.key, at })
    const firsts = parts.machines.map((at) => {
      const { first, kept } = keepJoined(
        { at, open, join: (machine) => together.join(machine), say, clock },
        end.signal,
      )
      void kept
      return first
    })
    await Promise.race([Promise.all(firsts), clock.sleep(FIRST_MS, end.signal)])
    const destroy = together.destroy.bind(together)
    return Object.assign(together, {
      destroy() {
        end.abort()
        destroy()
      },
    })
  }
}

interface Keeping {
  readonly at: MachineAddress
  open(at: MachineAddress): Promise<RackMachine>
  join(machine: RackMachine): void
  say(text: string): void
  readonly clock: Clock
}

/** `first`: it has joined, or could not. `kept`: the member was released, or the machine cannot compute this model. */
function keepJoined(
  keeping: Keeping,
  signal: AbortSignal,
): { readonly first: Promise<void>; readonly kept: Promise<void> } {
  let tried = (): void => undefined
  const first = new Promise<void>((resolve) => {
    tried = resolve
  })
  return { first, kept: stayJoined(keeping, signal, tried) }
}

async function stayJoined(
  { at, open, join, say, clock }: Keeping,
  signal: AbortSignal,
  tried: () => void,
): Promise<void> {
  for (let failures = 0; !signal.aborted;) {
    try {
      const machine = await open(at)
      if (signal.aborted) return machine.destroy()
      join(machine)
      tried()
      const joinedAt = clock.now()
      await machine.gone
      if (clock.now() - joinedAt > STEADY_MS) failures = 0
    } catch (error) {
      const passes = isGridError(error) && PASSES.has(error.code)
      const then = passes ? 'it takes part when it is there' : 'it takes no part in this job'
      if (failures === 0 || !passes) say(`${nameOf(at)} does not compute: ${describeError(error)}; ${then}`)
      tried()
      if (!passes) return
    }
    await clock.sleep(backoffMs(failures++, AGAIN), signal)
  }
}

/** What its owner allows is of this machine: the vectors of all devices lie here. @throws GridError 'own-limit' */
function besideVectors(spec: ModelSpec, bounds: ExecutorBounds, devices: number): ExecutorBounds {
  const vectorBytes = Float32Array.BYTES_PER_ELEMENT * parameterCount(spec)
  const maxBytes = bounds.maxBytes - devices * VECTORS_OF_EACH * vectorBytes
  if (maxBytes > 0) return { ...bounds, maxBytes }
  throw new GridError(
    'own-limit',
    `expected room for a gradient and a copy of the parameters for each of ${devices} machines, ` +
      `got ${Math.round(bounds.maxBytes / 1e6)} MB; raise --max-memory, or name fewer with --machines`,
  )
}
