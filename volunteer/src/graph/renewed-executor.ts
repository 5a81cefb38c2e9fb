// An executor that survives the loss of its device and a shortage of its memory: the device is opened anew, gets the
// last parameters, and repeats what failed. Each time it is asked for less at once. A device that is lost again and
// again within an hour is given up, and the volunteer leaves with its name. Independent of devices.

import { type Clock, type GridError, isGridError, systemClock } from '@starling-grid/protocol'
import type { OptimizerSpec } from '@starling-grid/shaders'
import type { AdapterDescription, Batch, BatchSums, EarlyRanges, Executor, ResidentTraining } from './executor.ts'
import { OutOfDeviceMemory } from './out-of-device-memory.ts'
import { ResidentStateLost } from './resident-state-lost.ts'

/** What happened to a device so far: who opens it anew asks it for less. */
export interface DeviceTrouble {
  /** losses within RENEWAL_WINDOW_MS: what is submitted at once is halved for each */
  readonly losses: number
  /** allocations that it had no memory for: so many times less is asked for */
  readonly shortages: number
}

export const NO_TROUBLE: DeviceTrouble = { losses: 0, shortages: 0 }

export type OpenExecutor = (trouble: DeviceTrouble) => Promise<Executor>

export interface RenewalOptions {
  /** told of the loss and of what comes after it */
  readonly say: (text: string) => void
  /** counts losses */
  readonly onLost?: () => void
  readonly clock?: Clock
}

/** Losses in an hour that are repaired. Another program may be at fault for one; a driver that dies so often is ill. */
const MOST_RENEWALS = 3
const RENEWAL_WINDOW_MS = 3_600_000
/** ms before a lost device is asked for again: doubled by every loss, since a driver that resets takes a moment */
const FIRST_PAUSE_MS = 500
/** Below one sample with recomputation nothing is left to try. */
const MOST_SHORTAGES = 8

/** `open`: a new device and an executor on it. */
export async function renewedExecutor(open: OpenExecutor, options: RenewalOptions): Promise<Executor> {
  return new RenewedExecutor(await open(NO_TROUBLE), open, options)
}

class RenewedExecutor implements Executor {
  readonly #open: OpenExecutor
  readonly #options: RenewalOptions
  readonly #clock: Clock
  readonly #end = new AbortController()
  #current: Executor
  #renewal: Promise<void> | undefined
  #parameters: Float32Array | undefined
  /** when its device was lost */
  #losses: number[] = []
  #shortages = 0

  constructor(first: Executor, open: OpenExecutor, options: RenewalOptions) {
    this.#current = first
    this.#open = open
    this.#options = options
    this.#clock = options.clock ?? systemClock
  }

  get adapter(): AdapterDescription {
    return this.#current.adapter
  }

  loadParameters(flat: Float32Array): void {
    if (this.#parameters?.length === flat.length) this.#parameters.set(flat)
    else this.#parameters = flat.slice()
    this.#current.loadParameters(flat)
  }

  gradient(batch: Batch, into: Float32Array, early?: EarlyRanges): Promise<BatchSums> {
    if (!early) return this.#withDevice((executor) => executor.gradient(batch, into))
    const given = new Set<number>()
    return this.#withDevice((executor) =>
      given.size === 0
        ? executor.gradient(batch, into, noting(early, given))
        : rest(executor, batch, { into, early, given }),
    )
  }

  evaluate(batch: Batch): Promise<BatchSums> {
    return this.#withDevice((executor) => executor.evaluate(batch))
  }

  predict(x: Batch['x'], samples: number): Promise<Float32Array> {
    return this.#withDevice((executor) => executor.predict(x, samples))
  }

  /** What stays on a device is not repeated here: the caller alone knows the steps that it was made by. */
  async resident(optimizer: OptimizerSpec): Promise<ResidentTraining | undefined> {
    const [used, opened] = await this.#withDevice(
      async (executor) => [executor, await executor.resident?.(optimizer)] as const,
    )
    const unlessLost = async <T>(task: (training: ResidentTraining) => Promise<T>): Promise<T> => {
      if (opened === undefined || used !== this.#current) throw new ResidentStateLost(undefined)
      return task(opened).catch(async (error: unknown) => {
        await this.#repair(used, error)
        throw new ResidentStateLost(error)
      })
    }
    return (
      opened && {
        set: (parameters) => unlessLost((training) => training.set(parameters)),
        step: (batch, step) => unlessLost((training) => training.step(batch, step)),
        read: (into) => unlessLost((training) => training.read(into)),
      }
    )
  }

  destroy(): void {
    this.#end.abort()
    this.#current.destroy()
  }

  async #withDevice<T>(task: (executor: Executor) => Promise<T>): Promise<T> {
    for (;;) {
      const used = this.#current
      try {
        return await task(used)
      } catch (error) {
        await this.#repair(used, error)
      }
    }
  }

  /** Resolves when another device is open. @throws what cannot be repaired */
  async #repair(used: Executor, error: unknown): Promise<void> {
    if (this.#end.signal.aborted || !this.#isRepairable(error)) throw error
    // Tasks that were under way together fail together, and wait for the same renewal.
    if (used === this.#current)
      this.#renewal ??= this.#renew(error).finally(() => {
        this.#renewal = undefined
      })
    await this.#renewal
  }

  #isRepairable(error: unknown): error is Error {
    if (error instanceof OutOfDeviceMemory) return this.#shortages < MOST_SHORTAGES
    return isLoss(error) && (this.#renewal !== undefined || this.#recentLosses() < MOST_RENEWALS)
  }

  #recentLosses(): number {
    const now = this.#clock.now()
    this.#losses = this.#losses.filter((at) => now - at < RENEWAL_WINDOW_MS)
    return this.#losses.length
  }

  async #renew(error: Error): Promise<void> {
    const { say, onLost } = this.#options
    if (isLoss(error)) {
      const pauseMs = FIRST_PAUSE_MS * 2 ** this.#recentLosses()
      this.#losses.push(this.#clock.now())
      onLost?.()
      say(`${error.message} Opening it again in ${pauseMs / 1000} s, with less work at once.`)
      this.#current.destroy()
      await this.#clock.sleep(pauseMs, this.#end.signal)
    } else {
      this.#shortages++
      say(`${error.message} Trying with less at once.`)
      this.#current.destroy()
    }
    if (this.#end.signal.aborted) throw error
    const renewed = await this.#open({ losses: this.#recentLosses(), shortages: this.#shortages })
    if (this.#end.signal.aborted) return renewed.destroy()
    this.#current = renewed
    if (this.#parameters) renewed.loadParameters(this.#parameters)
    say(`The device is back: ${renewed.adapter.name}.`)
  }
}

function isLoss(error: unknown): error is GridError {
  return isGridError(error) && error.code === 'device-lost'
}

function noting(early: EarlyRanges, given: Set<number>): EarlyRanges {
  return {
    ...early,
    onFinal: (index, encoded) => {
      given.add(index)
      return early.onFinal(index, encoded)
    },
  }
}

interface Started {
  readonly into: Float32Array
  readonly early: EarlyRanges
  readonly given: Set<number>
}

/** What was handed out may be with others already and stays, although another device may round otherwise. */
async function rest(executor: Executor, batch: Batch, { into, early, given }: Started): Promise<BatchSums> {
  const again = new Float32Array(into.length)
  const sums = await executor.gradient(batch, again)
  for (const [index, { start, end }] of early.ranges.entries())
    if (!given.has(index)) into.set(again.subarray(start, end), start)
  return sums
}
