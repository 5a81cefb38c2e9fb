// All runs of this coordinator. One at a time is given to volunteers: the newest that is not finished.
import {
  describeError,
  type ErrorCode,
  GridError,
  isGridError,
  type JobId,
  type JobSpec,
  type Sha256,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { CoordinatorClock } from '../clock.ts'
import type { Catalog } from '../datasets/catalog.ts'
import type { KeptFiles } from '../host/kept-files.ts'
import { type RunObserver, RunHost, type RunParts } from '../host/run-host.ts'
import type { StateStore, StoredJob } from '../journal/state-store.ts'
import type { ShardProcesses } from '../parameter-server/shard-processes.ts'
import type { Timing } from '../run/timing.ts'
import { importJob, readJob } from './jobs.ts'

/** What the owner of all runs tells of them. */
export interface RunsEvents {
  readonly onTrouble: (text: string) => void
  /** another coordinator owns a run now, and so the folder */
  readonly onDeposed: (error: unknown) => void
  /** another run is the current one now, or none is */
  readonly onCurrent: (run: RunHost | undefined) => void
  /** the end of a run is durable */
  readonly onEnded: (run: RunHost) => void
}

export interface RunsParts extends RunsEvents {
  readonly clock: CoordinatorClock
  readonly store: StateStore
  readonly blobs: BlobStore
  /** of datasets that jobs name */
  readonly catalog: Catalog
  /** folder that jobs may read files of */
  readonly dataRoot: string
  readonly audience: RunObserver
  readonly files: KeptFiles
  readonly shardProcesses: ShardProcesses
  readonly timing: Timing
  /** as for RunHost */
  readonly follow?: NonNullable<RunParts['follow']>
}

/** Jobs being imported at once: each holds its whole dataset in memory. */
const MAX_IMPORTS = 1

/** A stored job whose description or journal cannot be read, or contradicts itself. */
export interface DamagedJob {
  readonly id: JobId
  readonly code: ErrorCode
  readonly message: string
}

export class Runs {
  readonly #parts: RunsParts
  /** oldest first */
  readonly #hosts: RunHost[] = []
  readonly #shards = new Map<Sha256, RunHost[]>()
  readonly #damaged: DamagedJob[] = []
  #importing = 0
  #started = false
  /** the run that volunteers are given now */
  #given: RunHost | undefined

  constructor(parts: RunsParts) {
    this.#parts = parts
  }

  /**
   * Takes every stored run over, also after SIGKILL; it goes on by itself. Another coordinator is deposed by it. A job
   * that cannot be opened is listed, and keeps no other from going on.
   * @throws GridError 'disk-failed'
   */
  async start(): Promise<void> {
    for (const job of await this.#parts.store.jobs()) await this.#open(job)
    this.#started = true
    for (const host of this.#hosts) host.start()
    this.#give(this.#newest())
    for (const { message } of this.#damaged) this.shown()?.history.note('run', message, this.#parts.clock.awake())
  }

  /** Durable when it resolves; volunteers hear of it. @throws GridError what is wrong with the job, or with the disk */
  async submit(spec: JobSpec): Promise<RunHost> {
    if (this.#importing >= MAX_IMPORTS)
      throw new GridError(
        'rate-exceeded',
        'expected one import at a time, got a second; submit again when the first is done',
      )
    this.#importing++
    try {
      const { blobs, catalog, dataRoot, clock } = this.#parts
      return await this.begin(await importJob(spec, { blobs, catalog, dataRoot, submittedAt: clock.awake() }))
    } finally {
      this.#importing--
    }
  }

  /** An imported job. Durable when it resolves; volunteers hear of it. @throws GridError 'disk-failed' */
  async begin(imported: StoredJob): Promise<RunHost> {
    await this.#parts.store.createJob(imported)
    const host = await this.#take(imported)
    host.start()
    this.#switchTo(host)
    return host
  }

  /** The run that volunteers are given: the newest that is not finished, once the one before has paused. */
  current(): RunHost | undefined {
    return this.#given?.finished === true ? undefined : this.#given
  }

  /** The run that people look at when they name none. */
  shown(): RunHost | undefined {
    return this.#newest() ?? this.#hosts.findLast((host) => !host.finished) ?? this.#hosts.at(-1)
  }

  #newest(): RunHost | undefined {
    return this.#started ? this.#hosts.findLast((host) => !host.finished && !host.paused) : undefined
  }

  /** The run ends its step, writes a checkpoint and stands still, also over restarts; its volunteers go to another. */
  pause(run: RunHost): void {
    run.feed({ type: 'pause' })
  }

  /** It gets volunteers at once where it is the newest, and otherwise when the newer ones are over. */
  resume(run: RunHost): void {
    run.feed({ type: 'resume' })
    if (run === this.#newest() && run !== this.current()) this.#switchTo(run)
  }

  /** The run that has the volunteers loses none of their work: it pauses first, and then they go. */
  #switchTo(next: RunHost): void {
    const current = this.current()
    if (current === undefined) this.#give(next)
    else current.park(`the job "${next.job.spec.name}" was submitted`)
  }

  #give(run: RunHost | undefined): void {
    this.#given = run
    this.#parts.onCurrent(run)
  }

  find(id: string): RunHost | undefined {
    return this.#hosts.find((host) => host.job.id === (id as JobId))
  }

  list(): readonly RunHost[] {
    return this.#hosts
  }

  /** Jobs that could not be opened. */
  damaged(): readonly DamagedJob[] {
    return this.#damaged
  }

  /** The runs whose dataset has this shard: versions are blobs, too, and have routes of their own. */
  jobsOfShard(name: Sha256): readonly RunHost[] {
    return this.#shards.get(name) ?? []
  }

  async stop(): Promise<void> {
    await Promise.all(this.#hosts.map((host) => host.stop()))
  }

  /** Volunteers hear of the end first, and then of the job that goes on. */
  #ended(run: RunHost): void {
    this.#parts.onEnded(run)
    if (run === this.#given) this.#give(this.#newest())
  }

  /** A paused run keeps its volunteers while no other has work for them. */
  #parked(run: RunHost): void {
    const next = this.#newest()
    if (run === this.#given && next !== undefined) this.#give(next)
  }

  async #open(stored: StoredJob): Promise<void> {
    try {
      await this.#take(stored)
    } catch (error) {
      if (isGridError(error) && error.code === 'disk-failed') throw error
      const message = `job ${stored.id} cannot be opened and is left as it is: ${describeError(error)}`
      this.#damaged.push({ id: stored.id, code: 'journal-damaged', message })
      this.#parts.onTrouble(message)
    }
  }

  async #take(stored: StoredJob): Promise<RunHost> {
    const { timing, ...parts } = this.#parts
    const job = readJob(stored, timing)
    const host = await RunHost.open({
      ...parts,
      job,
      onEnded: (run) => this.#ended(run),
      onParked: (run) => this.#parked(run),
    })
    for (const { sha256 } of [...job.manifest.train, ...job.manifest.validation])
      this.#shards.set(sha256, [...(this.#shards.get(sha256) ?? []), host])
    this.#hosts.push(host)
    return host
  }
}
