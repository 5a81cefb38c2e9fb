// What other coordinators say of their jobs and volunteers, as the schedule of this one reads it.
import { type JobId, memberId } from '@starling-grid/protocol'
import type { Lender } from '../jobs/schedule.ts'
import type { Elsewhere } from '../jobs/sharing.ts'
import type { CoordinatorCard } from './card.ts'

export function elsewhereOf(cards: readonly CoordinatorCard[]): Elsewhere {
  return {
    jobs: cards.flatMap(({ url, jobs }) => jobs.map((job) => ({ ...job, url }))),
    lenders: cards.flatMap(({ seats, more }) => [
      ...seats,
      ...Object.entries(more).flatMap(([job, count]) =>
        Array.from({ length: count }, (_, i) => unnamed(job as JobId, i)),
      ),
    ]),
  }
}

/** One of many of a large grid: it counts, and stays where it is. */
function unnamed(job: JobId, number: number): Lender {
  const id = memberId(`${job} ${number}`)
  return { id, job, since: 0, chosen: job, declines: new Set(), realGpu: undefined, f16: undefined }
}
