// A running generation: HELD messages commit steps (R10, R11), plans are topped up (R12), aborts and stalls end it
// (R2).
import { extend, isErrorCode, type MemberId, type MessageFrom, type StepRecord } from '@starling-grid/protocol'
import { kindOf } from '../ballot/ballot.ts'
import { beginDispute, heardInDispute, sameRecord } from '../ballot/dispute.ts'
import { AHEAD, mayGoAbove } from '../ballot/restored.ts'
import { askCheckpoint, checkpointDue, nextCheckpointVersion } from '../history/checkpoints.ts'
import { accuse, areLinked, believesIn, isRelayed } from '../links/generation-links.ts'
import { noteFailure } from '../links/link-health.ts'
import { betterEncoding } from '../policy/encoding-cost.ts'
import { encodingNow, isBarred, keepEncoding, wantEncoding } from '../policy/encoding-now.ts'
import { asInRing, GENERATION_MS, measuredNow } from '../policy/exchange-choice.ts'
import { measure } from '../policy/exchange-cost.ts'
import { exchangeLatency, exchangeOf } from '../policy/exchange-now.ts'
import { nextMode } from '../policy/mode-policy.ts'
import { remember as rememberExchange } from '../policy/ring-size.ts'
import type { FormPhase, RingPhase, RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { noteFailedAdmission } from './admissions.ts'
import { isAmongExperienced, overdue } from './form-deadlines.ts'
import { worked } from './inert.ts'
import { countAbort, exclude, ringWouldChange, weightsOf, speedsOf } from './membership.ts'
import { nextSteps, windowOf } from './plan.ts'
import { shownNow } from './speed-trust.ts'

/** Steps beyond C after which members change: no member has begun the one after it when the message arrives. */
const DRAIN_STEPS = 2
/** ms for these steps; then the change costs the step that is under way */
const DRAIN_MS = 3000
/** Times admitMs that newcomers wait at most for the others: where many come and go it is never calm. */
const ADMIT_PATIENCE = 5
/**
 * Change of a member's part after which assignments are told anew: measured speeds differ by some percent from step to
 * step.
 */
const WORTH_NEW_WEIGHTS = 0.1
/** Commits between two ACKs: far below W, far above one message a step. */
const ACK_EVERY = 8

/** Members whose records of a step must agree before it is committed, where the ring has as many. */
const SAYING_THE_SAME = 2

function onHeld(transition: Transition, member: MemberId, { record }: MessageFrom<'held'>): void {
  const { state } = transition
  const { phase } = state
  if (phase.type !== 'ring' || !phase.members.includes(member) || record.v <= state.chain.head.v) return
  const problem = implausible(transition, phase, record)
  if (problem !== undefined) return transition.refuse(member, 'message-unexpected', problem)
  if (state.disputed.now?.v === record.v) return heardInDispute(transition, phase, member, record)
  const entry = phase.held.get(record.v) ?? { record, by: new Set<MemberId>() }
  if (!sameRecord(entry.record, record)) return beginDispute(transition, phase, member, { record, before: entry })
  phase.held.set(record.v, entry)
  entry.by.add(member)
  commitHeld(transition, phase)
}

export const ring = {
  on: { 'member-leaving': onMemberLeaving },
  hear: { held: onHeld, abort: onAbort, 'link-restored': onLinkRestored },
  tick: ringTick,
  memberLost: (transition, { id, name }) => {
    const { phase } = transition.state
    if ((phase.type === 'form' || phase.type === 'ring') && phase.members.includes(id))
      transition.enqueue({ type: 'ballot', reason: `${name} left the ring`, trouble: false })
  },
} satisfies Aspect

/** What no honest member of this generation can hold. */
function implausible({ state, aspects }: Transition, phase: RingPhase, record: StepRecord): string | undefined {
  const planned = phase.planned.get(record.v)
  if (planned === undefined) return `version ${record.v} is not planned in generation ${state.generation}`
  if (record.generation !== state.generation || record.modeEpoch !== state.modeEpoch || record.kind !== kindOf(state))
    return `the record of version ${record.v} names another generation or mode`
  if (!isSameScaling(record.scaling, phase.scalings.get(record.v)))
    return `the record of version ${record.v} names another batch or learning rate than its plan`
  const blocks = record.blocks.join()
  const beyond = aspects.flatMap(({ plan }) => plan?.beyond?.(state) ?? [])
  if (blocks !== planned.join() && blocks !== [...planned, ...beyond].join())
    return `the record of version ${record.v} does not hold its planned blocks`
  return undefined
}

function isSameScaling(a: StepRecord['scaling'], b: StepRecord['scaling']): boolean {
  return a?.batch === b?.batch && a?.scale === b?.scale && a?.lr === b?.lr
}

/**
 * R11: all hold s, or one holds s+1, which requires every member's contribution after s. Two members say the same of s:
 * one that says s and s+1 before all others would decide alone what s is.
 */
function commitHeld(transition: Transition, phase: RingPhase): void {
  const { state, now } = transition
  const records: StepRecord[] = []
  for (let head = state.chain.head; ;) {
    const entry = phase.held.get(head.v + 1)
    if (entry === undefined || state.disputed.now?.v === head.v + 1) break
    const isFollowed = entry.by.size >= SAYING_THE_SAME && phase.held.has(head.v + 2)
    if (entry.by.size < phase.members.length && !isFollowed) break
    records.push(entry.record)
    noteHolders(transition, phase, entry)
    phase.held.delete(entry.record.v)
    phase.planned.delete(entry.record.v)
    phase.scalings.delete(entry.record.v)
    phase.planWeights.delete(entry.record.v)
    head = extend(head, entry.record)
  }
  if (records.length === 0) return
  if (records.length === 1) measureStep(transition, phase, records[0]?.samples ?? 0)
  transition.journal({ type: 'commit', records })
  transition.tell(({ committed }) => committed?.(transition))
  phase.progressAt = now
  state.health.consecutiveAborts = 0
  state.health.aborts = []
  transition.enqueue({ type: 'advance' })
}

/** What a committed step shows of the members that held it; several at once took the same time together. */
function noteHolders(
  { state, now }: Transition,
  phase: RingPhase,
  { record, by }: { readonly record: StepRecord; readonly by: ReadonlySet<MemberId> },
): void {
  const weights = phase.planWeights.get(record.v) ?? phase.weights
  const total = weights.reduce((sum, weight) => sum + weight, 0)
  for (const [rank, id] of phase.members.entries()) {
    const member = by.has(id) ? state.members.get(id) : undefined
    if (member === undefined) continue
    member.stepsHeld++
    worked(state, id, now)
    member.shownSpeed = shownNow(member, {
      samples: (record.samples * (weights[rank] ?? 0)) / Math.max(total, 1e-3),
      ms: now - phase.progressAt,
    })
  }
}

/**
 * For the choices between ring and local rounds, and of the ring's length; steps that had to wait for a plan say
 * nothing.
 */
function measureStep({ state, now }: Transition, phase: RingPhase, samples: number): void {
  const speed = speedsOf(state, phase.members).reduce((sum, one) => sum + one, 0)
  if (speed <= 0 || phase.progressAt <= phase.since) return
  const { health } = state
  health.pace = measure(health.pace, now - phase.progressAt, (1000 * samples) / speed)
  health.recordMs = health.pace.recordMs
  health.measured = measuredNow(health, phase)
  health.exchangeTimes = rememberExchange(
    health.exchangeTimes,
    phase.members.length,
    asInRing(health.pace, phase, exchangeLatency(state, phase.members)),
  )
  health.stepSamples = samples
}

/** After a commit: the next plan when half of the window is used up, and an ACK now and then. */
function topUp(transition: Transition, phase: RingPhase): void {
  const { state } = transition
  const { head } = state.chain
  const steps = phase.plannedTo - head.v > windowOf(transition) / 2 ? [] : nextSteps(transition, phase)
  const isDue = head.v >= phase.ackedTo + ACK_EVERY || steps.length > 0 || phase.plannedTo === head.v
  if (isDue && head.v > phase.ackedTo) {
    phase.ackedTo = head.v
    transition.broadcast(phase.members, { type: 'ack', ...transition.ballot, committed: head })
  }
  if (steps.length === 0) return
  for (const { step, blocks, scaling } of steps) {
    phase.planned.set(step, blocks)
    if (scaling !== undefined) phase.scalings.set(step, scaling)
  }
  phase.plannedTo += steps.length
  phase.progressAt = transition.now
  const weights = newWeights(state, phase)
  if (weights !== undefined) for (const { step } of steps) phase.planWeights.set(step, weights)
  transition.broadcast(phase.members, { type: 'plan', ...transition.ballot, steps, ...(weights ? { weights } : {}) })
}

/** Shares follow the speeds of now, when the part of a member changed by enough to move a block. */
function newWeights(state: RunState, { members, weights: old }: RingPhase): number[] | undefined {
  const found = members.map((id) => state.members.get(id))
  if (found.some((member) => member === undefined)) return undefined
  const weights = weightsOf(found.filter((member) => member !== undefined))
  const part = (all: readonly number[], rank: number): number =>
    (all[rank] ?? 0) / all.reduce((sum, weight) => sum + weight, 0)
  return weights.some((_, i) => Math.abs(part(weights, i) / part(old, i) - 1) > WORTH_NEW_WEIGHTS) ? weights : undefined
}

/** The next steps, unless members change now, and a checkpoint now and then. */
export function planOn(transition: Transition): void {
  const { state, aspects } = transition
  const { phase } = state
  if (phase.type !== 'ring') return
  if (phase.lastStep !== undefined && state.chain.head.v >= phase.lastStep.step) return change(transition, phase)
  topUp(transition, phase)
  if (phase.plannedTo === state.chain.head.v && aspects.some(({ plan }) => plan?.recall?.(transition)))
    topUp(transition, phase)
  if (checkpointDue(state, transition.now)) askCheckpoint(transition, phase, nextCheckpointVersion(state, phase))
  const size = state.suspects.only?.size ?? 0
  const tried = size === 0 ? '' : `; ${size} blocks of a step that failed are tried one at a time`
  transition.reason(`${phase.exchange.type} of ${phase.members.length}${tried}`)
}

/** R2: any member may end the generation; late aborts of older ones never get here. */
function onAbort(transition: Transition, member: MemberId, abort: MessageFrom<'abort'>): void {
  const { state } = transition
  const { blamed, code, message, step } = abort
  if (state.phase.type !== 'ring' && state.phase.type !== 'form') return
  if (!state.phase.members.includes(member)) return
  state.health.disturbedAt = transition.now
  accuse(transition, { ...state.phase, generation: state.generation }, member, abort)
  countAbort(transition, member, blamed)
  const name = (id: MemberId): string => state.members.get(id)?.name ?? id.slice(0, 8)
  const about = blamed === null || blamed === member ? '' : ` about ${name(blamed)}`
  if (isErrorCode(code) && (code === 'gradient-not-finite' || code === 'gradient-outlier'))
    transition.refuse(blamed ?? member, code, message)
  transition.enqueue({
    type: 'ballot',
    reason: `${name(member)} gave up step ${step}${about}: ${message}`,
    trouble: true,
  })
}

/** A late ABORT ends nothing any more, but what it knows of links is as good as that of the first (R18). */
export function abortedBefore(transition: Transition, member: MemberId, abort: MessageFrom<'abort'>): void {
  const { phase } = transition.state
  if (phase.type === 'freeze' && phase.before?.generation === abort.generation && phase.before.members.includes(member))
    accuse(transition, phase.before, member, abort)
}

/** Two members whose frames are relayed reach each other again: the next ring has their direct link. */
function onLinkRestored(transition: Transition, member: MemberId, { peer }: MessageFrom<'link-restored'>): void {
  const { phase, members } = transition.state
  if (phase.type !== 'ring' || !isRelayed(phase, member, peer) || !believesIn(transition, member, peer)) return
  transition.note(
    'generation',
    `${members.get(member)?.name ?? member} and ${members.get(peer)?.name ?? peer} reach each other again`,
  )
  drain(transition, phase, 'a relayed link is direct again')
}

/** R17: a member that did not confirm in time is out of this ballot; one for which all others wait, sooner. */
function formTimedOut(transition: Transition, phase: FormPhase): void {
  const { state, now } = transition
  if (phase.confirmed.size === phase.members.length) return // the state of the target is derived (R15-derived)
  const late = overdue(state, phase, now)
  if (late.length === 0) return
  const onlyNewcomers = late.every((id) => isAmongExperienced(state, phase, id))
  for (const id of late) {
    exclude(transition, id, `it did not reach version ${phase.target.v} in time`)
    if (!onlyNewcomers) continue
    noteFailedAdmission(state, id, now)
    noteUnopened(transition, phase, id)
  }
  transition.enqueue({
    type: 'ballot',
    reason: `${late.length} member(s) did not reach version ${phase.target.v} in time`,
    trouble: true,
  })
}

/** Perhaps its links do not open: next time they are relayed, or it has other neighbours (R18). */
function noteUnopened({ state, now }: Transition, phase: FormPhase, id: MemberId): void {
  const hindsight = { now, halfLifeMs: state.config.timing.linkMemoryMs }
  for (const peer of phase.members.filter((other) => areLinked(phase, id, other)))
    state.health.linkFailures = noteFailure(
      state.health.linkFailures,
      { pair: [id, peer], why: 'unopened', relayed: isRelayed(phase, id, peer), generation: state.generation, at: now },
      hindsight,
    )
}

function ringTick(transition: Transition): void {
  const { phase } = transition.state
  if (phase.type === 'form') return formTimedOut(transition, phase)
  if (phase.type !== 'ring') return
  const { state, now } = transition
  const { timing } = state.config
  const isParking =
    state.parking.asked !== undefined && phase.lastStep !== undefined && state.chain.head.v >= phase.lastStep.step
  if (phase.lastStep !== undefined && now - phase.lastStep.at > DRAIN_MS && !isParking) return change(transition, phase)
  const next = nextMode(now, state.health, state.mode, state.config)
  if (next.mode !== state.mode && next.mode !== 'async') drain(transition, phase, next.reason)
  exchangeTick(transition, phase)
  encodingTick(transition, phase)
  const calm =
    now - Math.max(phase.since, state.health.disturbedAt) > timing.admitMs ||
    now - phase.since > ADMIT_PATIENCE * timing.admitMs
  if (mayGoAbove(state, now)) drain(transition, phase, AHEAD)
  const otherRing = ringWouldChange(state, phase.members, { now, calm })
  if (otherRing !== undefined) drain(transition, phase, otherRing)
  transition.enqueue({ type: 'advance' })
}

/** Another exchange is worth a ballot once this one has been measured; pages show what both cost by now. */
function exchangeTick(transition: Transition, phase: RingPhase): void {
  const exchange = exchangeOf(transition, phase.members)
  const isSame = exchange.type === phase.exchange.type
  if (!isSame && transition.now - phase.since > GENERATION_MS) drain(transition, phase, exchange.reason)
  phase.exchange = isSame ? exchange : { ...phase.exchange, costs: exchange.costs }
}

/** Another encoding is worth a ballot: a smaller one once the generation lasted a while, a finer one at once. */
function encodingTick(transition: Transition, phase: RingPhase): void {
  const { state, now } = transition
  const better = betterEncoding(transition)
  if (better === undefined) return
  if (better.encoding === encodingNow(state)) return keepEncoding(state, better)
  if (!isBarred(state) && now - phase.since <= GENERATION_MS) return
  wantEncoding(state, better)
  drain(transition, phase, `encoding: ${better.reason}`)
}

/** A planned change of members or links waits for the end of a step: what is computed is then also committed. */
export function drain(transition: Transition, phase: RingPhase, reason: string): void {
  if (phase.lastStep !== undefined) return
  const step = Math.min(transition.state.chain.head.v + DRAIN_STEPS, phase.plannedTo)
  phase.lastStep = { step, at: transition.now, reason }
  transition.broadcast(phase.members, { type: 'last-step', ...transition.ballot, step })
  if (step === transition.state.chain.head.v) change(transition, phase)
}

/** The step is committed, or took too long: those who asked may go, those who wait may come. */
function change(transition: Transition, phase: RingPhase): void {
  const { state } = transition
  const leaving = phase.members.filter((id) => state.members.get(id)?.leaving)
  for (const member of leaving) transition.effect({ type: 'dismiss', member })
  if (leaving.length > 0) return // their departure opens the ballot, which also admits who waits
  transition.enqueue({ type: 'ballot', reason: phase.lastStep?.reason ?? 'members change', trouble: false })
}

/** Leaves between two steps when it is in the ring, and at once when no member depends on it. */
function onMemberLeaving(transition: Transition, { member: id }: { readonly member: MemberId }): void {
  const { state } = transition
  const member = state.members.get(id)
  if (member === undefined) return
  member.leaving = true
  if (state.phase.type === 'ring' && state.phase.members.includes(id) && state.phase.members.length > 1)
    return drain(transition, state.phase, `${member.name} leaves`)
  transition.effect({ type: 'dismiss', member: id })
}
