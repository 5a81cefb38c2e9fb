// Async mode: leases of training blocks, and which pushes are taken (A2–A4).
import {
  type BlockId,
  crowdText,
  type ErrorCode,
  type LeaseToken,
  type MemberId,
  type MessageFrom,
  type Push,
  type PushHeader,
} from '@starling-grid/protocol'
import type { PushWeights } from '../../parameter-server/add-push.ts'
import type { PushNorms } from '../../parameter-server/norm-clip.ts'
import { proved } from '../ballot/proofs.ts'
import { crowdGainNow, crowdRateNow } from '../groups/crowd-rate.ts'
import { leftUndone, nextOfParts, type PartBlocks } from '../groups/data-parts.ts'
import {
  blocksOfRound,
  expected,
  hasRounds,
  innerSteps,
  isWaitingForItsVersion,
  roundMs,
  stepsIn,
} from '../groups/group-rounds.ts'
import { measureExchange, roundsInWords } from '../groups/round-length.ts'
import { giveSources, noteUnserved } from '../groups/version-sources.ts'
import { encodingNow } from '../policy/encoding-now.ts'
import { lease, leaseMs, releaseAll, takeBack } from '../queue/lease-table.ts'
import { canCompute, onBlockComputed, onBlockFailed, onBlockLate, TRY_GAP_MS } from '../queue/quarantine.ts'
import { currentEpoch, trainingIsOver, unitOf } from '../queue/scheduler.ts'
import { worked } from '../ring/inert.ts'
import { onMemberLost } from '../ring/membership.ts'
import { type Member, own, type RunInput, type RunState } from '../state.ts'
import { CROWD, CROWD_WORDS_MS } from '../timing.ts'
import type { Aspect, Transition } from '../transition.ts'
import {
  addToSum,
  blocksPerLease,
  freeBlocks,
  mayRunAhead,
  nothingFree,
  pushesPerVersion,
  takesOtherwise,
} from './accumulator.ts'
import { dampingOf } from './async-policy.ts'
import { contributed, crowdView } from './crowd.ts'
import { weighed, WITNESSES } from './push-norms.ts'
import { WorkQueue } from './work-queue.ts'

/** Refused pushes in a row after which a member gets no work for a while, and after which its session ends. */
const REFUSED_FOR_A_REST = 3
const REFUSED_FOR_THE_END = 6
/** weight of the newest measurement in the moving average of push times */
const NEWEST_WEIGHT = 0.3

declare module '../state.ts' {
  interface Slices {
    /** who asked for a lease, and perhaps got one since: thousands of others are not looked at */
    asked: WorkQueue
    /** what was said of the work last */
    words: { readonly at: number; readonly text: string }
  }
}

export const leases = {
  initial: () => ({ asked: new WorkQueue(), words: { at: Number.NEGATIVE_INFINITY, text: '' } }),
  on: {
    'coordinator-started': ({ state }) => {
      state.leaseEpoch = state.leasesReserved
    },
    push: onPush,
    'push-refused': onPushRefused,
  },
  hear: { 'lease-request': onLeaseRequest, 'gave-back': onGaveBack },
  holds: grantTraining,
  memberLost: ({ state }, member) => {
    releaseAll(state.leases, member)
    state.workers.delete(member.id)
    own(state, 'asked').served(member.id)
  },
  frozen: ({ state }) => {
    if (state.mode !== 'async') state.leases.clear() // off-ring members are asked anew
  },
} satisfies Aspect

/**
 * Left out of the ring for a while, and here. Rounds have no off-ring members: their assignments are no gradients (A7).
 */
export function isOffRing(state: RunState, id: MemberId, now: number): boolean {
  const member = state.members.get(id)
  return (
    state.phase.type === 'ring' &&
    state.mode === 'ring' &&
    member !== undefined &&
    member.excludedUntil > now &&
    !member.leaving &&
    !state.phase.members.includes(id)
  )
}

