// What members say they hold, against the committed chain (R4), and which of it is the version to go on with (R5).
import {
  blockIndex,
  type Claim,
  epochOf,
  extend,
  fold,
  type MemberId,
  type StepRecord,
  type VersionRef,
} from '@starling-grid/protocol'
import { newestCheckpoint } from '../journal-replay.ts'
import { blocksIn } from '../queue/scheduler.ts'
import { isImplausible, scaleOf } from '../ring/weak-scaling.ts'
import type { RunState } from '../state.ts'
import type { Transition } from '../transition.ts'
import { sameRecord } from './dispute.ts'
import { lot } from './proofs.ts'

export interface ValidClaim {
  readonly member: MemberId
  readonly version: VersionRef
  /**
   * once committed, cut off by the last rewind, and held by this member: on the chain again when its claim is chosen
   * (R6)
   */
  readonly revived: readonly StepRecord[]
  /** beyond the committed chain and what is revived */
  readonly records: readonly StepRecord[]
  /** generation of the last record: breaks ties */
  readonly lastGeneration: number
}

export function validClaims(state: RunState, claims: ReadonlyMap<MemberId, Claim | null>): ValidClaim[] {
  return [...claims].flatMap(([member, claim]) => (claim === null ? [] : (validClaim(state, member, claim) ?? [])))
}

/** R4: id(C) stands at position C of the claim's chain; or its base is on the branch that the last rewind cut off. */
export function validClaim(state: RunState, member: MemberId, claim: Claim): ValidClaim | undefined {
  const { chain } = state
  const revived = cutOffBefore(state, claim.base)
  const version = fold(claim.base, claim.records)
  const skipped = revived.length > 0 ? 0 : chain.head.v - claim.base.v
  if (version === undefined || skipped < 0 || skipped > claim.records.length) return undefined
  const onChain = revived.length > 0 || fold(claim.base, claim.records.slice(0, skipped))?.id === chain.head.id
  if (!onChain) return undefined
  const last = claim.records.at(-1) ?? revived.at(-1) ?? chain.record(version.v)
  const since = claim.records.slice(skipped)
  if (since.some(({ generation }) => generation <= state.forgottenGeneration)) return undefined
  const again = revived.length > 0 ? 0 : cutOffAmong(state, since)
  return {
    member,
    version,
    revived: [...revived, ...since.slice(0, again)],
    records: since.slice(again),
    lastGeneration: last?.generation ?? 0,
  }
}

/** How many of these records, which follow the head, the last rewind cut off. */
function cutOffAmong({ chain, abandoned }: RunState, records: readonly StepRecord[]): number {
  let count = 0
  for (let [one, other] = [chain.head, chain.head]; ; count++) {
    const [record, cutOff] = [records[count], abandoned[count]]
    if (record === undefined || cutOff === undefined) return count
    one = extend(one, record)
    other = extend(other, cutOff)
    if (one.id !== other.id) return count
  }
}

/** Records of the abandoned branch that lead from the head to `base`, when the head is still at the fork. */
function cutOffBefore(state: RunState, base: VersionRef): readonly StepRecord[] {
  const fork = state.chain.head
  if (base.v <= fork.v || base.v > fork.v + state.abandoned.length) return []
  const between = state.abandoned.slice(0, base.v - fork.v)
  return fold(fork, between)?.id === base.id ? between : []
}

/**
 * What no honest member says of steps beyond the committed chain. Their generation never started (R1, R8), they are
 * none of a ring, or their blocks are counted already, twice, or unknown. Or their batch and rate are not those of
 * their generation (R12). Such a claim is a lie, however well its chain is made.
 */
export function implausible(state: RunState, { revived, records }: ValidClaim): string | undefined {
  const seen = new Set(revived.flatMap(({ blocks }) => blocks))
  let before = scaleOf(revived.at(-1) ?? state.chain.records.at(-1)) ?? (state.chain.head.v === 0 ? 1 : undefined)
  for (const record of records) {
    const { v, generation, kind, blocks } = record
    if (!mayHaveRun(state, generation) || kind === 'async')
      return `step ${v} of generation ${generation}, which never ran`
    if (isImplausible(state, record, before))
      return `step ${v} with another batch or learning rate than its generation had`
    before = scaleOf(record)
    for (const block of blocks) {
      if (seen.has(block) || state.chain.isDone(block)) return `step ${v} with block ${block}, which is counted already`
      if (
        block.startsWith('v:') ||
        epochOf(block) >= state.config.epochs ||
        blockIndex(block) >= blocksIn(state, epochOf(block))
      )
        return `step ${v} with block ${block}, which does not exist`
      seen.add(block)
    }
  }
  return undefined
}

