// A rank of the all-reduce benchmarks as a process of its own, which takes orders from its parent.
import { joinGroup, leaveGroup, ownSeat, openPeerNetwork } from '@starling-grid/client-node'
import { networkMesh } from '@starling-grid/volunteer'
import type { ProcessAnswer } from './rank-orders.ts'
import { type RankCommand, rawMembers, startRank } from './rank.ts'
import { openRawTls } from './raw-tls.ts'

const seat = ownSeat()
const group = await joinGroup()
if (group === undefined || seat === undefined) throw new Error('internal: started without a group')

const others = rawMembers(seat.members)
const { access, tcp = true } = seat
const network = await openPeerNetwork({ ...access, self: others[group.rank] ?? access.self }, tcp && {})
const rawMesh = networkMesh(network, others, group.rank)
const rank = await startRank({ group, rawMesh, cpuMs, moveTls: await openRawTls(group) })

process.on('message', async (order: RankCommand) => {
  const answer = await rank(order).then(
    (value): ProcessAnswer => ({ value }),
    (error: Error): ProcessAnswer => ({ error: error.stack ?? error.message }),
  )
  process.send?.(answer)
  if (order.type !== 'leave') return
  rawMesh.stop()
  await leaveGroup(group)
})

process.send?.({ value: { milliseconds: 0, cpuMilliseconds: 0 } } satisfies ProcessAnswer)

/** Of all threads. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