function onLeaseRequest(
  transition: Transition,
  member: MemberId,
  { modeEpoch, unserved = [] }: MessageFrom<'lease-request'>,
): void {
  const { state } = transition
  const holder = state.members.get(member)
  if (holder === undefined || (state.phase.type !== 'async' && !isOffRing(state, member, transition.now))) return
  if (modeEpoch !== state.modeEpoch)
    return transition.refuse(member, 'mode-stale', `mode epoch is ${state.modeEpoch}, got ${modeEpoch}`)
  // One grant at a time: who asks again without a push gave the last one up.
  if (releaseAll(state.leases, holder)) gaveUp(state, member)
  noteUnserved(state, member, unserved)
  holder.awaitingLease = true
  own(state, 'asked').add(member)
  transition.enqueue({ type: 'advance' })
}

/**
 * A member could not get what these blocks need: they are free at once, and the member is asked again later. Where its
 * inner steps became no number, there is nothing to push, and the blocks are as after a push of no numbers.
 */
function onGaveBack(transition: Transition, member: MemberId, gaveBack: MessageFrom<'gave-back'>): void {
  const { state } = transition
  const { leases, message } = gaveBack
  if (gaveBack.code === 'gradient-not-finite') return failedAll(transition, member, leases)
  const count = leases.filter((token) => takeBack(state.leases, member, token)).length
  if (count === 0) return
  gaveUp(state, member)
  transition.note('member', `${state.members.get(member)?.name ?? member} gave ${count} blocks back: ${message}`)
  transition.enqueue({ type: 'advance' })
}

/** Its next lease is longer, and no member waits for it until it pushes again. */
function gaveUp(state: RunState, id: MemberId): void {
  const member = state.members.get(id)
  state.workers.delete(id)
  if (member === undefined) return
  member.missedLeases++
  const { blocks = [], fetches = [] } = member.granted ?? {}
  leftUndone(state, id, { blocks, fetches }, 0)
}

/**
 * One lease for each hungry member, as long as blocks of this epoch are free and no member gets too far behind; the
 * reliable first.
 */
function grantTraining(transition: Transition): string | undefined {
  const { state } = transition
  if (state.phase.type !== 'async') return undefined
  if (trainingIsOver(state)) return state.phaseReason
  if (!grantAll(transition)) return 'parameter server: members wait for the slowest'
  return workNow(transition)
}

/** At the end of an epoch all of a crowd wait, and nothing is free: then none of them is looked at. */
function grantAll(transition: Transition): boolean {
  const { state } = transition
  own(state, 'asked').forgetServed()
  if (nothingFree(state) && mayRunAhead(state, stalenessBound(state))) return true
  return grantTo(transition, hungry(transition))
}

/** False: one of these has to wait, so that no member gets too far behind. */
function grantTo(transition: Transition, members: readonly Member[]): boolean {
  const { state } = transition
  const mayGrant = (): boolean => mayRunAhead(state, stalenessBound(state))
  if (members.length === 0) return true
  if (!mayGrant()) return false // before all that they want is looked up
  const wanted = wantedBy(transition, members)
  const mayTryIt = (block: BlockId, member: MemberId): boolean => mayTry(state, block, member, transition.now)
  const next =
    unitOf(state) > 1
      ? nextOfParts(state, { members, wanted, mayTry: mayTryIt })
      : nextInOrder(transition, members, wanted)
  const rate = crowdRateNow(state)
  for (const [i, member] of members.entries()) {
    if (i > 0 && !mayGrant()) return false
    const { blocks, fetches } = next(i)
    if (blocks.length === 0) continue
    member.awaitingLease = false
    own(state, 'asked').served(member.id)
    grant(transition, member, { blocks, fetches, rate })
  }
  return true
}

/** To look at all of a crowd at each of its pushes would cost more than the pushes. */
function workNow({ state, now }: Transition): string {
  const { at, text } = own(state, 'words')
  if (state.members.size >= CROWD && now - at < CROWD_WORDS_MS) return text
  const words = { at: now, text: workInWords(state) }
  Object.assign(own(state, 'words'), words)
  return words.text
}

