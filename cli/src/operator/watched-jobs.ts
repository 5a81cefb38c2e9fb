// The TrainingJobs of a namespace as they are now: a list, and a watch that goes on from it. A watch that ends goes on
// where it was; one whose version the server forgot (410) begins with a list again.
import { type Clock, describeError } from '@starling-grid/protocol'
import { type Cluster, GONE, isRefusal } from './cluster.ts'
import type { TrainingJob } from './training-job.ts'

/** ms before a request that failed is repeated: doubled with each failure, and a part of it by chance */
const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 30_000

export interface WatchedJobsParts {
  readonly cluster: Cluster
  readonly clock: Pick<Clock, 'sleep'>
  readonly random: () => number
  /** what an author wants changed, or an object is new or gone */
  readonly onChange: () => void
  readonly onTrouble: (message: string) => void
}

export class WatchedJobs {
  readonly #parts: WatchedJobsParts
  #jobs = new Map<string, TrainingJob>()
  #version: string | undefined
  #failures = 0

  constructor(parts: WatchedJobsParts) {
    this.#parts = parts
  }

  /** Undefined: not listed yet. */
  list(): readonly TrainingJob[] | undefined {
    return this.#version === undefined ? undefined : [...this.#jobs.values()]
  }

  /** What a change of ours answered is newer than the watch. */
  take(job: TrainingJob): void {
    const known = this.#jobs.get(job.metadata.uid)
    if (known !== undefined) this.#jobs.set(job.metadata.uid, job)
  }

  forget(job: TrainingJob): void {
    this.#jobs.delete(job.metadata.uid)
  }

  /** Until the signal is raised. */
  async follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (this.#version === undefined) await this.#listAll()
        await this.#watch(signal)
        this.#failures = 0
      } catch (error) {
        if (signal.aborted) return
        if (isRefusal(error, GONE)) this.#version = undefined
        else this.#parts.onTrouble(describeError(error))
        await this.#parts.clock.sleep(this.#pauseMs(), signal)
      }
    }
  }

  async #listAll(): Promise<void> {
    const { items, resourceVersion } = await this.#parts.cluster.list()
    this.#jobs = new Map(items.map((job) => [job.metadata.uid, job]))
    this.#version = resourceVersion
    this.#parts.onChange()
  }

  async #watch(signal: AbortSignal): Promise<void> {
    for await (const event of this.#parts.cluster.watch(this.#version ?? '', signal)) {
      this.#failures = 0
      this.#version = event.type === 'bookmark' ? event.resourceVersion : event.job.metadata.resourceVersion
      if (event.type === 'bookmark') continue
      const { job } = event
      const known = this.#jobs.get(job.metadata.uid)
      if (event.type === 'deleted') this.#jobs.delete(job.metadata.uid)
      else this.#jobs.set(job.metadata.uid, job)
      // Our own changes of the status come back, and would wake us without end.
      if (event.type === 'deleted' || known === undefined || isOtherWish(known, job)) this.#parts.onChange()
    }
  }

  #pauseMs(): number {
    const most = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#failures++)
    return most * (0.5 + 0.5 * this.#parts.random())
  }
}

function isOtherWish({ metadata: a }: TrainingJob, { metadata: b }: TrainingJob): boolean {
  return a.generation !== b.generation || a.deletionTimestamp !== b.deletionTimestamp
}
