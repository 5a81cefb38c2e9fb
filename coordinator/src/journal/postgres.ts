// The journal in a PostgreSQL database. It outlives the disk of the coordinator's machine, and another machine can go
// on with the jobs.
import { describeError, GridError, type JobId, type StepRecord } from '@starling-grid/protocol'
import pg from 'pg'
import { superseded } from '../run/queue/superseded.ts'
import type { JournalEntry } from '../run/state.ts'
import { fenceAfter, ownerRow, requireFence, requireListed } from './fence.ts'
import type { CoordinatorId, OwnerBook } from './owner-book.ts'
import type { JobCopy, PortableState } from './portable.ts'
import { connect, type Statements } from './postgres-connection.ts'
import { OWNERS_SCHEMA, postgresOwners } from './postgres-owners.ts'
import { type RecordChange, recordChanges, snapshotPlace } from './record-rows.ts'
import { inOrder, type JournalRow, type KeptValue, type StoredJob } from './state-store.ts'

// `rows` counts what was ever appended to a job: it numbers the rows, and tells whether an append whose answer was lost
// took place.
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id TEXT NOT NULL UNIQUE, fence BIGINT NOT NULL,
    rows BIGINT NOT NULL, description TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS journal (
    job INTEGER NOT NULL REFERENCES jobs (number), place BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
    entry TEXT NOT NULL, PRIMARY KEY (job, place));
  CREATE TABLE IF NOT EXISTS records (
    job INTEGER NOT NULL REFERENCES jobs (number), v INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY (job, v));
  CREATE TABLE IF NOT EXISTS deletions (job INTEGER PRIMARY KEY REFERENCES jobs (number));
  CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL);
  ${OWNERS_SCHEMA}
