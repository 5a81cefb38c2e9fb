// The executor, used by one task at a time: loads the parameters that a task names, measures speed.
import { type Clock, SerialQueue, type VersionRef } from '@starling-grid/protocol'
import { allFinite } from './floats.ts'
import { GradientBuffers, type GradientLease } from './gradient-buffers.ts'
import type { Batch, BatchSums, EarlyRanges, Executor } from './graph/executor.ts'
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

interface ComputeResult {
  readonly into: Float32Array
  readonly early?: EarlyRanges | undefined
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
   * Gradient with the held parameters. `early`: gets its pieces as they become final. Undefined: the lease ended before
   * (R3).
   */
  heldGradient(lease: GradientLease, batch: Batch, early?: EarlyRanges): Promise<Computed | undefined> {
    return this.#queue.run(() =>
      lease.use((into) => {
        const { version, parameters } = this.#held
        if (version === undefined) throw new Error('internal: computing without a version')
        return this.#gradient({ version, parameters }, batch, { into, early: early && whileOpen(lease, early) })
      }),
    )
  }

  /** Gradient with parameters that were pulled (async mode). Undefined: the lease ended before. */
  pulledGradient(lease: GradientLease, from: NamedParameters, batch: Batch): Promise<Computed | undefined> {
    return this.#queue.run(() => lease.use((into) => this.#gradient(from, batch, { into })))
  }

  /**
   * Gradient with parameters that no version names (inner steps of a local round). Undefined: the lease ended before.
   */
  localGradient(lease: GradientLease, parameters: Float32Array, batch: Batch): Promise<Computed | undefined> {
    return this.#queue.run(() =>
      lease.use((into) => {
        this.#loaded = undefined
        this.executor.loadParameters(parameters)
        return this.#run(batch, { into })
      }),
    )
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

  async #gradient(from: NamedParameters, batch: Batch, result: ComputeResult): Promise<Computed> {
    if (batch.samples === 0) {
      result.into.fill(0)
      return { sums: NOTHING, finite: true }
    }
    this.#load(from)
    return this.#run(batch, result)
  }

  async #run(batch: Batch, { into, early }: ComputeResult): Promise<Computed> {
    const start = this.#clock.now()
    const sums = await this.executor.gradient(batch, into, early)
    this.#measured(batch.samples, this.#clock.now() - start)
    return { sums, finite: Number.isFinite(sums.lossSum) && allFinite(into) }
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

/** Pieces of a gradient whose lease ended are no news. */
function whileOpen(lease: GradientLease, early: EarlyRanges): EarlyRanges {
  return { ...early, onFinal: (index, encoded) => (lease.isOver ? undefined : early.onFinal(index, encoded)) }
}
