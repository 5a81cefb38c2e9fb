// Decides whose appends count, alike for every store: each append is conditional on `owner` (docs/RULES.md, R1, R2).
import { GridError, type JobId } from '@starling-grid/protocol'
import type { JournalRow } from './state-store.ts'

/** @throws GridError 'lease-stale' when another coordinator owns the job */
export function requireFence(job: JobId, fence: number, owner: number): void {
  if (owner === fence) return
  throw new GridError(
    'lease-stale',
    `Another coordinator took over job ${job}: its number is ${fence}, this one's is ${owner}. Stop one of the two.`,
  )
}

/** The row that raises the fence: the first one of a coordinator process in the journal of a job. */
export function ownerRow(
  fence: number,
  at: number,
): JournalRow & { readonly entry: { readonly type: 'owner'; readonly owner: number } } {
  return { at, entry: { type: 'owner', owner: fence + 1 } }
}
