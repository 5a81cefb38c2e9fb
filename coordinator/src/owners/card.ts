// What a coordinator says of itself with each beat: where it listens, and who works for which of its jobs. The others
// read it from the store that they share, and believe it as they believe the journal there.
import type { JobId } from '@starling-grid/protocol'
import type { Lender, SharingJob } from '../jobs/schedule.ts'

/**
 * Volunteers that a card names, in about 150 bytes each. Of more it tells the number for each job: those are not moved
 * to other coordinators by what these decide.
 */
const MOST_SEATS = 256

export interface CoordinatorCard {
  /** http(s) origin, for volunteers, pages and commands */
  readonly url: string
  /** of the running kernel: equal for all processes of one machine */
  readonly machine: string
  /** ms since the epoch */
  readonly startedAt: number
  /** false: it ends */
  readonly takesJobs: boolean
  /** jobs that are neither finished nor paused, as schedules see them */
  readonly jobs: readonly SharingJob[]
  /** those of its jobs that say `public` */
  readonly publicJobs: readonly JobId[]
  readonly seats: readonly Lender[]
  /** volunteers beyond those, by job */
  readonly more: Readonly<Record<JobId, number>>
}

export type CardParts = Omit<CoordinatorCard, 'more'>

export function cardText({ seats, jobs, ...rest }: CardParts): string {
  const more: Record<string, number> = {}
  for (const { job } of seats.slice(MOST_SEATS)) if (job !== undefined) more[job] = (more[job] ?? 0) + 1
  return JSON.stringify({
    ...rest,
    jobs: jobs.map(({ speeds, max, ...job }) => ({
      ...job,
      ...(Number.isFinite(max) ? { max } : {}),
      speeds: [...speeds],
    })),
    seats: seats.slice(0, MOST_SEATS).map(({ declines, ...seat }) => ({ ...seat, declines: [...declines] })),
    more,
  })
}

type WrittenWith<T, Key extends keyof T> = Omit<T, Key> & { readonly [K in Key]?: unknown }
interface WrittenJob extends WrittenWith<SharingJob, 'speeds' | 'max'> {
  readonly max?: number
  readonly speeds: readonly [number, number][]
}
interface WrittenSeat extends Omit<Lender, 'declines'> {
  readonly declines: readonly JobId[]
}
interface WrittenCard extends Omit<CoordinatorCard, 'jobs' | 'seats'> {
  readonly jobs: readonly WrittenJob[]
  readonly seats: readonly WrittenSeat[]
}

/** Undefined for the card of a program that writes another form. */
export function readCard(text: string): CoordinatorCard | undefined {
  try {
    const { jobs, seats, ...rest } = JSON.parse(text) as WrittenCard
    return {
      ...rest,
      jobs: jobs.map(({ max = Number.POSITIVE_INFINITY, speeds, ...job }) => ({
        ...job,
        max,
        speeds: new Map(speeds),
      })),
      seats: seats.map((seat) => ({ ...seat, declines: new Set(seat.declines) })),
    }
  } catch {
    return undefined
  }
}