`
/** Two coordinators that start at once would otherwise make the same table twice. */
const SCHEMA_LOCK = 0x57a7_1146
/** one of them is kept by an import or a deletion, and one is for beats */
const CONNECTIONS = 6
/** ms to connect, and for one statement; what takes longer counts as failed and is tried again */
const CONNECT_MS = 5000
const STATEMENT_MS = 30_000
/** rows of one INSERT of a copy */
const COPY_ROWS = 5000
const ONE_MOMENT = 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY'
/** code of SQL for a key that exists (postgresql.org/docs/current/errcodes-appendix.html) */
const UNIQUE_VIOLATION = '23505'

/** The row of a job, locked until the transaction ends: appends and take-overs come one after the other. */
interface LockedJob {
  readonly number: number
  readonly fence: number
  readonly rows: number
}

/** @param url as libpq reads it: postgres://user@host:port/database. @throws GridError 'disk-failed' */
export async function openPostgresState(url: string): Promise<PortableState> {
  const pool = new pg.Pool({
    connectionString: url,
    max: CONNECTIONS,
    connectionTimeoutMillis: CONNECT_MS,
    query_timeout: STATEMENT_MS,
    // R1: a commit that is acknowledged is on the disk, whatever the server's default is.
    options: '-c synchronous_commit=on',
    application_name: 'starling',
  })
  // A connection broke: its statement fails, or the next one opens another.
  pool.on('error', () => undefined)
  pool.on('connect', (client) => client.on('error', () => undefined))
  const state = new PostgresState(pool, nameOf(url))
  try {
    await state.prepare()
  } catch (error) {
    await pool.end()
    throw error
  }
  return state
}

/** Without user and password: people and logs see it. */
function nameOf(url: string): string {
  if (!URL.canParse(url)) return 'PostgreSQL'
  const { host, pathname } = new URL(url)
  return `PostgreSQL at ${host}${pathname}`
}

class PostgresState implements PortableState {
  readonly owners: OwnerBook
  readonly #pool: pg.Pool
  readonly #name: string
  /** rows of a job after an append whose answer was lost, if it took place */
  readonly #doubts = new Map<JobId, number>()

  constructor(pool: pg.Pool, name: string) {
    this.#pool = pool
    this.#name = name
    this.owners = postgresOwners({
      transaction: (work) => this.#transaction(work),
      connect: () => connect(this.#pool, this.#name),
    })
  }

  /** @throws GridError 'disk-failed' */
  async prepare(): Promise<void> {
    await this.#transaction(async (client) => {
      await client.query('SELECT pg_advisory_xact_lock($1)', [SCHEMA_LOCK])
      await client.query(SCHEMA)
      const { rows } = await client.query<{ fsync: string }>('SHOW fsync')
      if (rows[0]?.fsync !== 'on')
        throw new GridError(
          'disk-failed',
          `expected fsync = on in ${this.#name}, got ${rows[0]?.fsync}; a crash would lose what was acknowledged`,
        )
    })
  }

  async createJob(job: StoredJob, owner?: CoordinatorId): Promise<void> {
    await this.#transaction((client) => insertJob(client, job, { fence: 0, rows: 0, owner }))
  }

  async jobs(): Promise<readonly StoredJob[]> {
    return this.#listed('NOT IN')
  }

  async deleted(): Promise<readonly StoredJob[]> {
    return this.#listed('IN')
  }

  async #listed(among: 'IN' | 'NOT IN'): Promise<readonly StoredJob[]> {
    return this.#transaction(async (client) => {
      const { rows } = await client.query<StoredJob>(
        `SELECT id, description FROM jobs WHERE number ${among} (SELECT job FROM deletions) ORDER BY number`,
      )
      return rows.map(({ id, description }) => ({ id, description }))
    })
  }

  async beginDelete(job: JobId, fence?: number): Promise<void> {
    await this.#transaction(async (client) => {
      const locked = await lock(client, job)
      if (fence !== undefined) requireFence(job, locked.fence, fence)
      await client.query('INSERT INTO deletions (job) VALUES ($1) ON CONFLICT DO NOTHING', [locked.number])
    })
  }

  async endDelete(job: JobId): Promise<void> {
    await this.#transaction(async (client) => {
      const { rows } = await client.query<{ number: number }>(
        'SELECT number FROM jobs WHERE id = $1 AND number IN (SELECT job FROM deletions) FOR UPDATE',
        [job],
      )
      for (const { number } of rows)
        for (const table of ['journal WHERE job', 'records WHERE job', 'deletions WHERE job', 'jobs WHERE number'])
          await client.query(`DELETE FROM ${table} = $1`, [number])
    })
  }

  async takeOver<T>(job: JobId, at: number, read: (rows: readonly JournalRow[]) => T): Promise<T> {
    this.#doubts.delete(job) // what was in doubt is read now
    return this.#transaction(async (client) => {
      const locked = await lock(client, job)
      const row = ownerRow(locked.fence, at)
      await insertRows(client, locked, [row])
      await setJob(client, locked, { fence: row.entry.fence, rows: locked.rows + 1 })
      const numbered = await journalOf(client, locked.number)
      const result = read(numbered.map(({ row: written }) => written))
      const places = [...superseded(numbered.map(({ row: { entry } }) => entry))].map((i) => numbered[i]?.place)
      await client.query('DELETE FROM journal WHERE job = $1 AND place = ANY($2::bigint[])', [locked.number, places])
      return result
    })
  }

  async append(job: JobId, own: number, rows: readonly JournalRow[]): Promise<void> {
    const doubt = this.#doubts.get(job)
    try {
      await this.#transaction(async (client) => {
        const locked = await lock(client, job)
        requireFence(job, locked.fence, own)
        requireListed(job, await isDeleted(client, locked))
        if (locked.rows === doubt) return // the caller repeats what took place
        if (rows.length > 0) this.#doubts.set(job, locked.rows + rows.length)
        await appendRows(client, locked, rows)
      })
    } catch (error) {
      if (!(error instanceof Unanswered)) this.#doubts.delete(job)
      throw error
    }
    this.#doubts.delete(job)
  }

  async load(job: JobId): Promise<readonly JournalRow[]> {
    return this.#transaction(async (client) => {
      const { number } = await find(client, job)
      return (await journalOf(client, number)).map(({ row }) => row)
    })
  }

  async records(job: JobId, from: number, limit: number): Promise<readonly StepRecord[]> {
    return this.#transaction(async (client) => recordsOf(client, (await find(client, job)).number, from, limit))
  }

  async put(key: string, value: string): Promise<void> {
    await this.#transaction((client) =>
      client.query(
        'INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value',
        [key, value],
      ),
    )
  }

  async get(key: string): Promise<string | undefined> {
    return this.#transaction(async (client) => {
      const { rows } = await client.query<{ value: string }>('SELECT value FROM settings WHERE key = $1', [key])
      return rows[0]?.value
    })
  }

  async values(prefix: string): Promise<readonly KeptValue[]> {
    return this.#transaction(async (client) => {
      const { rows } = await client.query<KeptValue>('SELECT key, value FROM settings')
      return inOrder(rows, prefix)
    })
  }

  async remove(key: string): Promise<void> {
    await this.#transaction((client) => client.query('DELETE FROM settings WHERE key = $1', [key]))
  }

  async copyOf(job: StoredJob): Promise<JobCopy> {
    return this.#transaction(async (client) => {
      const { number, fence } = await find(client, job.id)
      const rows = (await journalOf(client, number)).map(({ row }) => row)
      return { job, fence, rows, records: await recordsOf(client, number, 1, Number.MAX_SAFE_INTEGER) }
    }, ONE_MOMENT)
  }

  async adopt({ job, fence, rows, records }: JobCopy): Promise<void> {
    await this.#transaction(async (client) => {
      const number = await insertJob(client, job, { fence, rows: rows.length })
      await insertRows(client, { number, fence, rows: 0 }, rows)
      await putRecords(client, number, records)
    })
  }

  async close(): Promise<void> {
    await this.#pool.end()
  }

  /** @throws GridError 'disk-failed'; Unanswered when it may have taken place; what `work` throws */
  async #transaction<T>(work: (client: Statements) => Promise<T>, begin = 'BEGIN'): Promise<T> {
    const client = await connect(this.#pool, this.#name)
    let committing = false
    try {
      await client.query(begin)
      const result = await work(client)
      committing = true
      await client.query('COMMIT')
      client.release()
      return result
    } catch (cause) {
      const isRolledBack = await rolledBack(client)
      client.release(!isRolledBack)
      throw committing && !isRolledBack ? new Unanswered('disk-failed', describeError(cause), { cause }) : cause
    }
  }
}

