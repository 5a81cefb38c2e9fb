// Holders of a version that no other member can fetch it from, and that start no generation either (R17). Without this
// rule a broken link, or a member that only answers ballots, would keep the run in ballots for ever. They are tried
// alone, and in the end what they claim counts as gone (R6).
import type { MemberId } from '@starling-grid/protocol'
import { newestCheckpoint } from '../journal-replay.ts'
import { own, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import type { ValidClaim } from './claims.ts'

declare module '../state.ts' {
  interface Slices {
    /** members from whose version no generation started since, although they were its sources */
    unreached: Map<MemberId, FailedForms>
  }
}

interface FailedForms {
  readonly times: number
  /** ms: when the first of them ended */
  readonly since: number
}

/** FORMs that fail before the holders are tried alone, and before what they claim counts as gone. */
const BEFORE_ALONE = 3
const BEFORE_GONE = 5

export const unreached = {
  initial: () => ({ unreached: new Map() }),
  frozen: formFailed,
  started: ({ state }) => own(state, 'unreached').clear(),
  memberLost: ({ state }, { id }) => void own(state, 'unreached').delete(id),
} satisfies Aspect

/** A ballot opens. What the coordinator or the seed has is fetched from no member. */
function formFailed({ state, now }: Transition): void {
  const { phase } = state
  if (phase.type !== 'form' || phase.target.v === 0) return
  if (newestCheckpoint(state).version.id === phase.target.id) return
  const all = own(state, 'unreached')
  for (const id of phase.sources) {
    const { times, since } = all.get(id) ?? { times: 0, since: now }
    all.set(id, { times: times + 1, since })
  }
}

/** The others could not fetch from any of them: the holders go on, and newcomers learn beside their ring. */
export function goAlone({ unreached: all }: RunState, holders: readonly MemberId[]): boolean {
  return holders.length > 0 && holders.every((id) => (all.get(id)?.times ?? 0) >= BEFORE_ALONE)
}

/** Its version starts no generation, for as long as a run waits for a version that is lost. */
export function isOutOfReach({ unreached: all, config }: RunState, id: MemberId, now: number): boolean {
  const failed = all.get(id)
  return failed !== undefined && failed.times >= BEFORE_GONE && now - failed.since >= config.timing.lostMs
}

/** Claims of members that others can reach; the event names the rest. */
export function withinReach(transition: Transition, claims: readonly ValidClaim[]): ValidClaim[] {
  const { state, now } = transition
  return claims.filter(({ member, version }) => {
    const isGone = isOutOfReach(state, member, now)
    const name = state.members.get(member)?.name ?? member
    if (isGone)
      transition.note('generation', `version ${version.v} of ${name} counts as gone: no member could fetch it`)
    return !isGone
  })
}
