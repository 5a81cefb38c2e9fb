// Which coordinator has which job. Pure: knows nothing of stores, runs or sockets. All coordinators decide alike by
// what is written. Where they read it at different moments, the store lets one of them through.
import type { JobId } from '@starling-grid/protocol'
import type { CoordinatorId } from '../journal/owner-book.ts'

/** A coordinator, as the last look at the store shows it. */
export interface CoordinatorPeer {
  readonly id: CoordinatorId
  /** its lease is not over */
  readonly isLive: boolean
  /** false: it ends */
  readonly takesJobs: boolean
  readonly openJobs: number
}

export interface Owned {
  readonly self: CoordinatorId
  readonly peers: readonly CoordinatorPeer[]
  /** undefined: no coordinator ever had it */
  readonly owners: ReadonlyMap<JobId, CoordinatorId | undefined>
}

export interface Passing {
  readonly job: JobId
  readonly from: CoordinatorId | undefined
  readonly to: CoordinatorId
  readonly reason: string
}

/** Jobs that a coordinator has more than another before one that no volunteer works for goes there. */
const UNEVEN = 2

/**
 * Jobs whose owner is gone, each for one of those that live: the one with fewest jobs. Every coordinator decides about
 * all of them, and takes those that come to itself.
 */
export function orphans({ peers, owners }: Owned): readonly Passing[] {
  const live = new Map(peers.filter(({ isLive }) => isLive).map((peer) => [peer.id, peer]))
  const orphaned = [...owners].filter(([, owner]) => owner === undefined || !live.has(owner))
  return divided(orphaned, [...live.values()]).map((passing) => ({
    ...passing,
    reason: passing.from === undefined ? 'no coordinator had it' : 'the coordinator that had it is gone',
  }))
}

/** All jobs of a coordinator that ends, for those that stay; none: they wait for the next coordinator. */
export function inheritance({ self, peers, owners }: Owned): readonly Passing[] {
  const own = [...owners].filter(([, owner]) => owner === self)
  const others = peers.filter(({ id, isLive }) => isLive && id !== self)
  return divided(own, others).map((passing) => ({ ...passing, reason: 'the coordinator that had it ends' }))
}

/** Where a job goes that no volunteer works for here; undefined: it stays. */
export function roomElsewhere({ self, peers }: Owned): CoordinatorId | undefined {
  const own = peers.find(({ id }) => id === self)?.openJobs ?? 0
  const [roomiest] = takers(peers).filter(({ id }) => id !== self)
  return roomiest !== undefined && own - roomiest.openJobs >= UNEVEN ? roomiest.id : undefined
}

/** Each to the one that has fewest then, in an order that all agree on. */
function divided(
  jobs: readonly (readonly [JobId, CoordinatorId | undefined])[],
  peers: readonly CoordinatorPeer[],
): readonly Omit<Passing, 'reason'>[] {
  const loads = takers(peers).map(({ id, openJobs }) => ({ id, openJobs }))
  return [...jobs]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([job, from]) => {
      const [taker] = loads.sort(byRoom)
      if (taker === undefined) return []
      taker.openJobs++
      return [{ job, from, to: taker.id }]
    })
}

function takers(peers: readonly CoordinatorPeer[]): CoordinatorPeer[] {
  return peers.filter(({ isLive, takesJobs }) => isLive && takesJobs).sort(byRoom)
}

type Room = Pick<CoordinatorPeer, 'id' | 'openJobs'>

function byRoom(a: Room, b: Room): number {
  return a.openJobs - b.openJobs || (a.id < b.id ? -1 : 1)
}
