// Members that are here and do nothing: mute, hung, or there to keep others out. They hold no place of their job, so
// that volunteers which wait for one get it (jobs/schedule.ts).
import type { MemberId } from '@starling-grid/protocol'
import type { RunState } from '../state.ts'
import type { Aspect } from '../transition.ts'

/** ms without work, while the run has some: a newcomer fetches its state and proves itself in this time */
const INERT_MS = 180_000
/** Times a step's measured time that a member may take: steps of local rounds last minutes. */
const STEPS = 3

export const inert = {
  // Volunteers that waited with others for the run to start had nothing to do.
  frozen: ({ state, now }) => {
    if (state.phase.type === 'waiting') for (const member of state.members.values()) member.workedAt = now
  },
} satisfies Aspect

/** It held a step, its push was taken, or it measured a block. */
export function worked({ members }: RunState, id: MemberId, now: number): void {
  const member = members.get(id)
  if (member !== undefined) member.workedAt = now
}

/** Those of a ring are judged by its steps (stalls.ts), and a member that asks for work or has some is not inert. */
export function inertMembers(state: RunState, now: number): MemberId[] {
  const { phase, members, health, leases, paused } = state
  if (paused || phase.type === 'waiting' || phase.type === 'finished') return []
  const limitMs = Math.max(INERT_MS, STEPS * (health.pace?.recordMs ?? 0))
  const busy = leases.holders()
  if (phase.type === 'ring') for (const id of phase.members) busy.add(id)
  return [...members.values()]
    .filter(({ id, workedAt, awaitingLease }) => now - workedAt > limitMs && !awaitingLease && !busy.has(id))
    .map(({ id }) => id)
}