function workInWords(state: RunState): string {
  const pushes = pushesPerVersion(state)
  const epoch = currentEpoch(state) + 1
  const crowd = crowdView(state)
  const surplus = crowd === undefined ? '' : `; ${crowdText(crowd, state.members.size)}`
  if (hasRounds(state))
    return (
      `replica groups: epoch ${epoch}, rounds of about ${innerSteps(state)} inner steps${roundsInWords(state)}; ` +
      `${expected(state)} under way, ${pushes} make a version${surplus}`
    )
  return (
    `parameter server: epoch ${epoch}, ${state.leases.size} blocks ` +
    `leased${pushes === 1 ? '' : `, ${pushes} pushes a version`}${surplus}`
  )
}

/**
 * Who gets blocks now: the reliable first, then who asked first. In a run of groups those of an open version wait until
 * it is made.
 */
function hungry({ state, now }: Transition): Member[] {
  const waits = state.config.async.groups === undefined ? () => false : isWaitingForItsVersion(state)
  const asked = own(state, 'asked')
  const found: Member[] = []
  for (const id of asked.whileOpen(state.open.fresh)) {
    const member = state.members.get(id)
    if (member?.awaitingLease !== true) asked.served(id)
    else if (waits(member)) asked.park(id)
    else if (member.noWorkUntil <= now) found.push(member)
  }
  return found.sort((a, b) => a.missedLeases - b.missedLeases)
}

/** Blocks for each. */
function wantedBy({ state, now }: Transition, members: readonly Member[]): readonly number[] {
  if (members.length === 0) return []
  if (hasRounds(state)) return blocksOfRound(state, members, now)
  const each = blocksPerLease(state)
  return members.map(() => each)
}

interface LeasedWork extends PartBlocks {
  /** factor of the inner learning rate; undefined: the job's rate */
  readonly rate: number | undefined
}

function grant(transition: Transition, member: Member, { blocks, fetches, rate }: LeasedWork): void {
  const { state } = transition
  const isRound = hasRounds(state)
  const usualMs = leaseMs(state, member.id)
  const deadlineMs = isRound
    ? Math.ceil(Math.min(state.config.timing.leaseMaxMs, Math.max(usualMs, roundMs(state, member, blocks.length))))
    : usualMs
  const leases = lease(transition, state.leases, { holder: member.id, blocks, ms: deadlineMs })
  const encoding = isRound ? encodingNow(state) : undefined
  if (member.granted !== undefined)
    member.granted = { ...member.granted, fetches, ...(encoding === undefined ? {} : { encoding }) }
  const sources = giveSources(state, member)
  // An offer that a source does not expect is refused.
  for (const source of sources) transition.send(source, { type: 'share-base', member: member.id })
  transition.send(member.id, {
    type: 'grant',
    ...transition.ballot,
    modeEpoch: state.modeEpoch,
    base: state.chain.head,
    leases,
    deadlineMs,
    ...(isRound ? { innerSteps: stepsIn(state, blocks.length), fromStep: batchesDone(state) } : {}),
    ...(isRound && rate !== undefined ? { rate } : {}),
    ...(encoding === undefined ? {} : { encoding }),
    ...(sources.length === 0 ? {} : { sources: [...sources] }),
  })
}

/** Global batches in the head. */
function batchesDone(state: RunState): number {
  const { blocks, batchBlocks } = state.config
  const epoch = currentEpoch(state)
  return Math.floor((epoch * blocks + state.chain.doneIn(epoch)) / batchBlocks)
}

function stalenessBound({ config }: RunState): number {
  return config.async.maxStaleness ?? config.timing.stalenessBound
}

/** What members who want so many can be given, in order: found once for all of them. */
function nextInOrder(
  transition: Transition,
  members: readonly Member[],
  wanted: readonly number[],
): (i: number) => PartBlocks {
  const { state } = transition
  const all = wanted.reduce((sum, count) => sum + count, 0) + state.aside.failures.size
  const free = freeBlocks(state, all)
  return (i) => ({
    blocks: nextLease(transition, members[i]?.id as MemberId, { free, max: wanted[i] ?? 1 }),
    fetches: [],
  })
}

interface FreeInOrder {
  readonly free: BlockId[]
  readonly max: number
}

