// Whose appends count: one rule for every store (COMMIT.md: every append is conditional on `owner`).
import { GridError, type JobId } from '@starling-grid/protocol'
import type { JournalRow } from './state-store.ts'

/**
 * The fence after these rows.
 * @throws GridError 'lease-stale' when a newer coordinator owns the job
 */
export function passFence(job: JobId, fence: number, owner: number, rows: readonly JournalRow[]): number {
  const takesOver = rows.some(({ entry }) => entry.type === 'owner')
  if (owner > fence || (owner === fence && !takesOver)) return owner
  throw new GridError('lease-stale', `Another coordinator took over job ${job}: its number is ${fence}, this one's is ${owner}. Stop one of the two.`)
}
