// The executor, used by one task at a time: loads the parameters that a task names, measures speed.
import type { VersionRef } from '@starling-grid/protocol'
import { allFinite } from './floats.ts'
import type { Batch, BatchSums, EarlyRanges, Executor } from './graph/executor.ts'
import type { HeldVersion } from './recovery/held-version.ts'

/** weight of the newest measurement in the moving average of speed */
const NEWEST_WEIGHT = 0.2
const NOTHING: BatchSums = { lossSum: 0, targets: 0, correct: 0 }

export interface NamedParameters {
  readonly version: VersionRef
  readonly parameters: Float32Array
  /** only what one batch needs is there: never to be taken for the version itself */
  readonly partial?: boolean
}

export class Compute {
  readonly executor: Executor
  readonly #held: HeldVersion
  /** Σ gradients of the own share; kept unchanged while its reduce runs, since recovery may need it */
  readonly gradient: Float32Array
  #loaded: string | undefined
  #queue: Promise<unknown> = Promise.resolve()
  /** compute only, a moving average */
  samplesPerSecond = 0
  samplesComputed = 0

  constructor(executor: Executor, held: HeldVersion) {
    this.executor = executor
    this.#held = held
    this.gradient = new Float32Array(held.layout.total)
  }

  /** Gradient of a share with the held parameters, into `gradient`. `early`: hears of its pieces as they become final. */
  heldGradient(batch: Batch, early?: EarlyRanges): Promise<{ readonly sums: BatchSums; readonly finite: boolean }> {
    return this.#alone(async () => {
      const { version, parameters } = this.#held
      if (version === undefined) throw new Error('internal: computing without a version')
      return this.#gradient({ version, parameters }, batch, early)
    })
  }

  /** Gradient with parameters that were pulled (async mode), into `gradient`. */
  pulledGradient(from: NamedParameters, batch: Batch): Promise<{ readonly sums: BatchSums; readonly finite: boolean }> {
    return this.#alone(() => this.#gradient(from, batch))
  }

  /** Gradient with parameters that no version names (inner steps of a local round), into `gradient`. */
  localGradient(parameters: Float32Array, batch: Batch): Promise<{ readonly sums: BatchSums; readonly finite: boolean }> {
    return this.#alone(() => {
      this.#loaded = undefined
      this.executor.loadParameters(parameters)
      return this.#run(batch)
    })
  }

  evaluate(from: NamedParameters, batch: Batch): Promise<BatchSums> {
    return this.#alone(async () => {
      this.#load(from)
      return this.executor.evaluate(batch)
    })
  }

  /** Two rounds with arbitrary parameters: the first compiles, the second is timed. */
  async measure(batch: Batch): Promise<number> {
    this.executor.loadParameters(this.gradient)
    await this.executor.gradient(batch, this.gradient)
    const start = performance.now()
    await this.executor.gradient(batch, this.gradient)
    this.samplesPerSecond = (1000 * batch.samples) / Math.max(performance.now() - start, 0.1)
    this.gradient.fill(0)
    return this.samplesPerSecond
  }

  async #gradient(from: NamedParameters, batch: Batch, early?: EarlyRanges): Promise<{ readonly sums: BatchSums; readonly finite: boolean }> {
    if (batch.samples === 0) {
      this.gradient.fill(0)
      return { sums: NOTHING, finite: true }
    }
    this.#load(from)
    return this.#run(batch, early)
  }

  async #run(batch: Batch, early?: EarlyRanges): Promise<{ readonly sums: BatchSums; readonly finite: boolean }> {
    const start = performance.now()
    const sums = await this.executor.gradient(batch, this.gradient, early)
    this.#measured(batch.samples, performance.now() - start)
    return { sums, finite: Number.isFinite(sums.lossSum) && allFinite(this.gradient) }
  }

  #load({ version, parameters, partial = false }: NamedParameters): void {
    if (this.#loaded === version.id) return
    this.executor.loadParameters(parameters)
    this.#loaded = partial ? undefined : version.id
  }

  #measured(samples: number, ms: number): void {
    const now = (1000 * samples) / Math.max(ms, 0.1)
    this.samplesPerSecond = this.samplesPerSecond === 0 ? now : (1 - NEWEST_WEIGHT) * this.samplesPerSecond + NEWEST_WEIGHT * now
    this.samplesComputed += samples
  }

  #alone<T>(task: () => Promise<T>): Promise<T> {
    const done = this.#queue.then(task)
    this.#queue = done.catch(() => undefined)
    return done
  }
}
