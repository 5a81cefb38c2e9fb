// Which job a page of the dashboard watches, and where that is.
import type { JobId, WatchMessage } from '@starling-grid/protocol'
import type { Whereabouts } from '../owners/owners.ts'

export type WhereIs = (job: JobId) => Whereabouts

/** Characters of what a page names as a job: an id is shorter. */
const MAX_JOB_NAME = 200

/** Whatever a page writes there: a name that is no job is answered as a job that is gone. */
export function jobNamed(query: unknown): string | undefined {
  const { job } = query as { readonly job?: unknown }
  return typeof job === 'string' && job !== '' ? job.slice(0, MAX_JOB_NAME) : undefined
}

/** The job that a page names, or showed until now, is another coordinator's. */
export function atOwner(
  asked: string | undefined,
  before: JobId | undefined,
  whereIs: WhereIs,
): Pick<Extract<WatchMessage, { type: 'none' }>, 'at'> {
  const job = asked ?? before
  const whereabouts = job === undefined ? undefined : whereIs(job as JobId)
  return job !== undefined && typeof whereabouts === 'object' ? { at: { url: whereabouts.url, job } } : {}
}
