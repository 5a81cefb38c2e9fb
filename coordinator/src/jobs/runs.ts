// All runs of this coordinator. Those that are neither finished nor paused share the volunteers (sharing.ts).
import type { ModelSpec } from '@starling-grid/model'
import {
  type CancelTimer,
  describeError,
  type ErrorCode,
  GridError,
  isGridError,
  type JobId,
  type JobSpec,
  type MemberId,
  type Sha256,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { CoordinatorClock } from '../clock.ts'
import type { Catalog } from '../datasets/catalog.ts'
import type { KeptFiles } from '../host/kept-files.ts'
import { type RunObserver, RunHost, type RunParts } from '../host/run-host.ts'
import { type CoordinatorId, requireTurn } from '../journal/owner-book.ts'
import type { StateStore, StoredJob } from '../journal/state-store.ts'
import type { ShardProcesses } from '../parameter-server/shard-processes.ts'
import type { Timing } from '../run/timing.ts'
import { AppendedData, LOOK_FOR_DATA_MS } from './appended-data.ts'
import { modelOf } from './base.ts'
import { blobsOfOthers, finishDeletion } from './deletion.ts'
import { importJob, readJob } from './jobs.ts'
import { type Elsewhere, type Destination, type VolunteerSeats, Sharing } from './sharing.ts'
import type { KeptVersions } from './start.ts'
import { requireStateMemory } from './state-memory.ts'

/** What the owner of all runs tells of them. */
export interface RunsEvents {
  readonly onTrouble: (text: string, job?: JobId) => void
  /** another coordinator owns a run now, and so the folder */
  readonly onDeposed: (error: unknown) => void
  /** the end of a run is durable */
  readonly onEnded: (run: RunHost) => void
}

export interface RunsParts extends RunsEvents, RunListeners {
  readonly clock: CoordinatorClock
  readonly store: StateStore
  readonly blobs: BlobStore
  /** of datasets that jobs name */
  readonly catalog: Catalog
  /** folder that jobs may read files of */
  readonly dataRoot: string
  readonly audience: RunObserver & VolunteerSeats
  readonly files: KeptFiles
  readonly shardProcesses: ShardProcesses
  readonly timing: Timing
  /** where several coordinators share the store */
  readonly shared?: SharedParts
}

/** As for RunHost. */
interface RunListeners {
  readonly meter?: NonNullable<RunParts['meter']>
  readonly onEvent?: NonNullable<RunParts['onEvent']>
  readonly follow?: NonNullable<RunParts['follow']>
}

export interface SharedParts {
  /** of new jobs */
  readonly self: CoordinatorId
  readonly elsewhere: () => Elsewhere
  readonly coordinators: NonNullable<RunParts['coordinators']>
  /** A job without volunteers may go where there is more room. True: it went. */
  makeRoom(job: JobId): Promise<boolean>
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
  /** A store lists a new job before its run is open; a second owner of the same process would depose the first. */
  readonly #opening = new Set<JobId>()
  readonly #shards = new Map<Sha256, RunHost[]>()
  readonly #damaged: DamagedJob[] = []
  #importing = 0
  readonly #appended: AppendedData
  #stopLooking: CancelTimer = () => undefined
  readonly #sharing: Sharing
  /** this process ends: who waits for a run to pause */
  #draining: Map<RunHost, () => void> | undefined

  constructor(parts: RunsParts) {
    this.#parts = parts
    this.#appended = new AppendedData(parts.catalog, parts.blobs)
    this.#sharing = new Sharing({
      clock: parts.clock,
      seats: parts.audience,
      runs: () => this.#hosts,
      ...(parts.shared === undefined ? {} : { elsewhere: parts.shared.elsewhere }),
    })
  }

  /**
   * Takes every stored run over, also after SIGKILL; it goes on by itself. Another coordinator is deposed by it. A job
   * that cannot be opened is listed, and keeps no other from going on. Where several coordinators share the store,
   * `takeOwn` opens those that are this one's.
   * @throws GridError 'disk-failed'
   */
  async start(takeOwn?: () => Promise<void>): Promise<void> {
    if (takeOwn === undefined) for (const job of await this.#parts.store.jobs()) await this.#open(job)
    for (const job of await this.#parts.store.deleted()) await this.#finish(job)
    if (takeOwn === undefined) for (const host of this.#hosts) host.start()
    else await takeOwn()
    this.#sharing.start()
    this.#stopLooking = this.#parts.clock.every(LOOK_FOR_DATA_MS, () => void this.#lookForData().catch(this.#noData))
    for (const { message } of this.#damaged) this.shown()?.history.note('run', message, this.#parts.clock.awake())
  }

  /**
   * `ownedBy`: id of the token that submits it; absent: the first token. `mayUse`: of which jobs it may take a version
   * (`from`). Durable when it resolves; volunteers hear of it.
   * @throws GridError what is wrong with the job, or with the disk
   */
  async submit(
    spec: JobSpec,
    ownedBy?: string,
    mayUse: (run: RunHost) => boolean = ({ job }) => job.ownedBy === ownedBy,
  ): Promise<RunHost> {
    return this.#alone(async () => {
      const { blobs, catalog, dataRoot, clock } = this.#parts
      const versionsOf = (id: string): KeptVersions | undefined =>
        this.#hosts.find((run) => run.job.id === id && mayUse(run))?.versions
      const parts = { blobs, catalog, dataRoot, versionsOf, submittedAt: clock.awake(), ownedBy }
      return this.begin(await importJob(spec, parts))
    })
  }

  /** The model that a job would train. @throws GridError 'model-invalid', MistakesError 'job-invalid' */
  async modelOf(spec: JobSpec): Promise<ModelSpec> {
    const model = await modelOf(spec, this.#parts.catalog)
    requireStateMemory(spec, model)
    return model
  }

  /** An imported job. Durable when it resolves; volunteers hear of it. @throws GridError 'disk-failed' */
  async begin(imported: StoredJob): Promise<RunHost> {
    const { store, shared } = this.#parts
    const host = await this.#once(imported.id, async () => {
      await store.createJob(imported, shared?.self)
      return this.#take(imported)
    })
    host.start()
    if ((await shared?.makeRoom(imported.id)) !== true) this.#sharing.look()
    return host
  }

  // ---- where several coordinators share the store (owners/owners.ts) ----

  /** It is open here, or was found damaged. */
  has(job: JobId): boolean {
    return this.find(job) !== undefined || this.#damaged.some(({ id }) => id === job)
  }

  /** Takes a job over that is this coordinator's now, unless it does so already. @throws GridError 'disk-failed' */
  async open(id: JobId): Promise<void> {
    const stored = (await this.#parts.store.jobs()).find((job) => job.id === id)
    if (stored === undefined || this.has(id) || this.#opening.has(id)) return
    await this.#once(id, () => this.#open(stored))
    this.#hosts.sort((a, b) => a.job.submittedAt - b.job.submittedAt)
    this.find(id)?.start()
    this.#sharing.look()
  }

  /** Meanwhile open() leaves this job alone. */
  async #once<T>(id: JobId, open: () => Promise<T>): Promise<T> {
    this.#opening.add(id)
    try {
      return await open()
    } finally {
      this.#opening.delete(id)
    }
  }

  /** What was decided is durable, or another coordinator has it, and nothing more is. */
  async close(job: JobId): Promise<void> {
    await this.find(job)?.stop()
  }

  /** Another coordinator has this job: its volunteers go there. */
  async drop(job: JobId): Promise<void> {
    const run = this.find(job)
    this.#forget(job)
    if (run === undefined) return
    await run.stop()
    this.#parts.audience.runMoved(run)
  }

  /** No volunteer works for it, or is about to. */
  isIdle(job: JobId): boolean {
    const run = this.find(job)
    return run !== undefined && run.state.members.size === 0 && !this.#sharing.isLentTo(job)
  }

  /** What other coordinators are told. */
  shared(): ReturnType<Sharing['shared']> {
    return this.#sharing.shared()
  }

  /** The newest run that takes volunteers. */
  current(): RunHost | undefined {
    return this.#hosts.findLast((host) => !host.finished && !host.paused)
  }

  /** Where a volunteer goes that said hello. */
  placeFor(volunteer: MemberId): Destination | undefined {
    return this.#sharing.placeFor(volunteer)
  }

  /** Whether a run introduced these two members to each other. */
  mayTalk(a: MemberId, b: MemberId): boolean {
    return this.#hosts.some((host) => host.mayTalk(a, b))
  }

  /** The run that has the coordinator relay frames between these two. */
  relaying(a: MemberId, b: MemberId): RunHost | undefined {
    return this.#hosts.find((host) => !host.finished && host.mayRelay(a, b))
  }

  /** The run that people look at when they name none. */
  shown(): RunHost | undefined {
    return this.current() ?? this.#hosts.findLast((host) => !host.finished) ?? this.#hosts.at(-1)
  }

  /** The run ends its step, writes a checkpoint and stands still, also over restarts; its volunteers go to another. */
  pause(run: RunHost): void {
    run.feed({ type: 'pause' })
  }

  /** It takes volunteers again. */
  resume(run: RunHost): void {
    run.feed({ type: 'resume' })
    this.#sharing.look()
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

  /** The runs whose dataset or base model has this shard: versions are blobs, too, and have routes of their own. */
  jobsOfShard(name: Sha256): readonly RunHost[] {
    return this.#shards.get(name) ?? []
  }

  /**
   * This process is about to end: each run that takes steps ends its step and writes a checkpoint, for `limitMs` at
   * most. No other run gets its volunteers meanwhile. Resolves with whether all did.
   */
  async drain(reason: string, limitMs: number): Promise<boolean> {
    const working = this.#hosts.filter(({ state: { phase } }) => phase.type === 'ring' || phase.type === 'async')
    const draining = new Map<RunHost, () => void>()
    this.#draining = draining
    this.#sharing.stop()
    const enough = new AbortController()
    const parked = working.map((run) => new Promise<void>((resolve) => draining.set(run, resolve)))
    for (const run of working) run.feed({ type: 'park', reason })
    const late = this.#parts.clock.sleep(limitMs, enough.signal).then(() => false)
    const isDone = await Promise.race([Promise.all(parked).then(() => true), late])
    enough.abort()
    return isDone
  }

  /**
   * Removes a job with all that it alone has: journal, versions, shards. Its loss is durable from the first write on; a
   * start after a crash finishes what is left.
   * @throws GridError 'message-unexpected' of a job that runs, 'rate-exceeded' while a dataset is imported,
   * 'lease-stale', 'disk-failed'
   */
  async delete(id: JobId): Promise<void> {
    // A submission meanwhile could count on a shard that goes.
    await this.#alone(async () => {
      const run = this.find(id)
      if (run !== undefined) requireDeletable(run)
      const stored = (await this.#parts.store.jobs()).find((job) => job.id === id)
      if (stored === undefined) return
      await run?.stop()
      await this.#mark(stored, run)
      this.#forget(id)
      await run?.versions.forget()
      await this.#finish(stored)
    })
  }

  /** A run whose mark failed with the disk goes on. */
  async #mark(stored: StoredJob, run: RunHost | undefined): Promise<void> {
    try {
      await this.#parts.store.beginDelete(stored.id, run?.fence)
    } catch (error) {
      if (run === undefined || !isGridError(error) || error.code !== 'disk-failed') throw error
      this.#forget(stored.id)
      await this.#once(stored.id, () => this.#open(stored))
      this.#hosts.sort((a, b) => a.job.submittedAt - b.job.submittedAt)
      this.find(stored.id)?.start()
      throw error
    }
  }

  /** Blobs and rows of a marked job; what fails is told, and tried again by the next start. */
  async #finish(job: StoredJob): Promise<void> {
    const { store, onTrouble } = this.#parts
    const open = new Map(this.#hosts.map((host) => [host.job.id, host.blobs()]))
    try {
      await finishDeletion(job, await blobsOfOthers(job.id, open, store), this.#parts)
    } catch (error) {
      onTrouble(`job ${job.id} is deleted, and what it had is removed at the next start: ${describeError(error)}`)
    }
  }

  #forget(id: JobId): void {
    const run = this.find(id)
    this.#damaged.splice(0, this.#damaged.length, ...this.#damaged.filter((job) => job.id !== id))
    if (run === undefined) return
    this.#hosts.splice(this.#hosts.indexOf(run), 1)
    for (const [shard, hosts] of this.#shards) {
      const others = hosts.filter((host) => host !== run)
      if (others.length === 0) this.#shards.delete(shard)
      else this.#shards.set(shard, others)
    }
    this.#sharing.look()
  }

  /** One at a time of what changes shards, of all coordinators. @throws GridError 'rate-exceeded', 'disk-failed' */
  async #alone<T>(work: () => Promise<T>): Promise<T> {
    const { owners } = this.#parts.store
    requireTurn(this.#importing < MAX_IMPORTS)
    this.#importing++
    try {
      return await (owners === undefined ? work() : owners.alone(work))
    } finally {
      this.#importing--
    }
  }

  async stop(): Promise<void> {
    this.#sharing.stop()
    this.#stopLooking()
    await Promise.all(this.#hosts.map((host) => host.stop()))
  }

  #noData = (error: unknown): void =>
    this.#parts.onTrouble(`appended data is not taken yet, and tried again: ${describeError(error)}`)

  /** Volunteers are told of the end first, and then of the job that goes on. */
  #ended(run: RunHost): void {
    this.#parts.onEnded(run)
    this.#sharing.look()
  }

  /** One run of several may be another's; the only coordinator of a store has lost it whole. */
  #deposed(run: RunHost, error: unknown): void {
    if (this.#parts.shared === undefined) return this.#parts.onDeposed(error)
    if (this.find(run.job.id) === run) void this.drop(run.job.id)
  }

  /** It keeps its volunteers while no other has work for them. */
  #parked(run: RunHost): void {
    if (this.#draining === undefined) this.#sharing.look()
    else this.#draining.get(run)?.()
  }

  #serve(run: RunHost, shards: readonly { readonly sha256: Sha256 }[]): void {
    for (const { sha256 } of shards) {
      const runs = this.#shards.get(sha256) ?? []
      if (!runs.includes(run)) this.#shards.set(sha256, [...runs, run])
    }
  }

  /** Data that was appended to datasets of open runs joins their next epochs. */
  async #lookForData(): Promise<void> {
    for (const run of await this.#appended.changed(this.#hosts)) {
      if (this.#importing >= MAX_IMPORTS) return // at the next look
      await this.#alone(() => this.#appended.take(run))
    }
  }

  async #open(stored: StoredJob): Promise<void> {
    try {
      await this.#take(stored)
    } catch (error) {
      if (isGridError(error) && error.code === 'disk-failed') throw error
      const message = `job ${stored.id} cannot be opened and is left as it is: ${describeError(error)}`
      this.#damaged.push({ id: stored.id, code: 'journal-damaged', message })
      this.#parts.onTrouble(message, stored.id)
    }
  }

  async #take(stored: StoredJob): Promise<RunHost> {
    const { timing, shared, ...parts } = this.#parts
    const job = readJob(stored, timing)
    const host: RunHost = await RunHost.open({
      ...parts,
      job,
      ...(shared === undefined ? {} : { coordinators: shared.coordinators }),
      onDeposed: (error) => this.#deposed(host, error),
      onEnded: (run) => this.#ended(run),
      onParked: (run) => this.#parked(run),
      waitOf: (run) => this.#sharing.waitOf(run),
      onAppended: (run, shards) => this.#serve(run, shards),
    })
    this.#serve(host, [...job.manifest.train, ...job.manifest.validation, ...job.frozen])
    this.#hosts.push(host)
    return host
  }
}

/** It has ended, or no volunteer works for it and none will. @throws GridError 'message-unexpected' */
function requireDeletable({ job, state }: RunHost): void {
  if (state.finished !== undefined) return
  const isBegun = state.chain.head.v > 0 && !state.paused
  if (!isBegun && state.members.size === 0) return
  throw new GridError(
    'message-unexpected',
    `expected a job that has ended, got ${job.id}, which is ${isBegun ? 'running' : 'in the hands of volunteers'}; ` +
      `stop it first with: starling job stop ${job.id}`,
  )
}
