// The seam to what must survive the process: the jobs, the journal of each, and a few small values.
// Implemented in memory, in SQLite and in PostgreSQL; all run test/state-store-suite.ts.
import type { JobId, StepRecord } from '@starling-grid/protocol'
import type { JournalEntry } from '../run/state.ts'

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

export interface StateStore {
  /** Durable when it resolves. @throws GridError 'disk-failed'; 'duplicate' when there is such a job */
  createJob(job: StoredJob): Promise<void>
  /** Oldest first. */
  jobs(): Promise<readonly StoredJob[]>
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
  close(): Promise<void>
}
