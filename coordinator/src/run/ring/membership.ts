// Who takes part: joins, departures, and who may be in the next ring.
import { EXCHANGES, type MemberId, type VersionRef } from '@starling-grid/protocol'
import { Ascending } from '../../ascending.ts'
import { isProven } from '../ballot/proofs.ts'
import { forgetMember } from '../links/link-health.ts'
import { exchangeOf } from '../policy/exchange-now.ts'
import { bestSize, type RingChoice } from '../policy/ring-size.ts'
import { type Member, own, type RunInput, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { mayBeAdmitted } from './admissions.ts'
import { beginLearning, isLearning } from './learners.ts'
import { countedSpeeds } from './speed-trust.ts'

declare module '../state.ts' {
  interface Slices {
    speeds: SaidSpeeds
  }
}

/** Samples per second that all members say: at each grant of a crowd their median and their sum are asked for. */
export type SaidSpeeds = Ascending

export const membership = {
  initial: () => ({ speeds: new Ascending() }),
  on: {
    'member-joined': onMemberJoined,
    'member-lost': (transition, input) => onMemberLost(transition, input.member, input),
    speed: onSpeed,
  },
} satisfies Aspect

const MINUTE_MS = 60_000
/** A change of members costs a ballot: another ring must be this much faster. */
const WORTH_CHANGING = 1.5
/** Times excludeMs that a member which is left out again and again stays out at most. */
const LONGEST_EXCLUSION = 16
/** Times excludeMs of good conduct after which it counts as the first time again. */
const FORGIVEN_AFTER = 10

function onMemberJoined(
  transition: Transition,
  { member: info, samplesPerSecond, holds }: Extract<RunInput, { type: 'member-joined' }>,
): void {
  const { state, now } = transition
  // A new socket of the same incarnation may come before the end of the old one was noticed: what was under way is
  // lost.
  if (state.members.has(info.id)) onMemberLost(transition, info.id, { reason: 'opened a new connection' })
  const member: Member = {
    ...info,
    samplesPerSecond,
    hidden: false,
    joinedAt: now,
    workedAt: now,
    leaving: false,
    stepsHeld: 0,
    shownSpeed: 0,
    excludedUntil: 0,
    excludedOver: undefined,
    exclusions: 0,
    cannotUploadUntil: 0,
    silent: false,
    awaitingLease: false,
    missedLeases: 0,
    granted: undefined,
    pushMs: 0,
    uploadRate: undefined,
    refusedPushes: 0,
    noWorkUntil: 0,
    differed: 0,
    drifted: false,
    outvoted: 0,
    noSayUntil: 0,
  }
  state.members.set(info.id, member)
  own(state, 'speeds').add(samplesPerSecond)
  state.health.disturbedAt = now
  transition.note(
    'member',
    `${info.name} joined (${info.client}, ${info.adapter.name}${info.adapter.software ? ', software' : ''})`,
  )
  welcomeInto(transition, member, holds)
}

/** What a newcomer is sent depends on what the run is doing. */
function welcomeInto(transition: Transition, member: Member, holds: VersionRef | undefined): void {
  const { state } = transition
  const { id } = member
  switch (state.phase.type) {
    case 'waiting': {
      const missing = state.config.minVolunteers - state.members.size
      if (missing > 0) return transition.reason(`waiting for ${missing} more volunteer${missing > 1 ? 's' : ''}`)
      return transition.enqueue({ type: 'ballot', reason: 'volunteers are ready', trouble: false })
    }
    case 'freeze': // R2: FREEZE to every later HELLO
      if (isProven(state, member) || ![...state.members.values()].some((other) => isProven(state, other)))
        state.phase.expected.add(id)
      return transition.send(id, { type: 'freeze', ...transition.ballot, committed: state.chain.head.v })
    case 'lost':
      return transition.send(id, { type: 'freeze', ...transition.ballot, committed: state.chain.head.v })
    case 'async':
      return transition.send(id, { type: 'async', ...transition.ballot, modeEpoch: state.modeEpoch })
    case 'finished':
      return transition.send(id, { type: 'finished', version: state.chain.head, reason: state.finished ?? '' })
    case 'form':
    // R2: a member that reconnects must not rejoin the generation it missed. The next tick opens a ballot for it.
    case 'ring':
      beginLearning(transition, member, holds)
      transition.send(id, { type: 'freeze', ...transition.ballot, committed: state.chain.head.v })
      return transition.send(id, { type: 'wait', reason: 'joining the ring at the next ballot' })
    case 'handover':
    case 'settle':
      return transition.send(id, { type: 'wait', reason: 'the run is changing its mode' })
    default:
      state.phase satisfies never
  }
}

function onSpeed({ state }: Transition, input: Extract<RunInput, { type: 'speed' }>): void {
  const member = state.members.get(input.member)
  if (member === undefined) return
  if (member.samplesPerSecond !== input.samplesPerSecond) {
    own(state, 'speeds').remove(member.samplesPerSecond)
    own(state, 'speeds').add(input.samplesPerSecond)
    member.samplesPerSecond = input.samplesPerSecond
  }
  member.hidden = input.hidden ?? member.hidden
  if (input.linkMs !== undefined) state.health.linkMs.set(input.member, input.linkMs)
}

/** A socket closed, or fell silent. Its leases return at once. */
export function onMemberLost(transition: Transition, id: MemberId, why: { readonly reason: string }): void {
  const { state } = transition
  const member = state.members.get(id)
  if (member === undefined) return
  state.members.delete(id)
  own(state, 'speeds').remove(member.samplesPerSecond)
  state.health.disturbedAt = transition.now
  state.health.aborts = state.health.aborts.filter(({ blamed }) => blamed !== id)
  state.health.linkFailures = forgetMember(state.health.linkFailures, id)
  state.health.linkMs.delete(id)
  transition.note('member', `${member.name} left: ${why.reason}`)
  transition.tell(({ memberLost }) => memberLost?.(transition, member))
}

/** What a hidden tab gets of what its speed would give it: the others wait for the rest if its browser suspends it. */
const HIDDEN_FRACTION = 0.5

/** In proportion to speed, as far as it is believed; alike for all while nothing is known. */
export function weightsOf(members: readonly Member[]): number[] {
  const speeds = countedSpeeds(members)
  const isMeasured = speeds.some((speed) => speed > 0)
  return members.map(
    ({ hidden }, rank) => (isMeasured ? Math.max(speeds[rank] ?? 0, 1e-3) : 1) * (hidden ? HIDDEN_FRACTION : 1),
  )
}

/** Samples per second of these members, as far as they are believed. */
export function speedsOf({ members }: RunState, ids: readonly MemberId[]): number[] {
  return countedSpeeds(ids.flatMap((id) => members.get(id) ?? []))
}

/**
 * Members that answered, in a stable ring order: longest here first. When all are excluded, one tries alone. `holders`
 * of the target, where the seed does not make it: after a restored backup they worked, although the journal names none.
 */
export function ringCandidates(
  { state, now }: Pick<Transition, 'state' | 'now'>,
  answered: (id: MemberId) => boolean,
  holders: readonly MemberId[],
): Member[] {
  const present = [...state.members.values()].filter((member) => answered(member.id))
  const welcome = present.filter((member) => member.excludedUntil <= now)
  if (welcome.length === 0)
    return present.sort((a, b) => a.excludedUntil - b.excludedUntil || (a.id < b.id ? -1 : 1)).slice(0, 1)
  const able = welcome.filter(
    (member) => !isLearning(member, state) && isProven(state, member) && mayBeAdmitted(state, member, now),
  )
  const proven = welcome.filter((member) => isProven(state, member))
  const holding = welcome.filter(({ id }) => holders.includes(id))
  const best = [able, proven, holding].find((members) => members.length > 0) ?? welcome
  return chooseRing({ state, now }, best).members
}

/** The fastest ring, or direct exchange, that these members make, in a stable order: longest here first. */
export function chooseRing(
  { state, now }: Pick<Transition, 'state' | 'now'>,
  candidates: readonly Member[],
): { readonly members: Member[]; readonly choice: RingChoice | undefined } {
  const longestFirst = (a: Member, b: Member): number => a.joinedAt - b.joinedAt || (a.id < b.id ? -1 : 1)
  const { exchangeTimes, stepSamples } = state.health
  const { asked } = state.config.exchange
  const maxMembers = EXCHANGES[asked === 'auto' ? 'ring' : asked].mostMembers
  const counted = new Map(countedSpeeds(candidates).map((speed, i) => [candidates[i]?.id, speed]))
  const speedOf = ({ id }: Member): number => counted.get(id) ?? 0
  const fastest = [...candidates].sort((a, b) => speedOf(b) - speedOf(a) || longestFirst(a, b)).slice(0, maxMembers)
  if (exchangeTimes.size === 0 || fastest.some((member) => speedOf(member) <= 0))
    return { members: [...candidates].sort(longestFirst).slice(0, maxMembers), choice: undefined }
  const directMs = (size: number): number | undefined => {
    const { type, costs } = exchangeOf(
      { state, now },
      fastest.slice(0, size).map(({ id }) => id),
    )
    return type === 'direct' ? costs?.direct : undefined
  }
  const choice = bestSize({ speeds: fastest.map(speedOf), samples: stepSamples, times: exchangeTimes, directMs })
  return { members: fastest.slice(0, choice.size).sort(longestFirst), choice }
}

/**
 * Why the members of the ring should change. There are newcomers that it would take, once `calm` (they come in
 * bunches), or other members would be faster by far.
 */
export function ringWouldChange(
  state: RunState,
  ring: readonly MemberId[],
  { now, calm }: { readonly now: number; readonly calm: boolean },
): string | undefined {
  const ready = [...state.members.values()].filter(
    (member) =>
      !member.silent &&
      member.excludedUntil <= now &&
      !isLearning(member, state) &&
      isProven(state, member) &&
      mayBeAdmitted(state, member, now),
  )
  const { members, choice } = chooseRing({ state, now }, ready)
  const newcomers = members.filter(({ id }) => !ring.includes(id)).length
  if (newcomers === 0 && members.length === ring.length) return undefined
  if (members.length - newcomers === ring.length)
    return calm ? `${newcomers} newcomer${newcomers > 1 ? 's' : ''} to admit` : undefined
  const recordMs = state.health.pace?.recordMs ?? 0
  if (choice === undefined || recordMs < WORTH_CHANGING * choice.stepMs) return undefined
  return (
    `a ring of ${members.length} of ${ready.length} would take ${Math.round(choice.stepMs)} ms for a step instead ` +
    `of ${Math.round(recordMs)}`
  )
}

/**
 * R17: a member that ends k ballots within a minute, without a step between them, works without the ring for a while.
 * The waits of ballots do not count, or it would never end so many once they are long.
 */
export function countAbort(transition: Transition, by: MemberId, blamed: MemberId | null): void {
  const { health, config } = transition.state
  const { abortsBeforeFallback, retryMaxMs } = config.timing
  const countedMs = MINUTE_MS + 2 * abortsBeforeFallback * retryMaxMs
  health.aborts = health.aborts.filter(({ at }) => transition.now - at < countedMs)
  health.aborts.push({ by, blamed, at: transition.now })
  const own = health.aborts.filter((entry) => entry.by === by).length
  if (own >= abortsBeforeFallback) exclude(transition, by, `it gave up ${own} times in a row`)
}

/** R17: out of the ring for some time, longer each time; the others go on. `over`: whom it does not reach. */
export function exclude(transition: Transition, id: MemberId, why: string, over?: MemberId): void {
  const member = transition.state.members.get(id)
  if (member === undefined) return
  const { excludeMs } = transition.state.config.timing
  if (transition.now - member.excludedUntil > FORGIVEN_AFTER * excludeMs) member.exclusions = 0
  const ms = excludeMs * Math.min(LONGEST_EXCLUSION, 2 ** member.exclusions)
  member.exclusions++
  member.excludedUntil = transition.now + ms
  member.excludedOver = over
  transition.note('member', `${member.name} is out of the ring for ${ms / 1000} s: ${why}`)
}
