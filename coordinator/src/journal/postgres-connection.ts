// A connection to PostgreSQL whose statements fail with an error of ours. What a driver throws cannot be told from what
// the code between two statements throws by reading it: a broken connection has a code, or one of many texts.
import { describeError, GridError } from '@starling-grid/protocol'
import type pg from 'pg'

export interface Statements {
  /** @throws GridError 'disk-failed', whose cause is the driver's */
  query<Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<pg.QueryResult<Row>>
}

export interface PostgresConnection extends Statements {
  /** @param isBroken then it is closed, and not given to the next one that asks */
  release(isBroken?: boolean): void
}

/** @param name of the database, as people are told it. @throws GridError 'disk-failed' when there is no connection */
export async function connect(pool: pg.Pool, name: string): Promise<PostgresConnection> {
  const failed = (cause: unknown): never => {
    const got = describeError(cause)
    throw new GridError('disk-failed', `expected to use ${name}, got: ${got}; check that it runs and has space`, {
      cause,
    })
  }
  const client = await pool.connect().catch(failed)
  return {
    query: (text, values) => client.query(text, values).catch(failed),
    release: (isBroken) => client.release(isBroken),
  }
}
