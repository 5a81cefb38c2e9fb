// The executor, used by one task at a time: loads the parameters that a task names, measures speed. And who may write a
// gradient's memory, and until when (R3). Each assignment (of a step, a round, a grant) leases memory of its own. The
// lease ends with the assignment; memory that a computation still uses then is not leased again before the computation
// ended. So a computation that outlives a ballot can neither write into nor be added to what a later generation reads.
import { type Clock, SerialQueue, type VersionRef } from '@starling-grid/protocol'
import type { OptimizerSpec } from '@starling-grid/shaders'
import { allFinite } from './floats.ts'
import type { Batch, BatchSums, EarlyRanges, Executor, ResidentStep, ResidentTraining } from './graph/executor.ts'
import type { LocalVersion } from './recovery/local-version.ts'

/** weight of the newest measurement in the moving average of speed */
const NEWEST_WEIGHT = 0.2
const NOTHING: BatchSums = { lossSum: 0, targets: 0, correct: 0 }

export interface NamedParameters {
  readonly version: VersionRef
  readonly parameters: Float32Array
  /** only what one batch needs is there: never to be taken for the version itself */
  readonly partial?: boolean
}

/** Of one batch, whose Σ gradients are in the memory of the lease that it was computed with. */
export interface Computed {
  readonly sums: BatchSums
  readonly finite: boolean
}

export class Compute {
  readonly executor: Executor
  readonly buffers: GradientBuffers
  readonly #held: LocalVersion
  readonly #clock: Clock
  #loaded: string | undefined
  readonly #queue = new SerialQueue()
  /** compute only, a moving average */
  samplesPerSecond = 0
  samplesComputed = 0

  constructor(executor: Executor, held: LocalVersion, clock: Clock) {
    this.#clock = clock
    this.executor = executor
    this.#held = held
    this.buffers = new GradientBuffers(held.layout.total)
  }

  /**
   * Gradient with the held parameters. `early`: gets its pieces as they become final, also after the lease ended.
   * Undefined: the lease ended before (R3).
   */
  heldGradient(lease: GradientLease, batch: Batch, early?: EarlyRanges): Promise<Computed | undefined> {
    const load = (): void => {
      const { version, parameters } = this.#held
      if (version === undefined) throw new Error('internal: computing without a version')
      this.#load({ version, parameters })
    }
    return this.#gradient(lease, batch, load, early)
  }

  /** Gradient with parameters that were pulled (async mode). Undefined: the lease ended before. */
  pulledGradient(lease: GradientLease, from: NamedParameters, batch: Batch): Promise<Computed | undefined> {
    return this.#gradient(lease, batch, () => this.#load(from))
  }

  /**
   * Gradient with parameters that no version names (inner steps of a local round). Undefined: the lease ended before.
   */
  localGradient(lease: GradientLease, parameters: Float32Array, batch: Batch): Promise<Computed | undefined> {
    return this.#gradient(lease, batch, () => {
      this.#loaded = undefined
      this.executor.loadParameters(parameters)
    })
  }

  /** Undefined: the executor keeps no state of inner steps. */
  async resident(optimizer: OptimizerSpec): Promise<ResidentTraining | undefined> {
    return this.executor.resident?.(optimizer)
  }

  /** An inner step whose state stays with the executor, and how long it took. */
  residentStep(
    training: ResidentTraining,
    batch: Batch,
    step: ResidentStep,
  ): Promise<Computed & { readonly ms: number }> {
    return this.#queue.run(async () => {
      this.#loaded = undefined
      const start = this.#clock.now()
      const { finite, ...sums } = await training.step(batch, step)
      const ms = this.#clock.now() - start
      this.#measured(batch.samples, ms)
      return { sums, finite, ms }
    })
  }

  evaluate(from: NamedParameters, batch: Batch): Promise<BatchSums> {
    return this.#queue.run(async () => {
      this.#load(from)
      return this.executor.evaluate(batch)
    })
  }

  /** Two rounds with arbitrary parameters: the first compiles, the second is timed. */
  async measure(batch: Batch): Promise<number> {
    const lease = this.buffers.lease()
    this.executor.loadParameters(lease.values)
    await lease.use((into) => this.executor.gradient(batch, into))
    const start = this.#clock.now()
    await lease.use((into) => this.executor.gradient(batch, into))
    this.samplesPerSecond = (1000 * batch.samples) / Math.max(this.#clock.now() - start, 0.1)
    lease.end()
    return this.samplesPerSecond
  }

  /** `load`: brings the parameters to the executor, when it is this task's turn. */
  #gradient(lease: GradientLease, batch: Batch, load: () => void, early?: EarlyRanges): Promise<Computed | undefined> {
    const compute = async (into: Float32Array): Promise<Computed> => {
      if (batch.samples === 0) {
        into.fill(0)
        return { sums: NOTHING, finite: true }
      }
      load()
      const start = this.#clock.now()
      const sums = await this.executor.gradient(batch, into, early)
      this.#measured(batch.samples, this.#clock.now() - start)
      return { sums, finite: Number.isFinite(sums.lossSum) && allFinite(into) }
    }
    return this.#queue.run(() => lease.use(compute))
  }

  #load({ version, parameters, partial = false }: NamedParameters): void {
    if (this.#loaded === version.id) return
    this.executor.loadParameters(parameters)
    this.#loaded = partial ? undefined : version.id
  }

  #measured(samples: number, ms: number): void {
    const now = (1000 * samples) / Math.max(ms, 0.1)
    this.samplesPerSecond =
      this.samplesPerSecond === 0 ? now : (1 - NEWEST_WEIGHT) * this.samplesPerSecond + NEWEST_WEIGHT * now
    this.samplesComputed += samples
  }
}

/** Free arrays that are kept: those of one share, which has two when it is computed in pieces. */
const MOST_FREE = 2

export class GradientLease {
  /** (parameterCount,) the lease's own until it ends; what it holds at first is undefined */
  readonly values: Float32Array
  readonly #giveBack: (values: Float32Array) => void
  #uses = 0
  #isOver = false

  constructor(values: Float32Array, giveBack: (values: Float32Array) => void) {
    this.values = values
    this.#giveBack = giveBack
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /**
   * Runs what reads or writes `values` for a while. Undefined: the lease ended before `task` began, or before it was
   * done. Memory of a task that failed is given up: a part of it may still run.
   * @throws what `task` throws
   */
  async use<T>(task: (values: Float32Array) => Promise<T>): Promise<T | undefined> {
    if (this.#isOver) return undefined
    this.#uses++
    const result = await task(this.values)
    this.#uses--
    if (!this.#isOver) return result
    this.#release()
    return undefined
  }

  /** The assignment is over: its computations are dropped, those that wait do not begin. */
  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#release()
  }

  #release(): void {
    if (this.#uses === 0) this.#giveBack(this.values)
  }
}

export class GradientBuffers {
  /** floats of a gradient */
  readonly length: number
  readonly #free: Float32Array[] = []

  constructor(length: number) {
    this.length = length
  }

  lease(): GradientLease {
    return new GradientLease(this.#free.pop() ?? new Float32Array(this.length), this.#takeBack)
  }

  #takeBack = (values: Float32Array): void => {
    if (this.#free.length < MOST_FREE) this.#free.push(values)
  }
}
