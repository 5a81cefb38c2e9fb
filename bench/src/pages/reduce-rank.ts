// A rank of the all-reduce benchmarks as a tab: offers `join` and `obey`. A raw link has a network of its own, as in
// processes.
import type { MemberId } from '@starling-grid/protocol'
import { networkMesh, openCommunicator, type SignallingAccess } from '@starling-grid/volunteer'
import { openPeerNetwork } from '../../../client-web/src/rtc-link.ts'
import { type Rank, type RankCommand, rawMembers, startRank } from '../rank.ts'

interface RankSeat {
  /** of the group, under this tab's name */
  readonly access: SignallingAccess
  readonly members: readonly MemberId[]
}

let rank: Rank | undefined

async function join({ access, members }: RankSeat): Promise<void> {
  const self = members.indexOf(access.self)
  const others = rawMembers(members)
  const group = openCommunicator(networkMesh(await openPeerNetwork(access), members, self))
  const rawMesh = networkMesh(await openPeerNetwork({ ...access, self: others[self] ?? access.self }), others, self)
  rank = await startRank({ group, rawMesh, cpuMs: () => 0 })
}

async function obey(order: RankCommand): Promise<unknown> {
  if (rank === undefined) throw new Error('internal: orders before the tab has joined')
  return rank(order)
}

Object.assign(globalThis, { page: { join, obey } })
