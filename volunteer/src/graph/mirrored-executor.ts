// Several devices of one machine as one executor: each computes a slice of the batch with parameters that all share,
// and their gradients are added here, in memory that the devices write to themselves. To the ring it is one member
// (TensorFlow's MirroredStrategy). A device that is gone leaves its samples to the others. Independent of devices.
import type { ModelSpec } from '@starling-grid/model'
import { type Clock, isGridError, pooled, SerialQueue, systemClock, type Tally } from '@starling-grid/protocol'
import { concatenated } from '@starling-grid/protocol/floats'
import { mixesSamples } from './batches.ts'
import type { AdapterDescription, Batch, BatchSums, EarlyRanges, Executor } from './executor.ts'
import { JoinedRanges } from './joined-ranges.ts'
import { cutByShares, decideShares, type MachineShares, type SampleSlice } from './machine-shares.ts'
import { mirroredAdapter } from './mirrored-adapter.ts'

export interface MirroredOptions {
  readonly spec: ModelSpec
  /** told of devices that are left out, and of what each gets */
  readonly say: (text: string) => void
  readonly clock?: Clock
}

export interface JoinableExecutor extends Executor {
  /** One more, that computes from the next batch on. It is released with the others. */
  join(executor: Executor): void
}

/** Weight of the newest measurement in a device's speed: as a volunteer's own. */
const NEWEST_WEIGHT = 0.2
/** Clocks of browsers and of simulations may stand still for as long. */
const LEAST_MS = 0.1

/** Floats that threads of this process share. */
function sharedFloats(length: number): Float32Array {
  return new Float32Array(new SharedArrayBuffer(Float32Array.BYTES_PER_ELEMENT * length))
}

interface MachineDevice {
  readonly executor: Executor
  /** (parameterCount,) of its slice; absent: it computed none yet */
  gradient: Float32Array | undefined
  /** samples/s, a moving average; absent: not measured yet */
  speed: number | undefined
  /** its first gradient compiled, and says nothing of its speed */
  isWarm: boolean
}

/** A device and what it computes of a batch. */
interface DevicePart {
  readonly device: MachineDevice
  readonly batch: Batch
}

/** `slot`: which slice of the batch it is; undefined: a piece of one whose device is gone */
type SliceTask<T> = (part: DevicePart, slot: number | undefined) => Promise<T>

/** The device is gone, or has no room for its slice. All else is the fault of the batch or of this program. */
const DEVICE_FAULTS: ReadonlySet<string> = new Set(['device-lost', 'adapter-limit'])

/**
 * `executors`: of one model, each on a device of its own. What `loadParameters` gives them is shared memory: it changes
 * when nothing computes, and each has taken it over before it computes again.
 */
export function mirroredExecutor(executors: readonly Executor[], options: MirroredOptions): JoinableExecutor {
  if (executors.length === 0) throw new Error('internal: expected devices to compute on, got none')
  return new MirroredExecutor(executors, options)
}

class MirroredExecutor implements JoinableExecutor {
  readonly #options: MirroredOptions
  /** a batch is cut between blocks alone */
  readonly #keepsBlocks: boolean
  readonly #clock: Clock
  #devices: readonly MachineDevice[]
  #shares: MachineShares
  #parameters: Float32Array | undefined
  /** two batches at once would mix their gradients */
  readonly #queue = new SerialQueue()
  /** tasks that wait or run */
  #waiting = 0
  #isReleased = false