/** The server was asked to commit and did not answer: this process does not know whether it did. */
class Unanswered extends GridError {}

async function rolledBack(client: Statements): Promise<boolean> {
  try {
    await client.query('ROLLBACK')
    return true
  } catch {
    return false
  }
}

interface NewJob {
  readonly fence: number
  readonly rows: number
  readonly owner?: CoordinatorId | undefined
}

async function insertJob(client: Statements, { id, description }: StoredJob, { fence, rows, owner }: NewJob) {
  try {
    const inserted = await client.query<{ number: number }>(
      'INSERT INTO jobs (id, fence, rows, description, owner) VALUES ($1, $2, $3, $4, $5) RETURNING number',
      [id, fence, rows, description, owner ?? null],
    )
    return inserted.rows[0]?.number ?? 0
  } catch (cause) {
    if (codeOf(cause) === UNIQUE_VIOLATION)
      throw new GridError('duplicate', `expected a new job id, got ${id}, which exists; choose another`, { cause })
    throw cause
  }
}

/** Of SQL, when that is why a statement failed. */
function codeOf(failure: unknown): string | undefined {
  const cause = failure instanceof GridError ? failure.cause : undefined
  return cause instanceof pg.DatabaseError ? cause.code : undefined
}

const COUNTS = 'number, fence::float8, rows::float8'

async function lock(client: Statements, job: JobId): Promise<LockedJob> {
  return only(job, await client.query<LockedJob>(`SELECT ${COUNTS} FROM jobs WHERE id = $1 FOR UPDATE`, [job]))
}

