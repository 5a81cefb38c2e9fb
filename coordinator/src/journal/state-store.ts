// The seam to what must survive the process: the jobs, the journal of each, and a few small values.
// Implemented in memory, in SQLite and in PostgreSQL; all run test/state-store-suite.ts.
import type { JobId, StepRecord } from '@starling-grid/protocol'
import type { JournalEntry } from '../run/state.ts'
import type { CoordinatorId, OwnerBook } from './owner-book.ts'

export interface StoredJob {
  readonly id: JobId
  /** JSON of what was submitted and what was made of it; read by jobs.ts alone */
  readonly description: string
}

export interface JournalRow {
  readonly entry: JournalEntry
  /** ms since the epoch, when the entry was decided */
  readonly at: number
}

export interface KeptValue {
  readonly key: string
  readonly value: string
}

export interface StateStore {
  /** who has which job; absent: one coordinator alone uses this store */
  readonly owners?: OwnerBook
  /**
   * Durable when it resolves. `owner`: of the new job, from its first moment.
   * @throws GridError 'disk-failed'; 'duplicate' when there is such a job
   */
  createJob(job: StoredJob, owner?: CoordinatorId): Promise<void>
  /** Oldest first, without those that are being deleted. */
  jobs(): Promise<readonly StoredJob[]>
  /**
   * Marks a job as deleted: from then on it is listed by `deleted` instead of `jobs`, and takes no rows. `fence`: of
   * its owner; absent where no coordinator could open it. Durable when it resolves; a second time it changes nothing.
   * @throws GridError 'lease-stale' when another coordinator took the job over, 'disk-failed'
   */
  beginDelete(job: JobId, fence?: number): Promise<void>
  /** Jobs that are marked: their rows are there until `endDelete`. */
  deleted(): Promise<readonly StoredJob[]>
  /**
   * Removes a marked job with all its rows. Durable when it resolves; none there: no error. @throws GridError 'disk-
   * failed'
   */
  endDelete(job: JobId): Promise<void>
  /**
   * R2: raises the fence of a job by an `owner` row and gives the whole journal, that row included, to `read`. It is
   * one transaction: an append of the owner before is in what `read` gets, or it is refused. Rows that later ones
   * supersede (run/superseded.ts) are dropped then. When `read` throws, nothing is written. Durable when it resolves.
   * @throws GridError 'disk-failed'; what `read` throws; Error when a row cannot be parsed
   */
  takeOver<T>(job: JobId, at: number, read: (rows: readonly JournalRow[]) => T): Promise<T>
  /**
   * All rows or none, behind the ones before; durable when it resolves (R1). `owner` is the fence that the writing
   * coordinator got from takeOver(), or that of the last `owner` row that it appended. A snapshot among them drops all
   * rows before it, in the same transaction.
   * @throws GridError 'lease-stale' when another coordinator took the job over, 'disk-failed' when nothing was written
   */
  append(job: JobId, fence: number, rows: readonly JournalRow[]): Promise<void>
  /** In the order of appending. */
  load(job: JobId): Promise<readonly JournalRow[]>
  /**
   * At most `limit` records of the committed chain, from the one that made version `from` on, as the appended rows made
   * it. They stay when their rows are dropped.
   */
  records(job: JobId, from: number, limit: number): Promise<readonly StepRecord[]>
  /** A small value, durable when it resolves; replaces an older one. @throws GridError 'disk-failed' */
  put(key: string, value: string): Promise<void>
  get(key: string): Promise<string | undefined>
  /** The small values whose keys begin with `prefix`, in the order of their keys. */
  values(prefix: string): Promise<readonly KeptValue[]>
  /** Durable when it resolves, also when there is no such value. @throws GridError 'disk-failed' */
  remove(key: string): Promise<void>
  close(): Promise<void>
}

/** Values under a prefix; the order is that of the keys' code units, whatever collation a database has. */
export function inOrder(values: readonly KeptValue[], prefix: string): readonly KeptValue[] {
  return values
    .filter(({ key }) => key.startsWith(prefix))
    .map(({ key, value }) => ({ key, value }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
}
