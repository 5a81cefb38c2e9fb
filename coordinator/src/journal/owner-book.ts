// The seam to who has which job, where several coordinators share one store. A coordinator holds its jobs for as long
// as it beats. The fence of each journal protects the jobs; this book says where they are.
// Implemented in memory and in PostgreSQL; both run test/owner-book-suite.ts.
import { GridError, type JobId } from '@starling-grid/protocol'

/** Of one coordinator, also over its restarts. */
export type CoordinatorId = string & { readonly brand: 'coordinator' }

export const coordinatorId = (text: string): CoordinatorId => text as CoordinatorId

export interface RegisteredCoordinator {
  readonly id: CoordinatorId
  /** what it says of itself with its beat; read by owners/card.ts alone */
  readonly card: string
  /** ms since its last beat, by the clock of the store */
  readonly silentMs: number
}

/** All that is written, as it was at one moment. */
export interface Register {
  readonly coordinators: readonly RegisteredCoordinator[]
  /** undefined: no coordinator ever had it */
  readonly owners: ReadonlyMap<JobId, CoordinatorId | undefined>
}

export interface OwnerBook {
  /** This coordinator lives, and says so much of itself; what is written then. @throws GridError 'disk-failed' */
  beat(id: CoordinatorId, card: string): Promise<Register>
  /**
   * A job passes from one owner to another. False: it was not the one's any more, and nothing is written.
   * @throws GridError 'disk-failed'
   */
  pass(job: JobId, from: CoordinatorId | undefined, to: CoordinatorId): Promise<boolean>
  /** This coordinator ends: what it still has is there to be taken. @throws GridError 'disk-failed' */
  leave(id: CoordinatorId): Promise<void>
  /**
   * One of all coordinators at a time does what changes blobs that jobs may share.
   * @throws GridError 'rate-exceeded' when another one does; 'disk-failed'; what `work` throws
   */
  alone<T>(work: () => Promise<T>): Promise<T>
}

/** One import or deletion at a time: what one counts on, the other could remove. */
export function requireTurn(isFree: boolean): void {
  if (isFree) return
  throw new GridError(
    'rate-exceeded',
    'expected one import or deletion at a time, got a second; try again when the first is done',
  )
}