  constructor(executors: readonly Executor[], options: MirroredOptions) {
    this.#options = options
    this.#keepsBlocks = mixesSamples(options.spec)
    this.#clock = options.clock ?? systemClock
    this.#devices = executors.map(newDevice)
    this.#shares = decideShares(
      undefined,
      executors.map(() => undefined),
    )
  }

  get adapter(): AdapterDescription {
    return mirroredAdapter(
      this.#devices.map(({ executor }) => executor.adapter),
      this.#shares.weights,
    )
  }

  get blocksAtOnce(): number {
    if (!this.#keepsBlocks) return 1
    return this.#devices.reduce((sum, { executor }) => sum + (executor.blocksAtOnce ?? 1), 0)
  }

  join(executor: Executor): void {
    void this.#inTurn(async () => {
      if (this.#isReleased) return executor.destroy()
      if (this.#parameters !== undefined) executor.loadParameters(this.#parameters)
      this.#devices = [...this.#devices, newDevice(executor)]
      this.#shares = decideShares(undefined, this.#speeds())
      this.#options.say(`${executor.adapter.name} computes from now on: ${this.adapter.name}`)
    })
  }

  loadParameters(flat: Float32Array): void {
    if (this.#waiting === 0) return this.#load(flat)
    const kept = flat.slice()
    void this.#inTurn(async () => this.#load(kept))
  }

  gradient(batch: Batch, into: Float32Array, early?: EarlyRanges): Promise<BatchSums> {
    return this.#inTurn(async () => {
      const parts = this.#partsOf(batch, this.#keepsBlocks)
      const memories = parts.map(({ device }) => memoryOf(device, into.length))
      const joined = new JoinedRanges(into, memories, early)
      const found = await this.#onAll(parts, async ({ device, batch: slice }, slot) => {
        if (slot !== undefined) return this.#timedGradient({ device, batch: slice }, joined.earlyOf(slot))
        const values = sharedFloats(into.length)
        return { values, sums: await device.executor.gradient(slice, values) }
      })
      joined.finish(found.map(({ values }) => values))
      this.#share()
      return added(found.map(({ sums }) => sums))
    })
  }

  evaluate(batch: Batch): Promise<BatchSums> {
    return this.#inTurn(async () => {
      const parts = this.#partsOf(batch, false)
      return added(await this.#onAll(parts, ({ device, batch: slice }) => device.executor.evaluate(slice)))
    })
  }

  predict(x: Batch['x'], samples: number): Promise<Float32Array> {
    return this.#inTurn(async () => {
      const parts = this.#partsOf({ samples, x, y: new Float32Array(0) }, false)
      return concatenated(
        await this.#onAll(parts, ({ device, batch: slice }) => device.executor.predict(slice.x, slice.samples)),
      )
    })
  }

  destroy(): void {
    this.#isReleased = true
    for (const { executor } of this.#devices) executor.destroy()
  }

  #inTurn<T>(task: () => Promise<T>): Promise<T> {
    this.#waiting++
    return this.#queue.run(task).finally(() => {
      this.#waiting--
    })
  }

  #load(flat: Float32Array): void {
    if (this.#parameters?.length !== flat.length) this.#parameters = sharedFloats(flat.length)
    this.#parameters.set(flat)
    for (const { executor } of this.#devices) executor.loadParameters(this.#parameters)
  }

  /** The slices that have samples; of an empty batch the first. */
  #partsOf(batch: Batch, keepsBlocks: boolean): DevicePart[] {
    const units = keepsBlocks ? (batch.groups ?? [batch.samples]) : Array.from({ length: batch.samples }, () => 1)
    const slices = cutByShares(units, this.#shares.weights)
    const parts = this.#devices.flatMap((device, i) => {
      const slice = slices[i]
      return slice === undefined || slice.count === 0 ? [] : [{ device, batch: sliceOf(batch, slice) }]
    })
    const [first] = this.#devices
    return parts.length > 0 || first === undefined ? parts : [{ device: first, batch }]
  }

  /**
   * In the order of the samples. A slice whose device is gone is computed by the others. It ends when all have ended:
   * their memory is used again then.
   */
  async #onAll<T>(parts: readonly DevicePart[], task: SliceTask<T>, isFirst = true): Promise<T[]> {
    const outcomes = await Promise.allSettled(
      parts.map(async (part, slot) => {
        try {
          return [await task(part, isFirst ? slot : undefined)]
        } catch (error) {
          this.#leaveOut(part.device, error)
          return this.#onAll(this.#partsOf(part.batch, this.#keepsBlocks), task, false)
        }
      }),
    )
    return outcomes.flatMap((outcome) => {
      if (outcome.status === 'rejected') throw outcome.reason
      return outcome.value
    })
  }

  /** @throws `error` when it is not the device's fault, or no other device is left */
  #leaveOut(device: MachineDevice, error: unknown): void {
    if (!isGridError(error) || !DEVICE_FAULTS.has(error.code)) throw error
    const others = this.#devices.filter((other) => other !== device)
    if (others.length === 0) throw error
    if (others.length === this.#devices.length) return // it failed twice
    this.#devices = others
    device.executor.destroy()
    this.#shares = decideShares(undefined, this.#speeds())
    const { name } = device.executor.adapter
    this.#options.say(`${name} is left out from now on: ${error.message} What is left: ${this.adapter.name}.`)
  }

  async #timedGradient(
    { device, batch }: DevicePart,
    early: EarlyRanges | undefined,
  ): Promise<{ readonly values: Float32Array; readonly sums: BatchSums }> {
    const values = device.gradient
    if (values === undefined) throw new Error('internal: a device without memory for its gradient')
    const start = this.#clock.now()
    const sums = await device.executor.gradient(batch, values, early)
    const speed = (1000 * batch.samples) / Math.max(this.#clock.now() - start, LEAST_MS)
    if (device.isWarm)
      device.speed = device.speed === undefined ? speed : (1 - NEWEST_WEIGHT) * device.speed + NEWEST_WEIGHT * speed
    device.isWarm = true
    return { values, sums }
  }

  #speeds(): (number | undefined)[] {
    return this.#devices.map(({ speed }) => speed)
  }

  #share(): void {
    const shares = decideShares(this.#shares, this.#speeds())
    if (shares === this.#shares) return
    this.#shares = shares
    this.#options.say(`${this.adapter.name}; ${shares.reason}`)
  }
}