function mayHaveRun(state: RunState, generation: number): boolean {
  return state.rings.has(generation) || isLost(state, generation)
}

/** Its rows are not in this journal (restored.ts). */
export function isLost({ lostGenerations }: RunState, generation: number): boolean {
  return lostGenerations !== undefined && generation >= lostGenerations.from && generation <= lostGenerations.to
}

/**
 * R5: the highest valid claim that is backed. Ties go to the highest generation of the last record, then to what most
 * hold, then to what a second member vouches for. Then a lot decides that no member can choose. The lowest id would not
 * do: ids are hashes of keys, so a liar could make keys until its id is the lowest.
 */
export function highest(
  transition: Transition,
  candidates: readonly ValidClaim[],
  claims: readonly ValidClaim[] = candidates,
): ValidClaim | undefined {
  const { state } = transition
  const isVouchedFor = (claim: ValidClaim): number => Number(isBacked(state, claim, claims))
  const holders = ({ version }: ValidClaim): number => claims.filter((one) => one.version.id === version.id).length
  const order = [...candidates].sort(
    (a, b) =>
      b.version.v - a.version.v ||
      b.lastGeneration - a.lastGeneration ||
      holders(b) - holders(a) ||
      isVouchedFor(b) - isVouchedFor(a) ||
      (lot(state, a.member) < lot(state, b.member) ? -1 : 1),
  )
  const [first, ...others] = order
  if (first === undefined) return undefined
  const problem = implausible(transition.state, first)
  if (problem === undefined) return mayDecide(transition, first, claims) ? first : highest(transition, others, claims)
  transition.note(
    'refusal',
    `${transition.state.members.get(first.member)?.name ?? first.member} claims version ${first.version.v}: ${problem}`,
  )
  transition.refuse(first.member, 'message-unexpected', `a claim of version ${first.version.v}: ${problem}`)
  const believed = claims.filter((claim) => claim !== first)
  return highest(transition, others, believed)
}

/**
 * R5: what one member alone says of steps beyond the committed chain is not taken, unless a committed step would be
 * lost without its claim.
 */
function mayDecide(transition: Transition, claim: ValidClaim, claims: readonly ValidClaim[]): boolean {
  const { state } = transition
  if (isBacked(state, claim, claims) || !isCommittedElsewhere(state, claim, claims)) return true
  const name = state.members.get(claim.member)?.name ?? claim.member
  transition.note('generation', `${name} alone holds version ${claim.version.v}: its uncommitted steps are repeated`)
  return false
}

/**
 * A second member claims the same steps, or said HELD of the last one; or no other was in their ring (decision 0003).
 */
function isBacked(state: RunState, claim: ValidClaim, claims: readonly ValidClaim[]): boolean {
  const { member, version, records } = claim
  const last = records.at(-1)
  if (last === undefined) return true // the journal knows all of it
  if (claims.some((other) => other.member !== member && passesThrough(state, other, version))) return true
  const said = state.heldBefore.get(last.v)
  if (said !== undefined && sameRecord(said.record, last) && [...said.by].some((id) => id !== member)) return true
  return records.every(({ generation }) =>
    isLost(state, generation) ? isWholeRing(state, member) : ranAlone(state, member, generation),
  )
}

function ranAlone({ rings }: RunState, member: MemberId, generation: number): boolean {
  const ring = rings.get(generation)
  return ring?.length === 1 && ring[0] === member
}

/** It was the last ring, without another member. */
export function isWholeRing({ rings }: RunState, member: MemberId): boolean {
  const last = [...rings.values()].at(-1) ?? []
  return last.length === 1 && last[0] === member
}

/** A lower claim, or the coordinator's checkpoint, has all committed steps that this claim has. */
function isCommittedElsewhere(
  state: RunState,
  { version, revived }: ValidClaim,
  claims: readonly ValidClaim[],
): boolean {
  const committed = fold(state.chain.head, revived)
  if (committed === undefined) return false
  if (newestCheckpoint(state).version.id === committed.id) return true
  return claims.some((other) => other.version.v < version.v && passesThrough(state, other, committed))
}

/** What this member holds is that version, or was made from it. */
export function passesThrough({ chain }: RunState, { revived, records }: ValidClaim, version: VersionRef): boolean {
  const steps = [...revived, ...records].slice(0, Math.max(0, version.v - chain.head.v))
  return fold(chain.head, steps)?.id === version.id
}