/**
 * A block that was in a failed push is leased alone, so that only the culprit is set aside. It goes to another member,
 * where there is one that brings leases back, or to the same member after a while. What is returned leaves `free`.
 */
function nextLease({ state, now }: Transition, member: MemberId, { free, max }: FreeInOrder): BlockId[] {
  const { failures } = state.aside
  const first = free.findIndex((block) => mayTry(state, block, member, now))
  if (failures.has(free[first] ?? ('' as BlockId))) return free.splice(first, 1)
  if (failures.size === 0) return free.splice(0, max)
  const sound = free.filter((block) => !failures.has(block)).slice(0, max)
  for (const block of sound) free.splice(free.indexOf(block), 1)
  return sound
}

function mayTry(state: RunState, block: BlockId, member: MemberId, now: number): boolean {
  const by = state.aside.failures.get(block)
  const own = by?.get(member)
  if (by === undefined || own === undefined) return true
  const others = [...state.members.values()].filter((other) => works(state, other))
  return now - own.at >= TRY_GAP_MS && others.every(({ id }) => by.has(id))
}

/** It asks for leases, and brings them back. */
function works({ workers, leases }: RunState, { id, awaitingLease, missedLeases }: Member): boolean {
  const asked = awaitingLease || workers.has(id) || leases.holders().has(id)
  return asked && missedLeases === 0
}

type PushInput = Extract<RunInput, { type: 'push' }>

/** A2: a taken push joins the open sum, which becomes a version when it is due (A3). */
function onPush(transition: Transition, input: PushInput): void {
  const { state } = transition
  const { push, gradDigest } = input
  if (state.phase.type === 'ring' || !acceptPush(transition, push)) return
  if (input.norms?.gradient === 0 && push.targets > 0) return noWork(transition, push)
  measure(transition, push)
  if (input.norms === undefined) throw new Error('internal: a push that was not measured')
  const weights = weigh(transition, push.incarnation, input.norms)
  if (weights === undefined) {
    for (const { block } of push.leases) state.leases.delete(block)
    transition.effect({
      type: 'push-verdict',
      verdict: 'gradient-unproven',
      message: 'how large gradients are here is known when a second member has pushed',
    })
    return transition.enqueue({ type: 'advance' })
  }
  addToSum(transition, push, gradDigest)
  for (const { block } of push.leases) release(state, block)
  const member = state.members.get(push.incarnation)
  if (member !== undefined) releaseAll(state.leases, member) // of a round that was cut the rest is for others
  state.workers.add(push.incarnation)
  proved(state, push.incarnation)
  const { head } = state.chain
  const late = dampingOf(state.config.async, head.v - push.base.v)
  const damping = crowdGainNow(state) * weights.gradient * late
  contributed(state, { samples: push.samples, norm: input.norms.gradient, factor: damping })
  transition.effect({ type: 'server-add', base: push.base, targets: push.targets, damping })
  transition.effect({ type: 'push-verdict', verdict: 'received', message: `for version ${head.v + 1}` })
  transition.enqueue({ type: 'advance' })
}

/** False: it was refused (A2). */
export function acceptPush(transition: Transition, push: Push): boolean {
  const refusal = refusePush(transition, push)
  if (refusal !== undefined) transition.effect({ type: 'push-verdict', ...refusal })
  return refusal === undefined
}

/** Zeros move nothing: they are no work, and a block that makes them with one member goes to another. */
function noWork(transition: Transition, push: Push): void {
  const retry = isRetry(transition.state, push.incarnation, push.leases)
  for (const { block } of push.leases) fail(transition, block, push.incarnation)
  if (!retry) countRefused(transition, push.incarnation)
  transition.effect({
    type: 'push-verdict',
    verdict: 'gradient-outlier',
    message: 'a gradient of zeros alone is no work',
  })
  transition.enqueue({ type: 'advance' })
}

/**
 * Not further than is usual, and what is usual no single member decides, from the first push on; undefined: nothing is
 * known yet.
 */
