// An executor that survives the loss of its device once: it is opened anew, gets the last parameters, and repeats what
// failed. A second loss is passed on, and the volunteer leaves with its name. Independent of devices.

import { isGridError } from '@starling-grid/protocol'
import type { AdapterDescription, Batch, BatchSums, EarlyRanges, Executor } from './executor.ts'

export type OpenExecutor = () => Promise<Executor>

/**
 * `open`: a new device and an executor on it. `say`: told of the loss and of what comes after it. `onLost`: counts it.
 */
export async function renewedExecutor(
  open: OpenExecutor,
  say: (text: string) => void,
  onLost: () => void = () => undefined,
): Promise<Executor> {
  return new RenewedExecutor(await open(), open, { say, onLost })
}

class RenewedExecutor implements Executor {
  readonly #open: OpenExecutor
  readonly #say: (text: string) => void
  readonly #onLost: () => void
  readonly #first: Executor
  #current: Executor
  #renewal: Promise<void> | undefined
  #parameters: Float32Array | undefined
  #destroyed = false

  constructor(
    first: Executor,
    open: OpenExecutor,
    { say, onLost }: { readonly say: (text: string) => void; readonly onLost: () => void },
  ) {
    this.#first = first
    this.#current = first
    this.#open = open
    this.#say = say
    this.#onLost = onLost
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

  destroy(): void {
    this.#destroyed = true
    this.#current.destroy()
  }

  async #withDevice<T>(task: (executor: Executor) => Promise<T>): Promise<T> {
    const used = this.#current
    try {
      return await task(used)
    } catch (error) {
      if (!isGridError(error) || error.code !== 'device-lost' || this.#destroyed || used !== this.#first) throw error
      // Tasks that were under way together fail together, and wait for the same renewal.
      this.#renewal ??= this.#renew(error.message)
      await this.#renewal
      return task(this.#current)
    }
  }

  async #renew(reason: string): Promise<void> {
    this.#onLost()
    this.#say(`${reason} Opening it again, once.`)
    this.#first.destroy()
    const renewed = await this.#open()
    if (this.#destroyed) return renewed.destroy()
    this.#current = renewed
    if (this.#parameters) renewed.loadParameters(this.#parameters)
    this.#say(`The device is back: ${renewed.adapter.name}.`)
  }
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