function newDevice(executor: Executor): MachineDevice {
  return { executor, gradient: undefined, speed: undefined, isWarm: false }
}

function memoryOf(device: MachineDevice, length: number): Float32Array {
  if (device.gradient?.length !== length) device.gradient = sharedFloats(length)
  return device.gradient
}

/** Samples keep their keys: what dropout draws for them does not depend on the device. */
function sliceOf({ samples, x, y, keys, groups }: Batch, { start, count }: SampleSlice): Batch {
  const of = <T extends Batch['x']>(values: T): T =>
    values.subarray((values.length / samples) * start, (values.length / samples) * (start + count)) as T
  return {
    samples: count,
    x: of(x),
    y: of(y),
    keys: keys === undefined ? Int32Array.from({ length: count }, (_, i) => start + i) : of(keys),
    ...(groups === undefined ? {} : { groups: groupsIn(groups, { start, count }) }),
  }
}

/** What lies in the slice of each group. */
function groupsIn(groups: readonly number[], { start, count }: SampleSlice): number[] {
  let end = 0
  return groups.flatMap((samples) => {
    end += samples
    const inside = Math.min(end, start + count) - Math.max(end - samples, start)
    return inside > 0 ? [inside] : []
  })
}

function added(all: readonly BatchSums[]): BatchSums {
  return all.reduce((sum, { lossSum, targets, correct, tally }) => ({
    lossSum: sum.lossSum + lossSum,
    targets: sum.targets + targets,
    correct: sum.correct + correct,
    ...talliesOf(sum.tally, tally),
  }))
}

function talliesOf(a: Tally | undefined, b: Tally | undefined): { readonly tally?: Tally } {
  const both = a === undefined || b === undefined ? undefined : pooled(a, b)
  return both === undefined ? {} : { tally: both }
}
