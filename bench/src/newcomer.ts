// How fast a newcomer gets its state from a member, between two processes of this machine: hashes, chunks, their
// SHA-256 and all (volunteer/src/recovery). Compared with the same processes that only send as much over a link of the
// same kind.
import { type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { startLocalGroup } from '@starling-grid/client-node'
import type { NewcomerAnswer, NewcomerOrder } from './newcomer-rank.ts'
import { newcomerRingRow } from './newcomer-ring.ts'
import { type BenchRow, type Contender, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const PROGRAM = fileURLToPath(new URL('newcomer-rank.ts', import.meta.url))
const MEGABYTES = 16
const REACH = { peer: 'raw', ratio: 0.6 }

export async function newcomerSuite(options: SuiteOptions): Promise<BenchRow[]> {
  return [await fetchRow(options), await newcomerRingRow(options)]
}

async function fetchRow({ rounds }: SuiteOptions): Promise<BenchRow> {
  const { processes, ended } = await startLocalGroup({ size: 2, file: PROGRAM })
  await Promise.all(processes.map((child) => answerOf(child)))
  let version = 0
  const rate =
    (type: 'fetch' | 'raw'): Contender =>
    async () => {
      const answers = await orderAll(processes, { type, bytes: MEGABYTES * 1e6, version: ++version })
      return (1000 * MEGABYTES) / Math.max(...answers)
    }
  const row = await race(
    {
      name: `newcomer's state of ${MEGABYTES} MB from one member`,
      adapter: 'WebRTC',
      unit: 'MB/s',
      reach: REACH,
    },
    rate('fetch'),
    { raw: rate('raw') },
    rounds,
  )
  await orderAll(processes, { type: 'leave', bytes: 0, version: 0 })
  await ended
  return row
}

function orderAll(processes: readonly ChildProcess[], order: NewcomerOrder): Promise<number[]> {
  return Promise.all(
    processes.map((child) => {
      child.send(order)
      return answerOf(child)
    }),
  )
}

async function answerOf(child: ChildProcess): Promise<number> {
  const [answer] = (await once(child, 'message')) as [NewcomerAnswer]
  if ('error' in answer) throw new Error(answer.error)
  return answer.milliseconds
}
