// A journal that was restored from a backup: members promised later ballots than it knows (R3), and hold versions whose
// rows it lost. Its coordinator goes on above their numbers, in one ballot, and believes of such versions what two
// members hold.
import type { MemberId, MessageFrom, StepRecord } from '@starling-grid/protocol'
import { isLost, isWholeRing, passesThrough, type ValidClaim } from './claims.ts'
import type { JournalEntry, RunState } from './state.ts'
import type { Turn } from './turn.ts'

/**
 * Ballots, and seconds of coordinators' starts, that a member may have heard of above what the journal knows: some
 * weeks of a calm run, and thirty years. Frames have 32 bits for a generation, and a liar may say so again.
 */
const BALLOTS_AHEAD = 10_000
const OWNERS_AHEAD = 1_000_000_000
/** Ballots in a minute that go above what members say: each drains the ring. */
const JUMPS_IN_A_MINUTE = 3
const MINUTE_MS = 60_000
/** Why a ballot opens for it. */
export const AHEAD = 'members promised later ballots than the journal knows'

/** R3: a member heard of later ballots. The next one goes above them, once all had time to say so. */
export function promiseHeard(turn: Turn, member: MemberId, { seen }: MessageFrom<'promised'>): void {
  const { state, now } = turn
  if (seen.gen > state.gen + BALLOTS_AHEAD || seen.owner > state.owner + OWNERS_AHEAD)
    return turn.refuse(
      member,
      'message-unexpected',
      `expected a promise of at most ballot ${state.gen + BALLOTS_AHEAD}, got ${seen.gen} of coordinator ${seen.owner}`,
    )
  const { owner, gen } = state.heardPromise
  state.heardPromise = { owner: Math.max(owner, seen.owner), gen: Math.max(gen, seen.gen) }
  if (state.phase.type === 'freeze') {
    state.phase.outpromised.add(member)
    return turn.then({ type: 'decide' })
  }
  if (!mayGoAbove(state, now)) return
  if (state.phase.type === 'lost') turn.then({ type: 'ballot', reason: AHEAD, trouble: false })
  if (state.phase.type === 'async') goAboveInAsync(turn)
}

/** Leases and pushes carry no ballot: nothing else changes. */
function goAboveInAsync(turn: Turn): void {
  const { state } = turn
  turn.journal(...nextNumbers(turn))
  turn.broadcast(state.members.keys(), { type: 'async', ...turn.ballot, modeEpoch: state.modeEpoch })
}

/** Members heard of numbers that the present ones do not exceed, and not too many said so lately. */
export function mayGoAbove({ heardPromise, owner, gen, jumps }: RunState, now: number): boolean {
  const isAhead = heardPromise.owner > owner || (heardPromise.gen > 0 && heardPromise.gen >= gen)
  return isAhead && jumps.filter((at) => now - at < MINUTE_MS).length < JUMPS_IN_A_MINUTE
}

/** R2, I7: the number of the next ballot, above every promise that was heard; in one append with the owner's. */
export function nextNumbers({ state, now }: Turn): JournalEntry[] {
  const { owner, gen, heardPromise } = state
  if (!mayGoAbove(state, now)) return [{ type: 'ballot', gen: gen + 1 }]
  state.jumps = [...state.jumps.filter((at) => now - at < MINUTE_MS), now]
  const next = Math.max(gen, heardPromise.gen) + 1
  const above: JournalEntry = { type: 'ballot', gen: next, after: [...state.rings.keys()].at(-1) ?? 0 }
  return heardPromise.owner > owner ? [{ type: 'owner', owner: heardPromise.owner + 1 }, above] : [above]
}

/**
 * R4: of generations whose rows are lost the journal cannot say that they ran, so one member alone is not believed: two
 * have to hold a version, or one that was the whole ring.
 */
export function vouchedFor(turn: Turn, claims: readonly ValidClaim[]): readonly ValidClaim[] {
  const { state } = turn
  return claims.filter((claim) => {
    if (!claim.records.some(({ gen }) => isLost(state, gen)) || isWholeRing(state, claim.member)) return true
    if (claims.filter((other) => passesThrough(state, other, claim.version)).length > 1) return true
    const name = state.members.get(claim.member)?.name ?? claim.member
    turn.note(
      'refusal',
      `${name} alone holds version ${claim.version.v}, whose records the journal lost: its steps are repeated`,
    )
    return false
  })
}

/** I8: a mode epoch that began in lost rows keeps its one kind of writer. */
export function keepModesApart(turn: Turn, records: readonly StepRecord[]): void {
  const { mode, modeEpoch } = turn.state
  const newest = Math.max(0, ...records.map((record) => record.modeEpoch))
  if (newest > modeEpoch)
    turn.journal({ type: 'mode', mode, modeEpoch: newest + 1, reason: 'the journal lost the rows of a mode' })
}
