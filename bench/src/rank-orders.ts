// Ranks that are spoken to in turns: processes of this machine, or tabs of a browser on it.
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { openPages } from '@starling-grid/cli/browser'
import { startLocalGroup, startLocalSignalling } from '@starling-grid/client-node'
import { newMemberId } from '@starling-grid/protocol'
import type { RankAnswer, RankCommand } from './rank.ts'

const RANK_PROGRAM = fileURLToPath(new URL('reduce-rank.ts', import.meta.url))
const RANK_PAGE = new URL('pages/reduce-rank.ts', import.meta.url)

export interface Ranks {
  readonly size: number
  /** what each rank took */
  order(order: RankCommand): Promise<readonly RankAnswer[]>
  close(): Promise<void>
}

export type ProcessAnswer = { readonly value: RankAnswer } | { readonly error: string }

/** `tcp` false: over WebRTC */
export async function startProcesses(size: number, tcp = true): Promise<Ranks> {
  const { processes, ended } = await startLocalGroup({ size, tcp, file: RANK_PROGRAM })
  await Promise.all(processes.map((child) => once(child, 'message')))
  const order = (given: RankCommand) => Promise.all(processes.map((child) => ask(child, given)))
  return {
    size,
    order,
    close: async () => {
      await order({ type: 'leave', numbers: 0, encoding: 'f32' })
      await ended
    },
  }
}

async function ask(child: ChildProcess, order: RankCommand): Promise<RankAnswer> {
  child.send(order)
  const [answer] = (await once(child, 'message')) as [ProcessAnswer]
  if ('error' in answer) throw new Error(answer.error)
  return answer.value
}

export async function startTabs(size: number): Promise<Ranks> {
  const signalling = await startLocalSignalling()
  const { pages, close } = await openPages({ modules: { page: RANK_PAGE }, gpu: false }, size)
  const undo = async (): Promise<void> => {
    await close()
    signalling.stop()
  }
  try {
    const members = pages.map(newMemberId)
    await Promise.all(
      pages.map((page, rank) =>
        page.call('join', { access: signalling.access(members[rank] ?? newMemberId()), members }),
      ),
    )
    return {
      size,
      order: async (order) => (await Promise.all(pages.map((page) => page.call('obey', order)))) as RankAnswer[],
      close: undo,
    }
  } catch (error) {
    await undo()
    throw error
  }
}

/** Until the last rank was done. */
export function slowest(answers: readonly RankAnswer[]): number {
  return Math.max(...answers.map(({ milliseconds }) => milliseconds))
}
