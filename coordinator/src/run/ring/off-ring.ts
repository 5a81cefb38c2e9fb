// Off-ring members of a ring (A1): members that cannot be in it, because R17 left them out. They compute leased blocks
// at the newest checkpoint and push Σ gradients here while the ring runs. The sum is given to one member of the ring,
// as part of its assignment of the next step that can take it. It is kept until that step is on the chain or the
// generation closed. The ring stays the one writer (I8).
import { type BlockId, type ErrorCode, MAX_STEP_BLOCKS, type MemberId, type MessageFrom } from '@starling-grid/protocol'
import type { PushWeights } from '../../parameter-server/add-push.ts'
import type { PushNorms } from '../../parameter-server/norm-clip.ts'
import { addToSum, emptySum, isTaken } from '../async/accumulator.ts'
import { dampingOf } from '../async/async-policy.ts'
import { acceptPush, isOffRing, measure } from '../async/leases.ts'
import { PUSH_BOUND, weighed } from '../async/push-norms.ts'
import { askCheckpoint, nextCheckpointVersion } from '../history/checkpoints.ts'
import { newestCheckpoint } from '../journal-replay.ts'
import { lease, leaseMs } from '../queue/lease-table.ts'
import { available, currentEpoch, remaining } from '../queue/scheduler.ts'
import { type Member, own, type RingPhase, type RunInput, type RunState } from '../state.ts'
import type { Aspect, PlanLimits, Transition } from '../transition.ts'
import { learnAgain } from './learners.ts'

declare module '../state.ts' {
  interface Slices {
    offRing: OffRing
  }
}

export interface OffRing {
  /** what off-ring members computed and a member was given to contribute, and how many such sums there were (A1) */
  given: OffRingSum | undefined
  sums: number
  /** member → the generation in which it was asked to be an off-ring member */
  readonly invited: Map<MemberId, number>
  /** pushed more than counts: told once */
  readonly outliers: Set<MemberId>
}

/** What a member of the ring was given to contribute. */
interface OffRingSum {
  readonly id: number
  readonly blocks: readonly BlockId[]
  readonly to: MemberId
  /** members that know of it: the others would take its blocks for a lie */
  readonly known: Set<MemberId>
}

/**
 * ms that a step takes at least: a checkpoint for every few quicker ones would cost the ring more than off-ring members
 * bring
 */
const SLOW_STEP_MS = 250
/** ms between checkpoints that are made for off-ring members */
const CHECKPOINT_MS = 5000
/** Of the staleness bound, what a base may be behind when work begins on it. */
const FRESH_FRACTION = 0.5
/**
 * Global batches that must be left beyond an off-ring member's blocks: an epoch must not end with waiting for an
 * off-ring member.
 */
const BATCHES_LEFT = 4
/** Planned steps that must be left for the member that is given a sum to put it into one. */
const STEPS_LEFT = 4
/** Steps planned at least where off-ring members wait for blocks: enough to put what they bring into one. */
const LEAST_STEPS = 8
/**
 * What a plan may take of the rest of an epoch while off-ring members wait for blocks. A slow ring would take all of it
 * at once.
 */
const PLANNED_FRACTION = 0.5

const limits: PlanLimits = {
  isTaken: ({ offRing: { given } }, block) => given?.blocks.includes(block) ?? false,
  window: planWindow,
  beyond: ({ offRing: { given } }) => given?.blocks ?? [],
  recall: recallOffRing,
}

export const offRing = {
  initial: () => ({ offRing: { given: undefined, sums: 0, invited: new Map(), outliers: new Set() } }),
  on: { push: onOffRingPush },
  hear: { 'off-ring-known': onOffRingKnown },
  tick: offRingTick,
  memberLost: ({ state }, { id }) => {
    own(state, 'offRing').invited.delete(id)
    own(state, 'offRing').outliers.delete(id)
  },
  started: (transition) => settleGiven(transition, true),
  committed: (transition) => settleGiven(transition, false),
  rewound: forgetOffRing,
  plan: limits,
} satisfies Aspect

function offRingTick(transition: Transition): void {
  const { state, now } = transition
  const { phase } = state
  if (phase.type !== 'ring') return
  for (const [block, { deadline }] of state.leases) if (deadline < now) state.leases.delete(block)
  const offRingMembers = [...state.members.values()].filter((member) => isOffRing(state, member.id, now))
  for (const member of state.members.values()) recall(transition, phase, member)
  for (const member of offRingMembers) invite(transition, member)
  if (offRingMembers.length > 0 && isSlow(state))
    grant(
      transition,
      phase,
      offRingMembers.filter((member) => member.awaitingLease),
    )
  give(transition, phase)
}

