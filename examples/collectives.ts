// Four processes on this machine sum, gather and exchange numbers over WebRTC:  npx tsx examples/collectives.ts
import { localGroup } from '@starling-grid/client-node'

await localGroup(4, async (group) => {
  const say = (what: string, result: ArrayLike<number> | undefined): void =>
    console.log(`rank ${group.rank}  ${what.padEnd(22)} ${result === undefined ? '–' : Array.from(result).join(' ')}`)
  const mine = Float32Array.of(group.rank, 10 * group.rank, 100 * group.rank)

  say('allReduce sum', await group.allReduce(mine))
  say('allReduce max', await group.allReduce(mine, { op: 'max' }))
  say('broadcast from 2', await group.broadcast(mine.slice(), { root: 2 }))
  say('gather to 0', await group.gather(Float32Array.of(group.rank), { root: 0 }))
  say('all-to-all', await group.allToAll(Int32Array.from([0, 1, 2, 3], (to) => 10 * group.rank + to)))

  const [next, previous] = [(group.rank + 1) % group.size, (group.rank + 3) % group.size]
  const [, received] = await Promise.all([group.send(mine, next), group.recv(new Float32Array(3), previous)])
  say(`received from ${previous}`, received)

  const pair = group.subgroup(group.rank < 2 ? [0, 1] : [2, 3])
  say('mean of two', await pair.allReduce(mine, { op: 'mean' }))
  if (group.rank === 0) console.log(group.choose('allReduce', 4_000_000).reason)
})
