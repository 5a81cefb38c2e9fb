// Who has which job, in a PostgreSQL database that several coordinators share. Silence is measured by the database's
// clock alone, so that clocks of machines may differ.
import type { JobId } from '@starling-grid/protocol'
import { type CoordinatorId, type OwnerBook, requireTurn } from './owner-book.ts'
import type { PostgresConnection, Statements } from './postgres-connection.ts'

export const OWNERS_SCHEMA = `
  ALTER TABLE jobs ADD COLUMN IF NOT EXISTS owner TEXT;
  CREATE TABLE IF NOT EXISTS coordinators (
    id TEXT PRIMARY KEY, card TEXT NOT NULL, beat_at TIMESTAMPTZ NOT NULL);
`
/** Advisory lock of what changes shared blobs. */
const ALONE_LOCK = 0x57a7_1147
/** A coordinator that was silent for so long left nothing behind. */
const FORGOTTEN_AFTER = '1 day'

export interface OwnersDatabase {
  /** @throws GridError 'disk-failed' */
  transaction<T>(work: (client: Statements) => Promise<T>): Promise<T>
  /** A connection of its own. @throws GridError 'disk-failed' */
  connect(): Promise<PostgresConnection>
}

export function postgresOwners({ transaction, connect }: OwnersDatabase): OwnerBook {
  return {
    beat: (id, card) =>
      transaction(async (client) => {
        // Nothing of a beat is worth an fsync: after a crash of the database the next one is there before it counts.
        await client.query('SET LOCAL synchronous_commit = off')
        await client.query(
          `INSERT INTO coordinators (id, card, beat_at) VALUES ($1, $2, clock_timestamp())
           ON CONFLICT (id) DO UPDATE SET card = excluded.card, beat_at = excluded.beat_at`,
          [id, card],
        )
        const { rows: coordinators } = await client.query<{ id: CoordinatorId; card: string; silent: number }>(
          `SELECT id, card, extract(epoch FROM clock_timestamp() - beat_at)::float8 * 1000 AS silent
           FROM coordinators WHERE beat_at > clock_timestamp() - INTERVAL '${FORGOTTEN_AFTER}' ORDER BY id`,
        )
        const { rows: jobs } = await client.query<{ id: JobId; owner: CoordinatorId | null }>(
          'SELECT id, owner FROM jobs WHERE number NOT IN (SELECT job FROM deletions) ORDER BY number',
        )
        return {
          coordinators: coordinators.map(({ silent, ...one }) => ({ ...one, silentMs: Math.max(0, silent) })),
          owners: new Map(jobs.map(({ id: job, owner }) => [job, owner ?? undefined])),
        }
      }),
    pass: (job, from, to) =>
      transaction(async (client) => {
        const { rowCount } = await client.query(
          'UPDATE jobs SET owner = $3 WHERE id = $1 AND owner IS NOT DISTINCT FROM $2',
          [job, from ?? null, to],
        )
        return rowCount === 1
      }),
    async leave(id) {
      await transaction((client) => client.query('DELETE FROM coordinators WHERE id = $1', [id]))
    },
    async alone(work) {
      const client = await connect()
      // A connection that breaks gives its lock back with it.
      let isBroken = false
      try {
        const { rows } = await client.query<{ taken: boolean }>('SELECT pg_try_advisory_lock($1) AS taken', [
          ALONE_LOCK,
        ])
        requireTurn(rows[0]?.taken === true)
        try {
          return await work()
        } finally {
          await client.query('SELECT pg_advisory_unlock($1)', [ALONE_LOCK]).catch(() => {
            isBroken = true
          })
        }
      } finally {
        client.release(isBroken)
      }
    },
  }
}