/** Was it asked to be an off-ring member of this generation? */
function isInvited({ offRing, generation }: RunState, id: MemberId): boolean {
  return offRing.invited.get(id) === generation
}

/** It is left out no more. An off-ring member learns nothing, so it answers this ballot again (R3). */
function recall(transition: Transition, phase: RingPhase, member: Member): void {
  const { state, now } = transition
  const { id } = member
  if (!isInvited(state, id) || member.excludedUntil > now || phase.members.includes(id)) return
  own(state, 'offRing').invited.delete(id)
  learnAgain(state, id)
  transition.send(id, { type: 'freeze', ...transition.ballot, committed: state.chain.head.v })
}

/** Once in each generation: from then on it asks for leases, as in async mode. */
function invite(transition: Transition, member: Member): void {
  const { state } = transition
  if (isInvited(state, member.id)) return
  own(state, 'offRing').invited.set(member.id, state.generation)
  member.awaitingLease = false
  transition.send(member.id, { type: 'async', ...transition.ballot, modeEpoch: state.modeEpoch })
}

function isSlow({ health: { pace } }: RunState): boolean {
  return pace !== undefined && pace.recordMs >= SLOW_STEP_MS
}

function grant(transition: Transition, phase: RingPhase, awaitingLease: readonly Member[]): void {
  const { state, now } = transition
  if (awaitingLease.length === 0) return
  const base = newestCheckpoint(state)
  const behind = state.chain.head.v - base.version.v
  const fresh = FRESH_FRACTION * bound(state)
  if (behind > fresh / 2 && now - base.at >= CHECKPOINT_MS)
    askCheckpoint(transition, phase, nextCheckpointVersion(state, phase))
  if (behind > fresh) return
  for (const member of awaitingLease) {
    const blocks = nextLease(state, phase)
    if (blocks.length === 0) return
    member.awaitingLease = false
    const leases = lease(transition, state.leases, { holder: member.id, blocks })
    transition.send(member.id, {
      type: 'grant',
      ...transition.ballot,
      modeEpoch: state.modeEpoch,
      base: base.version,
      leases,
      deadlineMs: leaseMs(state, member.id),
      offRing: true,
    })
  }
}

function bound({ config }: RunState): number {
  return config.async.maxStaleness ?? config.timing.stalenessBound
}

/** As many as a member of the ring has, of what is not planned yet. */
function nextLease(state: RunState, phase: RingPhase): BlockId[] {
  const { batchBlocks } = state.config
  const count = Math.max(1, Math.floor(batchBlocks / (phase.members.length + 1)))
  const planned = new Set([...phase.planned.values()].flat())
  const far = BATCHES_LEFT * batchBlocks + count
  const free = available(state, (block) => planned.has(block) || isOffRingBlock(state, block), { max: far })
  return free.length < far ? [] : free.slice(0, count)
}

/** R12: with an off-ring member, or on its way into a step: no plan has it, and it is not leased again. */
function isOffRingBlock(state: RunState, block: BlockId): boolean {
  const { given } = state.offRing
  return isTaken(state, block) || (given?.blocks.includes(block) ?? false)
}

/** While off-ring members wait for blocks. */
function planWindow(state: RunState, window: number, now: number): number {
  const isWaiting = ({ excludedUntil, leaving }: Member): boolean => excludedUntil > now && !leaving
  if (state.mode !== 'ring' || ![...state.members.values()].some(isWaiting)) return window
  const left = remaining(state, currentEpoch(state)) / state.config.batchBlocks
  return Math.min(window, Math.max(LEAST_STEPS, Math.floor(PLANNED_FRACTION * left)))
}

/** A2 held (leases.ts). One by one, pushes are weighed against what is usual, and join what waits for the ring. */
function onOffRingPush(transition: Transition, { push, gradDigest, norms }: Extract<RunInput, { type: 'push' }>): void {
  const { state } = transition
  if (state.phase.type !== 'ring' || !acceptPush(transition, push)) return
  measure(transition, push)
  if (norms === undefined) throw new Error('internal: the push of an off-ring member has no measured norms')
  const verdict = (code: 'received' | ErrorCode, message: string): void =>
    transition.effect({ type: 'push-verdict', verdict: code, message })
  if (state.open.blocks.size + push.leases.length > MAX_STEP_BLOCKS / 4)
    return verdict('rate-exceeded', 'the ring has not taken what came before yet')
  for (const { block } of push.leases) state.leases.delete(block)
  const weights = weigh(transition, push.incarnation, norms)
  if (weights === undefined)
    return verdict(
      'gradient-unproven',
      'how large gradients are here is known when a second off-ring member has pushed',
    )
  addToSum(transition, push, gradDigest)
  const damping = dampingOf(state.config.async, state.chain.head.v - push.base.v)
  transition.effect({ type: 'off-ring-add', weights: { ...weights, gradient: damping * weights.gradient } })
  verdict('received', 'for a step of the ring')
}

