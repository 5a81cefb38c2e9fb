// One rank of a group as a process of its own: runs cases of the suite, and long operations, when its parent says so.
import { joinGroup, leaveGroup } from '@starling-grid/client-node'
import { RankFailure } from '@starling-grid/volunteer/collectives'
import { communicatorCases } from '@starling-grid/volunteer/testing'

/** What the parent says; each gets one GroupAnswer. */
export type GroupOrder =
  | { readonly type: 'case'; readonly name: string }
  /** all-reduces, until one fails */
  | { readonly type: 'endless' }
  | { readonly type: 'leave' }

export interface GroupAnswer {
  readonly error?: string
  /** the rank that an endless all-reduce failed because of */
  readonly blamed?: number
}

const group = await joinGroup()
if (group === undefined) throw new Error('internal: started without a group')

process.on('message', async (order: GroupOrder) => {
  const answer = await obey(order).catch((error: Error): GroupAnswer => ({ error: error.stack ?? error.message }))
  process.send?.(answer)
  if (order.type === 'leave') await leaveGroup(group)
})

async function obey(order: GroupOrder): Promise<GroupAnswer> {
  if (order.type === 'case') await communicatorCases.find(({ name }) => name === order.name)?.run(group ?? impossible())
  return order.type === 'endless' ? { blamed: await untilItFails() } : {}
}

async function untilItFails(): Promise<number> {
  const values = new Float32Array(1_000_000).fill(1)
  for (;;)
    try {
      await group?.allReduce(values, { algorithm: 'ring' })
    } catch (error) {
      if (error instanceof RankFailure) return error.rank
      throw error
    }
}

function impossible(): never {
  throw new Error('internal: started without a group')
}
