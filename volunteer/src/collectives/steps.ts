// One rank's part of a schedule: what it sends and receives, in order, for each segment. Pure.
import type { Move, Schedule } from './moves.ts'

export interface Step {
  readonly kind: 'send' | 'receive'
  readonly peer: number
  readonly round: number
  readonly effect: Move['effect']
}

/**
 * For each segment the steps of `rank`. Within a round, sends come first: they carry what was held when the round
 * began. Receives are in the order of the ranks, so that sums do not depend on who was faster.
 */
export function stepsOf({ segments, moves }: Schedule, rank: number): Step[][] {
  const steps = Array.from({ length: segments }, (): Step[] => [])
  for (const { round, from, to, first, end, effect } of moves) {
    if (from !== rank && to !== rank) continue
    const step: Step =
      from === rank ? { kind: 'send', peer: to, round, effect } : { kind: 'receive', peer: from, round, effect }
    for (let segment = first; segment < end; segment++) steps[segment]?.push(step)
  }
  for (const list of steps) list.sort(inOrder)
  return steps
}

function inOrder(a: Step, b: Step): number {
  return a.round - b.round || Number(a.kind === 'receive') - Number(b.kind === 'receive') || a.peer - b.peer
}