function weigh(transition: Transition, author: MemberId, norms: PushNorms): PushWeights | undefined {
  const { members, offRing } = transition.state
  const offRingMembers = [...members.keys()].filter((id) => isOffRing(transition.state, id, transition.now)).length
  const weights = weighed(transition, author, norms, offRingMembers)
  const member = members.get(author)
  if (
    member === undefined ||
    weights === undefined ||
    Math.min(weights.gradient, weights.statistics) === 1 ||
    offRing.outliers.has(author)
  )
    return weights
  own(transition.state, 'offRing').outliers.add(author)
  transition.note(
    'refusal',
    `${member.name}, an off-ring member, pushes more than others: ` +
      `what is above ${PUSH_BOUND} times the usual does not count`,
  )
  return weights
}

/** One sum at a time, to one member after the other. */
function give(transition: Transition, phase: RingPhase): void {
  const { state } = transition
  const { pushes, blocks } = state.open
  const offRing = own(state, 'offRing')
  if (offRing.given !== undefined || pushes.length === 0 || phase.plannedTo - state.chain.head.v < STEPS_LEFT) return
  const total = (of: (push: (typeof pushes)[number]) => number): number =>
    pushes.reduce((sum, push) => sum + of(push), 0)
  const id = ++offRing.sums
  const rank = id % phase.members.length
  const to = phase.members[rank]
  if (to === undefined) return
  const sum = {
    id,
    blocks: [...blocks],
    samples: total((p) => p.samples),
    targets: total((p) => p.targets),
    lossSum: total((p) => p.lossSum),
    correct: total((p) => p.correct),
  }
  offRing.given = { id, blocks: sum.blocks, to, known: new Set() }
  emptySum(state)
  transition.effect({ type: 'off-ring-give', id })
  transition.broadcast(phase.members, { type: 'off-ring', ...transition.ballot, ...sum, rank })
}

function onOffRingKnown(transition: Transition, member: MemberId, { id }: MessageFrom<'off-ring-known'>): void {
  const { given } = own(transition.state, 'offRing')
  const { phase } = transition.state
  if (phase.type !== 'ring' || given?.id !== id || !phase.members.includes(member) || given.known.has(member)) return
  given.known.add(member)
  if (given.known.size === phase.members.length)
    transition.send(given.to, { type: 'off-ring-take', ...transition.ballot, id })
}

/**
 * The step that holds it is on the chain, or the generation closed without it: then its blocks are to be done again.
 */
function settleGiven(transition: Transition, closed: boolean): void {
  const { state } = transition
  const [first] = state.offRing.given?.blocks ?? []
  if (first === undefined || !(closed || state.chain.isDone(first))) return
  own(state, 'offRing').given = undefined
  transition.effect({ type: 'off-ring-forget', open: false })
}

/**
 * Nothing is left to plan but what off-ring members have: it goes back. What a member was given already ends with the
 * generation.
 */
function recallOffRing(transition: Transition): boolean {
  const { state } = transition
  const wasGiven = state.offRing.given !== undefined
  if (state.leases.size + state.open.blocks.size === 0 && !wasGiven) return false
  forget(transition)
  if (wasGiven)
    transition.enqueue({
      type: 'ballot',
      reason: 'the blocks of off-ring members were not taken into a step',
      trouble: false,
    })
  return !wasGiven
}

/** The ring's version goes back, or the parameter server takes over: what came from beside the ring is void. */
function forgetOffRing(transition: Transition, why: 'rewind' | 'async'): void {
  const { mode, open, offRing } = transition.state
  if (why === 'rewind' ? mode !== 'async' : open.pushes.length > 0 || offRing.given !== undefined) forget(transition)
}

function forget(transition: Transition): void {
  const { state } = transition
  state.leases.clear()
  emptySum(state)
  own(state, 'offRing').given = undefined
  transition.effect({ type: 'off-ring-forget', open: true })
}
