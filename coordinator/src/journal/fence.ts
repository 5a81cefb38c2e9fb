// Decides whose appends count, alike for every store: each append is conditional on `owner` (docs/RULES.md, R1, R2).
import { GridError, type JobId } from '@starling-grid/protocol'
import type { JournalRow } from './state-store.ts'

/** @throws GridError 'lease-stale' when another coordinator owns the job */
export function requireFence(job: JobId, fence: number, own: number): void {
  if (own === fence) return
  throw new GridError(
    'lease-stale',
    `expected job ${job} under this coordinator's fence ${own}, got fence ${fence} of another; stop one of the two`,
  )
}

/** @throws GridError 'lease-stale' when the job is being deleted */
export function requireListed(job: JobId, isDeleted: boolean): void {
  if (!isDeleted) return
  throw new GridError('lease-stale', `expected a job that is there, got ${job}, which was deleted; submit another`)
}

const SECOND_MS = 1000

/** The fence after these rows: a coordinator may raise its own (run/restored.ts). */
export function fenceAfter(fence: number, rows: readonly JournalRow[]): number {
  return rows.reduce((last, { entry }) => (entry.type === 'fence' ? entry.fence : last), fence)
}

/**
 * The row that raises the fence: the first one of a coordinator process in the journal of a job. Its number is the
 * seconds since the epoch where that is more. A journal restored from a backup lost rows; so it gives none of their
 * numbers again (I7).
 */
export function ownerRow(
  fence: number,
  at: number,
): JournalRow & { readonly entry: { readonly type: 'fence'; readonly fence: number } } {
  return { at, entry: { type: 'fence', fence: Math.max(fence + 1, Math.floor(at / SECOND_MS)) } }
}
