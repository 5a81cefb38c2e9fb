// Members that hold different bytes for one step (docs/MEMBERSHIP.md). All are asked, the few are named, and the link
// on which right bytes became wrong ones counts as broken. Nothing of the step is committed meanwhile.
import { EXCHANGES, type MemberId, recordId, type StepRecord, type VersionId } from '@starling-grid/protocol'
import { isRelayed } from '../links/generation-links.ts'
import { noteFailure } from '../links/link-health.ts'
import { own, type RingPhase } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'

declare module '../state.ts' {
  interface Slices {
    /** a step that members of the running generation hold differently */
    disputed: { now: Dispute | undefined }
  }
}

export interface Dispute {
  readonly v: number
  /** ms */
  readonly since: number
  readonly records: Map<MemberId, StepRecord>
}

export const dispute = {
  initial: () => ({ disputed: { now: undefined } }),
  tick: disputeTick,
  started: ({ state }) => {
    own(state, 'disputed').now = undefined
  },
} satisfies Aspect

/** ms for the others to say what they hold: they applied the step at about the same time */
const DISPUTE_MS = 1000
const NO_PARENT = '' as VersionId

export function sameRecord(a: StepRecord, b: StepRecord): boolean {
  return recordId(NO_PARENT, a) === recordId(NO_PARENT, b)
}

/** `before`: what others said of the step, who all said the same. */
export function beginDispute(
  transition: Transition,
  phase: RingPhase,
  member: MemberId,
  said: {
    readonly record: StepRecord
    readonly before: { readonly record: StepRecord; readonly by: ReadonlySet<MemberId> }
  },
): void {
  const { record, before } = said
  // One at a time: what follows a disputed step is settled with it, since the ballot ends both.
  const disputed = own(transition.state, 'disputed')
  if (disputed.now !== undefined && disputed.now.v < record.v) return
  disputed.now = {
    v: record.v,
    since: transition.now,
    records: new Map([...before.by].map((id) => [id, before.record])),
  }
  heardInDispute(transition, phase, member, record)
}

export function heardInDispute(transition: Transition, phase: RingPhase, member: MemberId, record: StepRecord): void {
  const { now } = own(transition.state, 'disputed')
  now?.records.set(member, record)
  if (now?.records.size === phase.members.length) settle(transition, phase)
}

function disputeTick(transition: Transition): void {
  const { phase, disputed } = transition.state
  if (phase.type !== 'ring' || disputed.now === undefined) return
  if (transition.now - disputed.now.since > DISPUTE_MS) settle(transition, phase)
}

function settle(transition: Transition, phase: RingPhase): void {
  const { now: dispute } = transition.state.disputed
  if (dispute === undefined) return
  const groups = groupsOf(dispute.records)
  const [most = [], next = []] = groups
  const isClear = most.length > next.length
  const few = isClear ? groups.slice(1).flat() : groups.flat()
  for (const id of few)
    transition.refuse(id, 'digest-mismatch', `your step ${dispute.v} is not the one that other members hold`)
  const senders = few.flatMap(
    (id) => suspectLinkTo(transition, phase, id, groups.find((group) => group.includes(id)) ?? []) ?? [],
  )
  const names = (ids: readonly MemberId[]): string =>
    [...new Set(ids)].map((id) => transition.state.members.get(id)?.name ?? id.slice(0, 8)).join(' and ')
  const reason = isClear
    ? `${names(few)} held other bytes for step ${dispute.v} than the other ${most.length}; ` +
      `${senders.length > 0 ? `they came from ${names(senders)}` : 'any of the others may have sent them'}`
    : `${names(few)} hold different bytes for step ${dispute.v}, and no majority shows which are right`
  if (!EXCHANGES[phase.exchange.type].hasOneSender) transition.state.health.directDoubtedAt = transition.now
  transition.note('refusal', reason)
  transition.enqueue({ type: 'ballot', reason, trouble: true })
}

/** Who said the same, the largest group first. */
function groupsOf(records: ReadonlyMap<MemberId, StepRecord>): MemberId[][] {
  const groups: { readonly record: StepRecord; readonly members: MemberId[] }[] = []
  for (const [member, record] of records) {
    const known = groups.find((group) => sameRecord(group.record, record))
    if (known === undefined) groups.push({ record, members: [member] })
    else known.members.push(member)
  }
  return groups.map(({ members }) => members).sort((a, b) => b.length - a.length)
}

/**
 * Either the predecessor sent wrong bytes, or this member lies about what it got. One pair proves nothing of either. A
 * member in such a pair with a second partner, in another order of the ring, is left out (R17). Returns the
 * predecessor. Where several members send to it, it could be any of them.
 */
function suspectLinkTo(
  transition: Transition,
  { members, relayed, exchange }: RingPhase,
  id: MemberId,
  agreeing: readonly MemberId[],
): MemberId | undefined {
  const { health, generation, config } = transition.state
  const rank = (members.indexOf(id) + members.length - 1) % members.length
  const from = members[rank]
  if (!EXCHANGES[exchange.type].hasOneSender || from === undefined || agreeing.includes(from)) return undefined
  const failure = {
    pair: [from, id] as const,
    why: 'closed' as const,
    proven: true,
    relayed: isRelayed({ members, relayed }, from, id),
    generation,
    at: transition.now,
  }
  health.linkFailures = noteFailure(health.linkFailures, failure, {
    now: transition.now,
    halfLifeMs: config.timing.linkMemoryMs,
  })
  return from
}