async function find(client: Statements, job: JobId): Promise<LockedJob> {
  return only(job, await client.query<LockedJob>(`SELECT ${COUNTS} FROM jobs WHERE id = $1`, [job]))
}

function only(job: JobId, { rows: [found] }: pg.QueryResult<LockedJob>): LockedJob {
  if (found === undefined) throw new Error(`internal: job ${job} was never created`)
  return found
}

async function isDeleted(client: Statements, { number }: LockedJob): Promise<boolean> {
  const { rowCount } = await client.query('SELECT 1 FROM deletions WHERE job = $1', [number])
  return rowCount !== 0
}

async function setJob(client: Statements, { number }: LockedJob, to: { fence: number; rows: number }) {
  await client.query('UPDATE jobs SET fence = $2, rows = $3 WHERE number = $1', [number, to.fence, to.rows])
}

async function appendRows(client: Statements, locked: LockedJob, rows: readonly JournalRow[]): Promise<void> {
  const entries = rows.map(({ entry }) => entry)
  await insertRows(client, locked, rows)
  await keepRecords(client, locked.number, recordChanges(entries))
  if (entries.some(({ type }) => type === 'snapshot'))
    await client.query('DELETE FROM journal WHERE job = $1 AND place < $2', [
      locked.number,
      locked.rows + snapshotPlace(entries),
    ])
  await setJob(client, locked, { fence: fenceAfter(locked.fence, rows), rows: locked.rows + rows.length })
}

/** Behind the rows that the job has. */
async function insertRows(client: Statements, { number, rows: first }: LockedJob, rows: readonly JournalRow[]) {
  for (let from = 0; from < rows.length; from += COPY_ROWS) {
    const some = rows.slice(from, from + COPY_ROWS)
    await client.query(
      `INSERT INTO journal (job, place, at, entry)
       SELECT $1, $2::bigint + ordinality - 1, at, entry
       FROM unnest($3::float8[], $4::text[]) WITH ORDINALITY AS given (at, entry, ordinality)`,
      [number, first + from, some.map(({ at }) => at), some.map(({ entry }) => JSON.stringify(entry))],
    )
  }
}

async function journalOf(
  client: Statements,
  job: number,
): Promise<{ readonly place: string; readonly row: JournalRow }[]> {
  const { rows } = await client.query<{ place: string; at: number; entry: string }>(
    'SELECT place, at, entry FROM journal WHERE job = $1 ORDER BY place',
    [job],
  )
  return rows.map(({ place, at, entry }) => ({ place, row: { at, entry: JSON.parse(entry) as JournalEntry } }))
}

/** In their order; what lies between two cuts of the chain is put at once. */
async function keepRecords(client: Statements, job: number, changes: readonly RecordChange[]): Promise<void> {
  let records: StepRecord[] = []
  for (const change of changes) {
    if ('record' in change) records.push(change.record)
    else {
      records = records.filter(({ v }) => v <= change.above)
      await client.query('DELETE FROM records WHERE job = $1 AND v > $2', [job, change.above])
    }
  }
  await putRecords(client, job, records)
}

async function putRecords(client: Statements, job: number, records: readonly StepRecord[]): Promise<void> {
  const newest = [...new Map(records.map((record) => [record.v, record])).values()]
  for (let from = 0; from < newest.length; from += COPY_ROWS) {
    const some = newest.slice(from, from + COPY_ROWS)
    await client.query(
      `INSERT INTO records (job, v, record) SELECT $1, v, record FROM unnest($2::int[], $3::text[]) AS given (v, record)
       ON CONFLICT (job, v) DO UPDATE SET record = excluded.record`,
      [job, some.map(({ v }) => v), some.map((record) => JSON.stringify(record))],
    )
  }
}

async function recordsOf(client: Statements, job: number, from: number, limit: number): Promise<StepRecord[]> {
  const { rows } = await client.query<{ record: string }>(
    'SELECT record FROM records WHERE job = $1 AND v >= $2 ORDER BY v LIMIT $3',
    [job, from, limit],
  )
  return rows.map(({ record }) => JSON.parse(record) as StepRecord)
}
