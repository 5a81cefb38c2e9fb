// The journal in one SQLite file. libsql's calls are synchronous: a commit returns when its fsync did.
import { mkdirSync, statfsSync } from 'node:fs'
import { dirname } from 'node:path'
import { describeError, GridError, type JobId, type StepRecord } from '@starling-grid/protocol'
import Database from 'libsql'
import { superseded } from '../run/queue/superseded.ts'
import type { JournalEntry } from '../run/state.ts'
import { fenceAfter, ownerRow, requireFence, requireListed } from './fence.ts'
import type { PortableState } from './portable.ts'
import { recordChanges, snapshotPlace } from './record-rows.ts'
import { inOrder, type JournalRow, type KeptValue, type StoredJob } from './state-store.ts'

// WAL with synchronous=FULL: every commit is one fsync of the log. The timeout is for a coordinator that is being taken
// over.
const PRAGMAS = ['busy_timeout = 2000', 'journal_mode = WAL', 'synchronous = FULL', 'foreign_keys = ON']
/** codes of SQLite for pages that hold something else than was written */
const DAMAGED = /^SQLITE_(CORRUPT|NOTADB)/
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, fence INTEGER NOT NULL, description TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS journal (
    number INTEGER PRIMARY KEY, job INTEGER NOT NULL REFERENCES jobs (number), at REAL NOT NULL, entry TEXT NOT NULL);
  CREATE INDEX IF NOT EXISTS journal_of_job ON journal (job, number);
  CREATE TABLE IF NOT EXISTS records (
    job INTEGER NOT NULL REFERENCES jobs (number), v INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY (job, v)
  ) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS deletions (job INTEGER PRIMARY KEY REFERENCES jobs (number));
  CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL);