function weigh(transition: Transition, id: MemberId, norms: PushNorms): PushWeights | undefined {
  const { members, leases, workers } = transition.state
  const isActive = (member: Member | undefined): boolean => member?.missedLeases === 0
  const active = new Set([id])
  // No more are looked at than weighing asks for: thousands may push in a second.
  for (const one of workers)
    if (active.size >= WITNESSES) break
    else if (isActive(members.get(one))) active.add(one)
  for (const { holder } of leases.values())
    if (active.size >= WITNESSES) break
    else if (isActive(members.get(holder))) active.add(holder)
  return weighed(transition, id, norms, active.size)
}

/** A2: mode epoch, lease epoch and holder match, nothing counted twice, the base on the chain and fresh enough. */
function refusePush({ state, now }: Transition, push: Push): PushRefusal | undefined {
  const refusal = pushRefusal(state, push, now)
  if (refusal !== undefined) return refusal
  if (push.samples === 0) return { verdict: 'message-malformed', message: 'a push holds at least one sample' }
  if (!state.chain.has(push.base) || state.chain.head.v - push.base.v > stalenessBound(state)) {
    for (const { block } of push.leases) release(state, block)
    return { verdict: 'base-stale', message: `version ${push.base.v} is too old: now at ${state.chain.head.v}` }
  }
  return undefined
}

export interface PushRefusal {
  readonly verdict: ErrorCode
  readonly message: string
}

/**
 * A2: what is known before the gradient is read: mode epoch, holders and lease epochs, and what is counted already.
 * Changes nothing.
 */
export function pushRefusal(state: RunState, push: Push, now: number): PushRefusal | undefined {
  if (state.phase.type !== 'async' && !isOffRing(state, push.incarnation, now))
    return { verdict: 'mode-stale', message: 'the run is not in async mode now' }
  if (push.modeEpoch !== state.modeEpoch)
    return { verdict: 'mode-stale', message: `mode epoch is ${state.modeEpoch}, got ${push.modeEpoch}` }
  const blocks = push.leases.map(({ block }) => block)
  if (
    new Set(blocks).size < blocks.length ||
    blocks.some((block) => state.chain.isDone(block) || state.open.blocks.has(block))
  )
    return { verdict: 'duplicate', message: 'a block of this push is already counted' }
  const stale = push.leases.find(({ block, leaseEpoch }) => !holds(state, push.incarnation, block, leaseEpoch))
  return stale && { verdict: 'lease-stale', message: `the lease of block ${stale.block} is no longer yours` }
}

/**
 * G1: a push is of a grant as a whole, or of the first blocks of a round that was cut. Undefined: this member
 * was granted another since, or the coordinator that granted it is gone.
 */
export function grantedPush(state: RunState, { leaseEpoch, blocks, ...push }: PushHeader): Push | undefined {
  const granted = state.members.get(push.incarnation)?.granted
  if (granted?.leaseEpoch !== leaseEpoch || granted.blocks.length < blocks) return undefined
  if (granted.blocks.length > blocks && !hasRounds(state)) return undefined
  return { leases: granted.blocks.slice(0, blocks).map((block) => ({ block, leaseEpoch })), ...push }
}

/** Of such a push. */
export const UNGRANTED: PushRefusal = { verdict: 'lease-stale', message: 'this lease is not known, or not any more' }

function holds(state: RunState, holder: MemberId, block: BlockId, leaseEpoch: number): boolean {
  const held = state.leases.get(block)
  return held !== undefined && held.holder === holder && held.leaseEpoch === leaseEpoch
}

function release(state: RunState, block: BlockId): void {
  state.leases.delete(block)
  onBlockComputed(state, block)
}

