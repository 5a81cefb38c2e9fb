// What a benchmark says to its rank processes, and what they answer.
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { type LocalGroup, startLocalGroup } from '@starling-grid/client-node'
import type { EncodingName } from './encodings.ts'

const RANK_PROGRAM = fileURLToPath(new URL('reduce-rank.ts', import.meta.url))

export interface RankOrder {
  /** check: all-reduce once and compare with what it must give. raw: only send to one neighbour and receive from the other */
  readonly type: 'check' | 'reduce' | 'raw' | 'leave'
  readonly numbers: number
  readonly encoding: EncodingName
}

export interface RankAnswer {
  readonly milliseconds: number
  /** of all threads of the process */
  readonly cpuMilliseconds: number
  readonly error?: string
}

/** Ranks that take orders: each says so with a first answer. */
export async function startRanks(size: number): Promise<LocalGroup> {
  const group = await startLocalGroup({ size, file: RANK_PROGRAM })
  await Promise.all(group.processes.map((child) => once(child, 'message')))
  return group
}

/** What each rank took. */
export async function orderAll(processes: readonly ChildProcess[], order: RankOrder): Promise<RankAnswer[]> {
  return Promise.all(
    processes.map(async (child) => {
      child.send(order)
      const [answer] = (await once(child, 'message')) as [RankAnswer]
      if (answer.error !== undefined) throw new Error(answer.error)
      return answer
    }),
  )
}

/** Until the last rank was done. */
export function slowest(answers: readonly RankAnswer[]): number {
  return Math.max(...answers.map(({ milliseconds }) => milliseconds))
}
