// The data folder of a simulated grid: journals and blobs that outlive coordinators. It can be slow, fail for a while,
// be put back to an earlier moment, and lose or damage a file. A process that dies takes along what it did not write.
import {
  type BlobStore,
  type JournalRow,
  memoryBlobs,
  memoryState,
  type StateStore,
  type StoredJob,
} from '@starling-grid/coordinator/shell'
import { GridError, type JobId, type Sha256 } from '@starling-grid/protocol'
import type { Counts } from './counts.ts'
import { DatasetShelf } from './dataset-shelf.ts'
import type { Dice } from './dice.ts'
import type { VirtualProcess } from './virtual-time.ts'

/** A coordinator, as its disk knows it. */
export interface DiskUser {
  readonly clock: VirtualProcess
  /** It is about to write, or has written and does not know it yet: it may die here. */
  onWrite(): void
}

/** What was written, in its order. */
type Written = { readonly stored: StoredJob } | { readonly job: JobId; readonly row: JournalRow }

export class Disk {
  /** of blobs, by name: faults damage and remove them */
  readonly kept = new Map<Sha256, Uint8Array>()
  readonly #blobs = memoryBlobs(this.kept)
  /** what owners imported under names */
  readonly shelf = new DatasetShelf()
  /** every blob that ever was: a backup has those of its time */
  readonly #everKept = new Map<Sha256, Uint8Array>()
  /** ms that an append takes at most, and the reading of a journal */
  readonly #mostMs: number
  readonly #gapMs: number
  readonly #counts: Counts
  #store: StateStore = memoryState()
  #log: Written[] = []
  /** the last take-over of each job: the rows that it read, and all that were ever written */
  readonly takenOver = new Map<
    JobId,
    { readonly handed: readonly JournalRow[]; readonly whole: readonly JournalRow[] }
  >()
  /** ms until which nothing can be written */
  failsUntil = 0
  /** told of every durable row, in their order */
  onRows: (job: JobId, rows: readonly JournalRow[]) => void = () => undefined

  constructor({ diskMs, gapMs }: { readonly diskMs: number; readonly gapMs: number }, counts: Counts) {
    this.#counts = counts
    this.#mostMs = diskMs
    this.#gapMs = gapMs
  }

  readonly blobs: BlobStore = {
    ...this.#blobs,
    put: async (bytes) => {
      const name = await this.#blobs.put(bytes)
      this.#everKept.set(name, bytes.slice())
      return name
    },
  }

  fails(now: number): boolean {
    return now < this.failsUntil
  }

  async createJob(stored: StoredJob): Promise<void> {
    await this.#store.createJob(stored)
    this.#log.push({ stored })
  }

  load(job: JobId): Promise<readonly JournalRow[]> {
    return this.#store.load(job)
  }

  /** All rows that the folder ever got, also those that later ones superseded. */
  rows(job: JobId): readonly JournalRow[] {
    return this.#log.flatMap((written) => ('row' in written && written.job === job ? [written.row] : []))
  }

  /** Rows behind the newest job. */
  get rowsSinceJob(): number {
    return this.#log.length - 1 - this.#log.findLastIndex((written) => 'stored' in written)
  }

  /** The folder as it was this many rows ago. No coordinator may be alive. */
  async restore(rowsAgo: number): Promise<void> {
    this.#log = this.#log.slice(0, this.#log.length - rowsAgo)
    this.#store = memoryState()
    const fences = new Map<JobId, number>()
    for (const written of this.#log) {
      if ('stored' in written) await this.#store.createJob(written.stored)
      else {
        await this.#store.append(written.job, fences.get(written.job) ?? 0, [written.row])
        if (written.row.entry.type === 'fence') fences.set(written.job, written.row.entry.fence)
      }
    }
    for (const [name, bytes] of this.#everKept) this.kept.set(name, bytes)
  }

  /** A file's bytes are others for a while, or for good. Returns what makes it whole again, however often it is hit. */
  damage(name: Sha256): () => void {
    const whole = this.#everKept.get(name)
    if (whole === undefined || !this.kept.has(name)) return () => undefined
    this.kept.set(
      name,
      whole.map((byte, i) => (i === whole.length - 1 ? byte ^ 1 : byte)),
    )
    return () => this.kept.set(name, whole)
  }

  /** The store as this process sees it: late, failing for a while, and never again once the process is dead. */
  seenBy(user: DiskUser, dice: Dice): StateStore {
    const takes = async (): Promise<void> => {
      await this.#unlessDead(user)
      if (this.#mostMs > 0) await user.clock.sleep(dice.below(this.#mostMs))
      if (this.fails(user.clock.now())) {
        this.#counts.slowAppends++
        throw new GridError('disk-failed', 'nothing can be written')
      }
      user.onWrite()
      await this.#unlessDead(user)
    }
    const became = async (): Promise<void> => {
      user.onWrite()
      await this.#unlessDead(user)
      if (this.#mostMs > 0) await user.clock.sleep(dice.below(this.#mostMs))
    }
    return {
      createJob: (stored) => this.createJob(stored),
      jobs: () => this.#store.jobs(),
      beginDelete: (job, fence) => this.#store.beginDelete(job, fence),
      deleted: () => this.#store.deleted(),
      endDelete: (job) => this.#store.endDelete(job),
      load: (job) => this.#store.load(job),
      records: (job, from, limit) => this.#store.records(job, from, limit),
      put: (key, value) => this.#store.put(key, value),
      get: (key) => this.#store.get(key),
      values: (prefix) => this.#store.values(prefix),
      remove: (key) => this.#store.remove(key),
      close: async () => undefined,
      takeOver: async (job, at, read) => {
        await takes()
        let handed: readonly JournalRow[] = []
        const result = await this.#store.takeOver(job, at, (rows) => {
          handed = structuredClone(rows)
          return read(rows)
        })
        this.#durable(job, (await this.#store.load(job)).slice(-1)) // the owner's
        this.takenOver.set(job, { handed, whole: this.rows(job) })
        if (this.#gapMs > 0) await user.clock.sleep(dice.below(this.#gapMs))
        return result
      },
      append: async (job, fence, rows) => {
        await takes()
        await this.#store.append(job, fence, rows).catch((error: unknown) => {
          this.#counts.fencedAppends++
          throw error
        })
        this.#durable(job, rows)
        await became()
      },
    }
  }

  #durable(job: JobId, rows: readonly JournalRow[]): void {
    for (const row of rows) this.#log.push({ job, row: structuredClone(row) })
    this.onRows(job, rows)
  }

  #unlessDead({ clock }: DiskUser): Promise<void> {
    if (!clock.isDead) return Promise.resolve()
    this.#counts.lostDecisions++
    return new Promise(() => undefined)
  }
}
