// Members that say different things of the same bytes (R15, A5, CONFIRM): how many say what, and what becomes of the
// few. One voice is never enough: neither to be believed, nor to be left out for good.
import type { MemberId } from '@starling-grid/protocol'
import { seedCheckpoint } from '../journal-replay.ts'
import { exclude } from '../ring/membership.ts'
import type { Checkpoint, RunState } from '../state.ts'
import type { Transition } from '../transition.ts'
import { isTrusted } from './derived-state.ts'

/** The newest checkpoint that a second member vouched for, and none doubts; version 0 comes from the seed. */
export function lastWitnessed(state: RunState): Checkpoint {
  return state.checkpoints.findLast((one) => isTrusted(state, one)) ?? seedCheckpoint(state.config)
}

/**
 * Members whose bytes are not the ones that others hold: named, and at the next FORM each fetches its state whole. That
 * mends an honest one. A member that differs again stays out of the ring for a while, longer each time (R17).
 */
export function differed(
  transition: Transition,
  few: readonly MemberId[],
  { what, leaveOut }: { readonly what: string; readonly leaveOut: boolean },
): void {
  for (const id of few) {
    const member = transition.state.members.get(id)
    if (member === undefined) continue
    transition.refuse(id, 'digest-mismatch', `your ${what} is not the one that other members hold; it is fetched anew`)
    if (leaveOut || member.differed > 0) exclude(transition, id, `it held another ${what} than others`)
    member.differed++
    member.drifted = true
  }
}

/**
 * Two sides as strong: the one that came last waits outside for a while, so that the other can go on (decision 0012).
 */
export function latecomer({ members }: RunState, among: readonly MemberId[]): MemberId | undefined {
  const present = among.flatMap((id) => members.get(id) ?? [])
  return present.sort((a, b) => b.joinedAt - a.joinedAt || (a.id < b.id ? 1 : -1))[0]?.id
}

export function namesOf({ members }: RunState, ids: readonly MemberId[]): string {
  return [...new Set(ids)].map((id) => members.get(id)?.name ?? id.slice(0, 8)).join(' and ')
}