/** How long its work takes; it brought a lease back. */
export function measure(transition: Transition, push: Push): void {
  const member = transition.state.members.get(push.incarnation)
  const first = push.leases[0]
  const held = first === undefined ? undefined : transition.state.leases.get(first.block)
  if (member === undefined || held === undefined) return
  const took = transition.now - held.grantedAt
  worked(transition.state, push.incarnation, transition.now)
  member.missedLeases = 0
  member.refusedPushes = 0
  const { blocks = [], fetches = [] } = member.granted ?? {}
  if (blocks.length > push.leases.length) {
    leftUndone(transition.state, push.incarnation, { blocks, fetches }, push.leases.length)
    return // it says when it was cut
  }
  const computed = (1000 * push.samples) / Math.max(member.samplesPerSecond, 1e-3)
  if (fetches.length === 0) measureExchange(transition.state, took, computed)
  const before = member.pushMs
  member.pushMs = before === 0 ? took : (1 - NEWEST_WEIGHT) * before + NEWEST_WEIGHT * took
  takesOtherwise(transition.state, push.incarnation, { before, now: member.pushMs })
}

/** Refused for what it holds (NaN, wrong length): the blocks go back, and a block that keeps failing is set aside. */
function onPushRefused(transition: Transition, { push, code }: Extract<RunInput, { type: 'push-refused' }>): void {
  failedAll(transition, push.incarnation, push.leases)
  transition.refuse(push.incarnation, code, 'the push was refused')
}

function failedAll(transition: Transition, member: MemberId, leases: readonly LeaseToken[]): void {
  const { state } = transition
  const retry = isRetry(state, member, leases)
  for (const { block, leaseEpoch } of leases)
    if (holds(state, member, block, leaseEpoch)) fail(transition, block, member)
  if (!retry) countRefused(transition, member)
  transition.enqueue({ type: 'advance' })
}

export function expireLeases(transition: Transition): void {
  const { state, now } = transition
  const overdue = state.leases.overdue(now)
  const tried = new Map<MemberId, ReadonlySet<BlockId>>()
  for (const [, { holder }] of overdue) if (!tried.has(holder)) tried.set(holder, firstTried(state, holder))
  for (const id of tried.keys()) gaveUp(state, id)
  for (const [block, { holder }] of overdue) expire(transition, block, holder, tried.get(holder)?.has(block) === true)
}

/** Of a round those of its first inner step: with one that is made, a round is cut in time and pushed. */
function firstTried(state: RunState, holder: MemberId): ReadonlySet<BlockId> {
  const { blocks = [] } = state.members.get(holder)?.granted ?? {}
  return new Set(hasRounds(state) ? blocks.slice(0, state.config.batchBlocks) : blocks)
}

function expire(transition: Transition, block: BlockId, member: MemberId, isTried: boolean): void {
  transition.state.leases.delete(block)
  if (isTried) onBlockLate(transition, block, member)
}

/** The member tries a block again that it failed on: that says something of the block, and was asked of the member. */
function isRetry(state: RunState, member: MemberId, leases: readonly LeaseToken[]): boolean {
  const [only, ...others] = leases
  if (only === undefined || others.length > 0 || !canCompute(state, member)) return false
  return (state.aside.failures.get(only.block)?.get(member)?.times ?? 0) > 0
}

function fail(transition: Transition, block: BlockId, member: MemberId): void {
  transition.state.leases.delete(block)
  onBlockFailed(transition, block, member)
}

/** One member's failures cost that member its work, then its session, and no other member anything. */
function countRefused(transition: Transition, id: MemberId): void {
  const { state, now } = transition
  const member = state.members.get(id)
  if (member === undefined) return
  member.refusedPushes++
  if (member.refusedPushes >= REFUSED_FOR_THE_END) {
    onMemberLost(transition, id, { reason: `${member.refusedPushes} of its pushes in a row were refused` })
    return
  }
  if (member.refusedPushes < REFUSED_FOR_A_REST) return
  const { excludeMs } = state.config.timing
  member.noWorkUntil = now + excludeMs * 2 ** (member.refusedPushes - REFUSED_FOR_A_REST)
  transition.note(
    'member',
    `${member.name} gets no work for ${(member.noWorkUntil - now) / 1000} s: ` +
      `${member.refusedPushes} of its pushes in a row were refused`,
  )
}

/** A mode epoch ended: members without work ask again. */
export function forgetAsked(state: RunState): void {
  for (const member of state.members.values()) member.awaitingLease = false
  own(state, 'asked').allServed()
}
