// A journal that was restored from a backup: members promised later ballots than it knows (R3), and hold versions whose
// rows it lost. Its coordinator goes on above their numbers, in one ballot, and believes of such versions what two
// members hold.
import type { MemberId, MessageFrom, StepRecord } from '@starling-grid/protocol'
import { type JournalEntry, own, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { isLost, isWholeRing, passesThrough, type ValidClaim } from './claims.ts'

/**
 * Ballots, and seconds of coordinators' starts, that a member may say above those of the journal: some weeks of a calm
 * run, and thirty years. Frames have 32 bits for a generation, and a liar may say so again.
 */
const BALLOTS_AHEAD = 10_000
const OWNERS_AHEAD = 1_000_000_000
/** Ballots in a minute that go above what members say: each drains the ring. */
const JUMPS_IN_A_MINUTE = 3
const MINUTE_MS = 60_000
/** Why a ballot opens for it. */
export const AHEAD = 'members promised later ballots than the journal knows'

declare module '../state.ts' {
  interface Slices {
    promises: Promises
  }
}

export interface Promises {
  /** the highest numbers that members said they promised, and when ballots went above them, ms */
  heard: { readonly fence: number; readonly generation: number }
  jumps: readonly number[]
}

export const promises = {
  initial: () => ({ promises: { heard: { fence: 0, generation: 0 }, jumps: [] } }),
  hear: { promised: onPromised },
} satisfies Aspect

/** R3: a member promised a later ballot. The next one goes above them, once all had time to say so. */
function onPromised(transition: Transition, member: MemberId, { seen }: MessageFrom<'promised'>): void {
  const { state, now } = transition
  if (seen.generation > state.generation + BALLOTS_AHEAD || seen.fence > state.fence + OWNERS_AHEAD)
    return transition.refuse(
      member,
      'message-unexpected',
      `expected a promise of at most ballot ${state.generation + BALLOTS_AHEAD}, ` +
        `got ${seen.generation} of coordinator ${seen.fence}`,
    )
  const { fence, generation } = state.promises.heard
  own(state, 'promises').heard = {
    fence: Math.max(fence, seen.fence),
    generation: Math.max(generation, seen.generation),
  }
  if (state.phase.type === 'freeze') {
    state.phase.outpromised.add(member)
    return transition.enqueue({ type: 'decide' })
  }
  if (!mayGoAbove(state, now)) return
  if (state.phase.type === 'lost') transition.enqueue({ type: 'ballot', reason: AHEAD, trouble: false })
  if (state.phase.type === 'async') goAboveInAsync(transition)
}

/** Leases and pushes carry no ballot: nothing else changes. */
function goAboveInAsync(transition: Transition): void {
  const { state } = transition
  transition.journal(...nextNumbers(transition))
  transition.broadcast(state.members.keys(), { type: 'async', ...transition.ballot, modeEpoch: state.modeEpoch })
}

/** Members promised numbers that the present ones do not exceed, and not too many said so lately. */
export function mayGoAbove({ promises: { heard, jumps }, fence, generation }: RunState, now: number): boolean {
  const isAhead = heard.fence > fence || (heard.generation > 0 && heard.generation >= generation)
  return isAhead && jumps.filter((at) => now - at < MINUTE_MS).length < JUMPS_IN_A_MINUTE
}

/** R2, I7: the number of the next ballot, above every promise that was reported; in one append with the fence. */
export function nextNumbers({ state, now }: Transition): JournalEntry[] {
  const { fence, generation, promises } = state
  const { heard } = promises
  if (!mayGoAbove(state, now)) return [{ type: 'ballot', generation: generation + 1 }]
  own(state, 'promises').jumps = [...promises.jumps.filter((at) => now - at < MINUTE_MS), now]
  const next = Math.max(generation, heard.generation) + 1
  const above: JournalEntry = { type: 'ballot', generation: next, after: [...state.rings.keys()].at(-1) ?? 0 }
  return heard.fence > fence ? [{ type: 'fence', fence: heard.fence + 1 }, above] : [above]
}

/**
 * R4: of generations whose rows are lost the journal cannot say that they ran, so one member alone is not believed. Two
 * have to hold a version, or one that was the whole ring.
 */
export function vouchedFor(transition: Transition, claims: readonly ValidClaim[]): readonly ValidClaim[] {
  const { state } = transition
  return claims.filter((claim) => {
    if (!claim.records.some(({ generation }) => isLost(state, generation)) || isWholeRing(state, claim.member))
      return true
    if (claims.filter((other) => passesThrough(state, other, claim.version)).length > 1) return true
    const name = state.members.get(claim.member)?.name ?? claim.member
    transition.note(
      'refusal',
      `${name} alone holds version ${claim.version.v}, whose records the journal lost: its steps are repeated`,
    )
    return false
  })
}

/** I8: a mode epoch that began in lost rows keeps its one kind of writer. */
export function keepModesApart(transition: Transition, records: readonly StepRecord[]): void {
  const { mode, modeEpoch } = transition.state
  const newest = Math.max(0, ...records.map((record) => record.modeEpoch))
  if (newest > modeEpoch)
    transition.journal({ type: 'mode', mode, modeEpoch: newest + 1, reason: 'the journal lost the rows of a mode' })
}