`

export interface SqliteState extends PortableState {
  /** settings of this connection that a promise depends on */
  pragmas(): { readonly journal_mode: string; readonly synchronous: number }
}

/** bytes that stay free: a full disk would also stop what makes room, and other programs */
const RESERVE_BYTES = 64 * 1024 * 1024

/** `free`: bytes that the disk has left. @throws GridError 'folder-unwritable' */
export function openSqliteState(file: string, free = (): number => freeBytes(dirname(file))): SqliteState {
  try {
    mkdirSync(dirname(file), { recursive: true })
    const database = new Database(file)
    for (const pragma of PRAGMAS) database.prepare(`PRAGMA ${pragma}`).all()
    // Written, not only read: a read-only file shows itself now and not in the middle of a run.
    database.exec(`BEGIN IMMEDIATE; ${SCHEMA} COMMIT`)
    return sqliteState(database, file, free)
  } catch (cause) {
    throw new GridError(
      'folder-unwritable',
      `expected a data folder that can be written, got ${dirname(file)} (${describeError(cause)}); ` +
        'name another with --data-dir',
      { cause },
    )
  }
}

function freeBytes(folder: string): number {
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize
}

// oxlint-disable-next-line max-lines-per-function -- prepared statements, and the operations that run them
function sqliteState(database: Database.Database, file: string, free: () => number): SqliteState {
  const insertJob = database.prepare(
    'INSERT INTO jobs (id, fence, description) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING',
  )
  const allJobs = database.prepare(
    'SELECT id, description FROM jobs WHERE number NOT IN (SELECT job FROM deletions) ORDER BY number',
  )
  const allDeleted = database.prepare(
    'SELECT id, description FROM jobs WHERE number IN (SELECT job FROM deletions) ORDER BY number',
  )
  const isMarked = database.prepare('SELECT 1 FROM deletions WHERE job = ?')
  const mark = database.prepare('INSERT OR IGNORE INTO deletions (job) VALUES (?)')
  const removals = ['journal WHERE job', 'records WHERE job', 'deletions WHERE job', 'jobs WHERE number'].map((rows) =>
    database.prepare(`DELETE FROM ${rows} = ?`),
  )
  const fenceOf = database.prepare('SELECT number, fence FROM jobs WHERE id = ?')
  const setFence = database.prepare('UPDATE jobs SET fence = ? WHERE number = ?')
  const insertRow = database.prepare('INSERT INTO journal (job, at, entry) VALUES (?, ?, ?)')
  const rowsOf = database.prepare(
    'SELECT number, at, entry FROM journal WHERE job = (SELECT number FROM jobs WHERE id = ?) ORDER BY number',
  )
  const deleteRowsBefore = database.prepare('DELETE FROM journal WHERE job = ? AND number < ?')
  const putRecord = database.prepare('INSERT OR REPLACE INTO records (job, v, record) VALUES (?, ?, ?)')
  const deleteRecordsAbove = database.prepare('DELETE FROM records WHERE job = ? AND v > ?')
  const recordsOf = database.prepare(
    'SELECT record FROM records WHERE job = (SELECT number FROM jobs WHERE id = ?) AND v >= ? ORDER BY v LIMIT ?',
  )
  const hasRecords = database.prepare('SELECT 1 FROM records WHERE job = ? LIMIT 1')
  const deleteRow = database.prepare('DELETE FROM journal WHERE number = ?')
  const putValue = database.prepare(
    'INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value',
  )
  const getValue = database.prepare('SELECT value FROM settings WHERE key = ?')
  const allValues = database.prepare('SELECT key, value FROM settings')
  const removeValue = database.prepare('DELETE FROM settings WHERE key = ?')

  const writing = <T>(work: () => T): T => transaction('BEGIN IMMEDIATE', work)
  /** Of one moment, whatever other processes write. */
  const reading = <T>(work: () => T): T => transaction('BEGIN', work)

  function transaction<T>(begin: string, work: () => T): T {
    try {
      database.exec(begin)
      const result = work()
      database.exec('COMMIT')
      return result
    } catch (cause) {
      rollBack()
      throw cause instanceof Database.SqliteError ? failureOf(cause) : cause
    }
  }

  function failureOf(cause: InstanceType<typeof Database.SqliteError>): GridError {
    if (DAMAGED.test(cause.code))
      return new GridError(
        'journal-damaged',
        `expected a readable journal in ${file}, got: ${describeError(cause)}; restore the file from a backup`,
        { cause },
      )
    return new GridError(
      'disk-failed',
      `expected to write to ${file}, got: ${describeError(cause)}; check the space and health of the disk`,
      { cause },
    )
  }

  /** A failed COMMIT may have rolled back by itself. */
  function rollBack(): void {
    if (database.inTransaction) database.exec('ROLLBACK')
  }

  function numbered(job: JobId): (JournalRow & { readonly number: number })[] {
    return (rowsOf.all(job) as { number: number; at: number; entry: string }[]).map(({ number, at, entry }) => ({
      number,
      at,
      entry: JSON.parse(entry) as JournalEntry,
    }))
  }

  /** Our own rows, written below: as typed as they were then. */
  function loaded(job: JobId): JournalRow[] {
    return numbered(job).map(({ at, entry }) => ({ at, entry }))
  }

  /** @throws GridError 'disk-failed' */
  function requireSpace(): void {
    const left = free()
    if (left < RESERVE_BYTES)
      throw new GridError(
        'disk-failed',
        `expected ${RESERVE_BYTES} free bytes beside ${file}, got ${left}; make room, the run goes on by itself`,
      )
  }

  /** Also of a journal that was written before records had a table. */
  function keepRecords(job: number, entries: Iterable<JournalEntry>): void {
    for (const change of recordChanges(entries)) {
      if ('above' in change) deleteRecordsAbove.run(job, change.above)
      else putRecord.run(job, change.record.v, JSON.stringify(change.record))
    }
  }

  /** @throws GridError 'duplicate' */
  function newJob({ id, description }: StoredJob, fence: number): void {
    const { changes } = insertJob.run(id, fence, description)
    if (changes === 0)
      throw new GridError('duplicate', `expected a new job id, got ${id}, which exists; choose another`)
  }

  function jobNumber(job: JobId): { readonly number: number; readonly fence: number } {
    const found = fenceOf.get(job) as { number: number; fence: number } | undefined
    if (found === undefined) throw new Error(`internal: job ${job} was never created`)
    return found
  }

  return {
    createJob: async (job) => writing(() => newJob(job, 0)),
    jobs: async () => allJobs.all().map((row) => ({ ...(row as StoredJob) })),
    async beginDelete(job, own) {
      writing(() => {
        const { number, fence } = jobNumber(job)
        if (own !== undefined) requireFence(job, fence, own)
        mark.run(number)
      })
    },
    deleted: async () => allDeleted.all().map((row) => ({ ...(row as StoredJob) })),
    async endDelete(job) {
      writing(() => {
        const found = fenceOf.get(job) as { number: number } | undefined
        if (found === undefined || isMarked.get(found.number) === undefined) return
        for (const removal of removals) removal.run(found.number)
      })
    },
    async takeOver(job, at, read) {
      return writing(() => {
        const { number, fence } = jobNumber(job)
        const row = ownerRow(fence, at)
        setFence.run(row.entry.fence, number)
        insertRow.run(number, at, JSON.stringify(row.entry))
        const rows = numbered(job)
        const entries = rows.map(({ entry }) => entry)
        if (hasRecords.get(number) === undefined) keepRecords(number, entries)
        const result = read(rows.map(({ at: writtenAt, entry }) => ({ at: writtenAt, entry })))
        for (const place of superseded(entries)) deleteRow.run(rows[place]?.number)
        return result
      })
    },
    async append(job, own, rows) {
      requireSpace()
      writing(() => {
        const { number, fence } = jobNumber(job)
        requireFence(job, fence, own)
        requireListed(job, isMarked.get(number) !== undefined)
        const entries = rows.map(({ entry }) => entry)
        const numbers = rows.map(({ at, entry }) => insertRow.run(number, at, JSON.stringify(entry)).lastInsertRowid)
        keepRecords(number, entries)
        if (entries.some(({ type }) => type === 'snapshot'))
          deleteRowsBefore.run(number, numbers[snapshotPlace(entries)])
        const raised = fenceAfter(fence, rows)
        if (raised !== fence) setFence.run(raised, number)
      })
    },
    records: async (job, from, limit) =>
      (recordsOf.all(job, from, limit) as { record: string }[]).map(({ record }) => JSON.parse(record) as StepRecord),
    load: async (job) => loaded(job),
    copyOf: async (job) =>
      reading(() => {
        const records = (recordsOf.all(job.id, 1, -1) as { record: string }[]).map(
          ({ record }) => JSON.parse(record) as StepRecord,
        )
        return { job, fence: jobNumber(job.id).fence, rows: loaded(job.id), records }
      }),
    async adopt({ job, fence, rows, records }) {
      writing(() => {
        newJob(job, fence)
        const { number } = jobNumber(job.id)
        for (const { at, entry } of rows) insertRow.run(number, at, JSON.stringify(entry))
        for (const record of records) putRecord.run(number, record.v, JSON.stringify(record))
      })
    },
    async put(key, value) {
      writing(() => putValue.run(key, value))
    },
    get: async (key) => (getValue.get(key) as { value: string } | undefined)?.value,
    values: async (prefix) => inOrder(allValues.all() as KeptValue[], prefix),
    async remove(key) {
      writing(() => removeValue.run(key))
    },
    pragmas: () => ({
      journal_mode: (database.prepare('PRAGMA journal_mode').get() as { journal_mode: string }).journal_mode,
      synchronous: (database.prepare('PRAGMA synchronous').get() as { synchronous: number }).synchronous,
    }),
    async close() {
      database.close()
    },
  }
}
