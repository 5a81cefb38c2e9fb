// When the journal of a run gets its next snapshot. So often that a restart replays few rows; so rarely that a snapshot
// costs a part of what its rows cost.

/** Rows that a restart replays at most, beside the few of the decisions under way: a second or two. */
export const SNAPSHOT_ROWS = 1000
/** ms after which a slow run gets one, and the rows from which on it is worth it. */
export const SNAPSHOT_MS = 600_000
export const SNAPSHOT_LEAST_ROWS = 100

export interface JournalTail {
  /** behind the newest snapshot */
  readonly rows: number
  /** ms: when that was written, or the process began */
  readonly since: number
  /** the run is over: no row follows */
  readonly ended: boolean
}

export interface SnapshotDecision {
  readonly due: boolean
  readonly reason: string
}

/** `now`: ms */
export function snapshotDue({ rows, since, ended }: JournalTail, now: number): SnapshotDecision {
  if (rows >= SNAPSHOT_ROWS) return { due: true, reason: `${rows} rows are behind the last snapshot` }
  if (ended && rows > 0) return { due: true, reason: 'the run is over' }
  if (rows >= SNAPSHOT_LEAST_ROWS && now - since >= SNAPSHOT_MS)
    return { due: true, reason: `the last snapshot is ${Math.round((now - since) / 1000)} s old` }
  return { due: false, reason: `${rows} rows are replayed soon enough` }
}
