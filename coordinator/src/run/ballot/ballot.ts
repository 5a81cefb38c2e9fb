// From a disturbance to an agreed version: FREEZE → STATE → decision → FORM → CONFIRM → START (R2–R8).
import {
  type Claim,
  type Consumed,
  fold,
  type MemberId,
  type MessageFrom,
  type MessageTo,
  type PlanStep,
  type StepRecord,
  type VersionRef,
} from '@starling-grid/protocol'
import { validationDue } from '../history/validation.ts'
import { newestCheckpoint } from '../journal-replay.ts'
import { arrangeRing, relayedSources } from '../links/generation-links.ts'
import { meetings } from '../links/source-links.ts'
import { renewEncoding } from '../policy/encoding-cost.ts'
import { encodingNow } from '../policy/encoding-now.ts'
import { nextMode } from '../policy/mode-policy.ts'
import { partsOf } from '../queue/suspects.ts'
import { isNear } from '../ring/form-deadlines.ts'
import { onClaim, REPLAYED } from '../ring/learners.ts'
import { exclude, ringCandidates } from '../ring/membership.ts'
import { nextSteps } from '../ring/plan.ts'
import { type FormPhase, type GenerationMembers, own, type RunPhase, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { differed, lastWitnessed, latecomer, namesOf } from './agreement.ts'
import { ballotWait } from './ballot-pace.ts'
import { highest, implausible, validClaim, validClaims } from './claims.ts'
import { doubtersOf, isDerived, judge } from './derived-state.ts'
import { handOver } from './handover.ts'
import { type Agreement, agreementWith } from './majority.ts'
import { isProven } from './proofs.ts'
import { AHEAD, keepModesApart, mayGoAbove, nextNumbers, vouchedFor } from './restored.ts'
import { rewind } from './rewind.ts'
import { giveUpStranded, isStranded, withoutStranded } from './stranded.ts'
import { goAlone, isOutOfReach, withinReach } from './unreached.ts'

declare module '../state.ts' {
  interface Slices {
    /** why the next mode is async mode, while that is not entered yet */
    fallBack: { reason: string; modeEpoch: number }
  }
}

export const ballot = {
  initial: () => ({ fallBack: { reason: '', modeEpoch: -1 } }),
  on: { 'state-derived': reconsiderConfirm },
  hear: { state: onState, confirm: onConfirm },
  tick: ballotTick,
  memberLost: (transition, { id }) => {
    const { phase } = transition.state
    if (phase.type !== 'freeze') return
    phase.expected.delete(id)
    phase.claims.delete(id)
    transition.enqueue({ type: 'decide' })
  },
} satisfies Aspect

function ballotTick(transition: Transition): void {
  const { state, now } = transition
  const { phase, members, config } = state
  if (phase.type === 'freeze') return transition.enqueue({ type: 'decide' })
  if (phase.type === 'form') return reconsiderConfirm(transition)
  if (phase.type === 'lost' && now - phase.since >= config.timing.lostMs)
    return rewind(transition, 'no member came back with a newer version')
  if (phase.type === 'waiting' && members.size >= config.minVolunteers && members.size > 0)
    transition.enqueue({ type: 'ballot', reason: 'volunteers are ready', trouble: false })
}

/** Why the run is in its mode, or soon will be in another. */
export function modeReason({ fallBack, modeEpoch, modeReason: recorded }: RunState): string {
  return fallBack.modeEpoch === modeEpoch ? fallBack.reason : recorded
}

/** The next ballot; after a trouble perhaps one that leads to the parameter server (R17). */
export function callBallot(transition: Transition, reason: string, trouble: boolean): void {
  const { state, now } = transition
  if (state.phase.type === 'finished') return
  if (trouble) state.health.consecutiveAborts++
  const next = nextMode(now, state.health, state.mode, state.config)
  const goal = state.mode === 'async' || next.mode === 'async' ? 'async' : 'ring'
  if (goal === 'async' && state.mode !== 'async')
    Object.assign(own(state, 'fallBack'), { reason: next.reason, modeEpoch: state.modeEpoch })
  openBallot(transition, goal, { reason })
}

/**
 * R2. `wait`: members whose answer is awaited before deciding, beyond those connected (a restart waits for the last
 * generation).
 */
export function openBallot(
  transition: Transition,
  goal: 'ring' | 'async',
  options: { readonly reason: string; readonly waitMs?: number; readonly wait?: readonly MemberId[] },
): void {
  const { state, now } = transition
  const before = generationOf(state)
  if (state.phase.type === 'ring') state.heldBefore = state.phase.held
  transition.journal(...nextNumbers(transition))
  transition.tell(({ frozen }) => frozen?.(transition))
  const wait = ballotWait(state, now)
  state.health.ballots = [...state.health.ballots.filter((at) => now - at < 60_000), now]
  const expected = new Set([...worthWaitingFor(transition), ...(options.wait ?? [])])
  state.phase = {
    type: 'freeze',
    since: now,
    goal,
    expected,
    deadline: now + (options.waitMs ?? state.config.timing.stateMs),
    notBefore: now + wait.ms,
    outpromised: new Set(),
    claims: new Map(),
    consumed: new Map(),
    before,
  }
  const next = `; the next attempt is in ${(wait.ms / 1000).toFixed(1)} s, because ${wait.why}`
  transition.reason(`agreeing on a version: ${options.reason}${wait.ms === 0 ? '' : next}`)
  transition.note('generation', `ballot ${state.generation}: ${options.reason}`)
  transition.broadcast(state.members.keys(), freezeOf(transition))
  if (expected.size === 0) transition.enqueue({ type: 'decide' })
}

function generationOf({ phase, generation }: RunState): GenerationMembers | undefined {
  return phase.type === 'form' || phase.type === 'ring'
    ? { generation, members: phase.members, relayed: phase.relayed, exchange: phase.exchange }
    : undefined
}

/**
 * All that proved themselves, and the others where none of those may be in the ring. Without members that left the last
 * ballot unanswered, unless there are no others.
 */
function worthWaitingFor({ state, now }: Transition): MemberId[] {
  const all = [...state.members.values()]
  const proven = all.filter((member) => isProven(state, member))
  const members = proven.some(({ excludedUntil }) => excludedUntil <= now) ? proven : all
  const awake = members.filter((member) => !member.silent)
  return (awake.length > 0 ? awake : members).map((member) => member.id)
}

function onState(transition: Transition, member: MemberId, { claim, consumed }: MessageFrom<'state'>): void {
  const { state } = transition
  const found = state.members.get(member)
  if (found !== undefined) {
    found.silent = false
    onClaim(transition, found, claim === null ? undefined : fold(claim.base, claim.records))
  }
  if (state.phase.type === 'lost' && claim !== null && isHolder(transition, member, claim))
    return lateReturn(transition, member, claim)
  if (state.phase.type !== 'freeze') return
  state.phase.claims.set(member, claim)
  if (consumed !== undefined) state.phase.consumed.set(member, consumed)
  transition.enqueue({ type: 'decide' })
}

/** Each lie would open a ballot that decides nothing, and its FREEZE would be answered with the same lie. */
function isHolder({ state, now }: Transition, member: MemberId, claim: Claim): boolean {
  const valid = validClaim(state, member, claim)
  return (
    valid !== undefined &&
    implausible(state, valid) === undefined &&
    !isOutOfReach(state, member, now) &&
    !isStranded(state, member, now)
  )
}

/** R6: all members were gone and one came back in time. */
function lateReturn(transition: Transition, member: MemberId, claim: Claim): void {
  const { state, now } = transition
  if (state.phase.type !== 'lost') return
  const expected = new Set(state.members.keys())
  transition.note('run', `${state.members.get(member)?.name ?? member} came back with the lost version`)
  state.phase = {
    type: 'freeze',
    since: now,
    goal: state.phase.goal,
    expected,
    deadline: now + state.config.timing.stateMs,
    notBefore: now,
    lostSince: state.phase.since,
    outpromised: new Set(),
    claims: new Map([[member, claim]]),
    consumed: new Map(),
    before: undefined,
  }
  transition.broadcast(state.members.keys(), freezeOf(transition))
  transition.enqueue({ type: 'decide' })
}

function freezeOf({ state, ballot }: Transition): MessageTo<'freeze'> {
  return { type: 'freeze', ...ballot, committed: state.chain.head.v }
}

/** R5, once all expected members answered or the time is up, and not before the ballot's wait is over. */
export function decide(transition: Transition): void {
  const { state, now } = transition
  const { phase } = state
  if (phase.type !== 'freeze') return
  const missing = [...phase.expected].filter((id) => !phase.claims.has(id) && !phase.outpromised.has(id))
  if ((missing.length > 0 && now < phase.deadline) || now < phase.notBefore) return
  if (mayGoAbove(state, now)) return transition.enqueue({ type: 'ballot', reason: AHEAD, trouble: false })
  for (const member of state.members.values()) member.silent = !phase.claims.has(member.id)
  const possible = withoutStranded(transition, validClaims(state, phase.claims), phase.claims.keys())
  const credible = withinReach(transition, vouchedFor(transition, possible))
  const valid = credible.filter(({ member }) => state.members.get(member)?.drifted !== true)
  const best = highest(transition, valid)
  if (best === undefined) return decideWithoutClaims(transition, phase)
  keepModesApart(transition, best.records)
  if (best.revived.length > 0) transition.journal({ type: 'commit', records: best.revived })
  const holders = valid.filter((claim) => claim.version.id === best.version.id).map((claim) => claim.member)
  if (phase.goal === 'async' && handOver(transition, valid, best)) return
  form(transition, { target: best.version, records: best.records, sources: holders, claims: phase.claims })
}

function decideWithoutClaims(
  transition: Transition,
  { goal, claims, lostSince = transition.now }: Extract<RunPhase, { type: 'freeze' }>,
): void {
  const { state } = transition
  const checkpoint = newestCheckpoint(state)
  if (checkpoint.version.v === state.chain.head.v) return fromCheckpoint(transition, goal, claims)
  if (state.chain.records.at(-1)?.kind === 'async')
    return rewind(transition, 'the parameter server stopped after its last checkpoint')
  if ([...claims.keys()].some((id) => isOutOfReach(state, id, transition.now)))
    return rewind(transition, 'no member could fetch a newer version from those that claim it')
  if (giveUpStranded(transition, claims.keys())) return
  state.phase = { type: 'lost', since: lostSince, goal }
  const seconds = state.config.timing.lostMs / 1000
  transition.reason(
    `no member holds version ${state.chain.head.v}: waiting ${seconds} s for one that does, ` +
      `then back to version ${checkpoint.version.v}`,
  )
  transition.note('run', state.phaseReason)
}

/** The coordinator itself holds the committed version. */
function fromCheckpoint(
  transition: Transition,
  goal: 'ring' | 'async',
  claims: ReadonlyMap<MemberId, Claim | null>,
): void {
  const { state } = transition
  if (goal === 'async') return transition.enqueue({ type: 'enter-async' })
  if (claims.size > 0) return form(transition, { target: state.chain.head, records: [], sources: [], claims })
  state.phase = { type: 'waiting' }
  transition.reason('waiting for volunteers')
}

function form(
  transition: Transition,
  choice: {
    readonly target: VersionRef
    readonly records: readonly StepRecord[]
    readonly sources: readonly MemberId[]
    readonly claims: ReadonlyMap<MemberId, Claim | null>
  },
): void {
  const { state, now } = transition
  const consumed = state.phase.type === 'freeze' ? state.phase.consumed : new Map<MemberId, Consumed>()
  chooseRingMode(transition)
  renewEncoding(transition)
  const isAlone = goAlone(state, choice.sources)
  const mayTakePart = (id: MemberId): boolean => choice.claims.has(id) && (!isAlone || choice.sources.includes(id))
  const {
    members: ring,
    relayed,
    exchange,
  } = arrangeRing(transition, () => ringCandidates(transition, mayTakePart, choice.target.v > 0 ? choice.sources : []))
  const members = ring.map((member) => member.id)
  const weights = partsOf(state, ring)
  const phase: FormPhase = {
    type: 'form',
    since: now,
    members,
    relayed,
    exchange,
    weights,
    records: choice.records,
    target: choice.target,
    sources: choice.sources,
    relayedSources: relayedSources(transition, { members, exchange, sources: choice.sources }),
    consumed,
    confirmed: new Map(),
    lastConfirmAt: undefined,
    near: new Set(members.filter((id) => isNear(state, choice.target, { id, claim: choice.claims.get(id) }))),
  }
  state.phase = phase
  transition.reason(`forming a ${exchange.type} of ${members.length} at version ${choice.target.v}`)
  announce(transition, phase, choice.claims)
}

/** Sources learn which members fetch from them before these learn of the sources. */
function announce(transition: Transition, phase: FormPhase, claims: ReadonlyMap<MemberId, Claim | null>): void {
  const { state } = transition
  const { members, weights, relayed, exchange, target, relayedSources: viaUs } = phase
  const encoding = encodingNow(state)
  const sources = phase.sources.filter((id) => state.members.has(id))
  for (const { source, ...meeting } of meetings({ members, sources }, viaUs))
    transition.send(source, { type: 'meet', ...transition.ballot, ...meeting })
  for (const id of members) {
    const own = viaUs.flatMap(({ member, source }) => (member === id ? source : []))
    transition.send(id, {
      type: 'form',
      ...transition.ballot,
      members: [...members],
      weights: [...weights],
      relayed: relayed.map(([a, b]): [number, number] => [a, b]),
      exchange: { type: exchange.type, reason: exchange.reason },
      ...(encoding === undefined ? {} : { encoding }),
      ...wayFrom(state, claims.get(id), phase.records),
      target,
      sources,
      ...(own.length > 0 ? { relayedSources: own } : {}),
      modeEpoch: state.modeEpoch,
      kind: kindOf(state),
      coordinatorHolds: newestCheckpoint(state).version.id === target.id,
      ...(state.members.get(id)?.drifted === true ? { anew: true as const } : {}),
    })
  }
}

/**
 * What leads to the target: the records since the committed version, or since what a member holds that is a little
 * behind it (R7).
 */
function wayFrom(
  { chain }: RunState,
  claim: Claim | null | undefined,
  decided: readonly StepRecord[],
): Pick<MessageTo<'form'>, 'committed' | 'records'> {
  const held = claim ? fold(claim.base, claim.records) : undefined
  const behind = held === undefined ? 0 : chain.head.v - held.v
  if (held === undefined || behind <= 0 || behind > REPLAYED || !chain.has(held))
    return { committed: chain.head, records: [...decided] }
  return { committed: held, records: [...chain.since(held.v), ...decided] }
}

/** H and mode change at the borders of rounds only, which ballots are (A7). */
function chooseRingMode(transition: Transition): void {
  const { state, now } = transition
  const { mode, reason } = nextMode(now, state.health, state.mode, state.config)
  if (mode === state.mode || mode === 'async' || state.mode === 'async') return
  transition.journal({ type: 'mode', mode, modeEpoch: state.modeEpoch + 1, reason })
  transition.note('mode', `${mode === 'local' ? 'local rounds' : 'ring'}: ${reason}`)
}

/** What the records of a ring are: one global batch each, or rounds of inner steps. */
export function kindOf({ mode }: RunState): 'ring' | 'round' {
  return mode === 'local' ? 'round' : 'ring'
}

/** R7, R8: the generation starts when all its members hold the target whole. */
function onConfirm(transition: Transition, member: MemberId, { version, digest }: MessageFrom<'confirm'>): void {
  const { state } = transition
  const { phase } = state
  if (phase.type !== 'form' || !phase.members.includes(member)) return
  if (version.id !== phase.target.id)
    return transition.refuse(
      member,
      'message-unexpected',
      `expected version ${phase.target.v} to be confirmed, got ${version.v}`,
    )
  if (!phase.confirmed.has(member)) phase.lastConfirmAt = transition.now
  phase.confirmed.set(member, digest)
  if (phase.confirmed.size < phase.members.length) return
  if (agrees(transition, phase)) start(transition, phase)
}

/** CONFIRM of all is there: the checkpoint's digest is right where there is one; otherwise all say the same. */
function agrees(transition: Transition, phase: FormPhase): boolean {
  const { state } = transition
  const checkpoint = newestCheckpoint(state)
  const { version, blob } = checkpoint
  if (version.id === phase.target.id && blob !== undefined && doubtersOf(state, checkpoint).length === 0) {
    const { few } = agreementWith(blob, phase.confirmed)
    if (few.length > 0) sendBack(transition, phase, few)
    return few.length === 0
  }
  if (new Set(phase.confirmed.values()).size === 1) return true
  settleConfirm(transition, phase)
  return false
}

/** Members confirm different states: the true one decides; or many against few, where it cannot be derived. */
function settleConfirm(transition: Transition, phase: FormPhase): void {
  const { target, records, confirmed } = phase
  const agreement = judge(transition, { version: target, records, said: confirmed })
  if (agreement === undefined)
    return transition.reason(`members confirm different states of version ${target.v}: it is derived`)
  const isTrue = isDerived(transition.state, target, agreement.digest)
  if (isTrue || (agreement.isClear && agreement.most.length >= PROVEN_BY)) sendBack(transition, phase, agreement.few)
  else onUndecided(transition, phase, agreement)
}

/** All confirmed, and the state of the target was waited for. */
function reconsiderConfirm(transition: Transition): void {
  const { phase } = transition.state
  if (phase.type !== 'form' || phase.confirmed.size < phase.members.length) return
  if (agrees(transition, phase)) start(transition, phase)
}

/** Members that agree against others, so that no rewind is needed to tell who is right. */
const PROVEN_BY = 3

/** They fetch the state of the others, or the coordinator's; no member is expelled for what others report. */
function sendBack(transition: Transition, phase: FormPhase, wrong: readonly MemberId[]): void {
  const what = `state of version ${phase.target.v}`
  transition.note('refusal', `${namesOf(transition.state, wrong)} held another ${what}`)
  differed(transition, wrong, { what, leaveOut: false })
  transition.enqueue({ type: 'ballot', reason: `${wrong.length} member(s) held another ${what}`, trouble: true })
}

/**
 * A tie, or one against two: votes do not show which member is right. So all go back to the last version that two
 * members vouched for, where the checkpoint's digest decides. A member that differs again waits outside for a while: of
 * two sides as strong, who came last.
 */
function onUndecided(transition: Transition, phase: FormPhase, { most, few, isClear }: Agreement): void {
  const { state } = transition
  const all = isClear ? few : [...most, ...few]
  const what = `state of version ${phase.target.v}`
  const reason = `${namesOf(state, [...most, ...few])} hold a different ${what}`
  transition.note('refusal', `${reason}: ${namesOf(state, few)} against ${namesOf(state, most)}`)
  const again = all.filter((id) => (state.members.get(id)?.differed ?? 0) > 0)
  const last = isClear ? undefined : latecomer(state, again.length > 1 || phase.target.v === 0 ? all : [])
  for (const id of isClear ? again : [last ?? []].flat()) exclude(transition, id, `its ${what} differed again`)
  for (const id of all) {
    const member = state.members.get(id)
    if (member !== undefined) member.differed++
  }
  for (const id of phase.members) {
    const member = state.members.get(id)
    if (member !== undefined) member.drifted = phase.target.v > 0
  }
  const to = lastWitnessed(state)
  if (to.version.v < state.chain.head.v) return rewind(transition, reason, { to, final: true })
  // uncommitted steps cannot come back either
  if (to.version.id !== phase.target.id)
    transition.journal({ type: 'rewind', to: to.version, final: true, generation: state.generation })
  transition.enqueue({ type: 'ballot', reason, trouble: true })
}

/** R8: one append commits what the members hold and starts the generation; nothing was committed before. */
function start(transition: Transition, phase: FormPhase): void {
  const { state } = transition
  const { members, target, records } = phase
  transition.journal({ type: 'start', generation: state.generation, members, records })
  for (const id of members) mended(state, id)
  transition.tell(({ started }) => started?.(transition, members))
  const plan = keepLearned(enterRing(transition, phase), phase, kindOf(state))
  transition.note('generation', `generation ${state.generation} of ${members.length} starts at version ${target.v}`)
  transition.broadcast(members, { type: 'start', ...transition.ballot, after: target, plan })
  transition.enqueue({ type: 'advance' })
}

function mended({ members }: RunState, id: MemberId): void {
  const member = members.get(id)
  if (member !== undefined) member.drifted = false
}

/**
 * A7: a round that is tried again from the same version leaves with each member what it learned from. A block that two
 * name, with the first.
 */
export function keepLearned(
  plan: readonly PlanStep[],
  { members, target, consumed }: Pick<FormPhase, 'members' | 'target' | 'consumed'>,
  kind: 'ring' | 'round',
): PlanStep[] {
  const [first, ...later] = plan
  const learned = members.map((id) => (consumed.get(id)?.base.id === target.id ? (consumed.get(id)?.blocks ?? []) : []))
  if (first === undefined || kind !== 'round' || learned.every((blocks) => blocks.length === 0)) return [...plan]
  const free = new Set(first.blocks)
  const kept = learned.map((blocks) => blocks.filter((block) => free.delete(block)))
  return [{ ...first, kept }, ...later]
}

/**
 * The phase of a running generation; returns its first plan: nothing while a validation is due, which comes before the
 * next epoch.
 */
function enterRing(
  transition: Transition,
  { members, relayed, exchange, weights }: Pick<FormPhase, 'members' | 'relayed' | 'exchange' | 'weights'>,
): PlanStep[] {
  const { state, now } = transition
  const { v } = state.chain.head
  const plan = validationDue(state)
    ? []
    : nextSteps(transition, { planned: new Map(), scalings: new Map(), plannedTo: v })
  const planned = new Map(plan.map(({ step, blocks }) => [step, blocks]))
  const scalings = new Map(plan.flatMap(({ step, scaling }) => (scaling ? [[step, scaling] as const] : [])))
  state.health.pace = undefined
  state.heldBefore = new Map()
  state.phase = {
    type: 'ring',
    since: now,
    members,
    relayed,
    exchange,
    weights,
    planWeights: new Map(),
    held: new Map(),
    plannedTo: v + plan.length,
    ackedTo: v,
    planned,
    scalings,
    progressAt: now,
    lastStep: undefined,
  }
  transition.reason(`${exchange.type} of ${members.length}`)
  return plan
}
