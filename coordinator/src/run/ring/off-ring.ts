// Off-ring members of a ring (A1): members that cannot be in it (R17 left them out) compute leased blocks at the newest
// checkpoint and push Σ gradients here while the ring runs. The sum is given to one member of the ring, as part of its
// share of the next step that it can, and is kept until that step is on the chain or the generation closed. The ring
// stays the one writer (I8).
import {
  type BlockId,
  type ErrorCode,
  MAX_STEP_BLOCKS,
  type MemberId,
  type MessageFrom,
  type Push,
} from '@starling-grid/protocol'
import type { PushWeights } from '../../parameter-server/add-push.ts'
import { addToSum, emptySum, isTaken } from '../async/accumulator.ts'
import { dampingOf } from '../async/async-policy.ts'
import { askCheckpoint, nextCheckpointVersion } from '../history/checkpoints.ts'
import { lease, leaseMs } from '../history/validation.ts'
import { newestCheckpoint } from '../journal-replay.ts'
import { available } from '../queue/scheduler.ts'
import type { Member, RunInput, RunPhase, RunState } from '../state.ts'
import type { Transition } from '../transition.ts'
import { OFF_RING_BOUND, type PushNorms, weighPush } from './off-ring-norms.ts'

type Ring = Extract<RunPhase, { type: 'ring' }>

/** What a member of the ring was given to contribute. */
export interface OffRingSum {
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

export function guestsTick(transition: Transition, phase: Ring): void {
  const { state, now } = transition
  for (const [block, { deadline }] of state.leases) if (deadline < now) state.leases.delete(block)
  const offRingMembers = [...state.members.values()].filter((member) => isOffRing(state, member.id, now))
  for (const member of offRingMembers) invite(transition, member)
  if (offRingMembers.length > 0 && isSlow(state))
    grant(
      transition,
      phase,
      offRingMembers.filter((member) => member.awaitingLease),
    )
  give(transition, phase)
}

/** Once in each generation: from then on it asks for leases, as in async mode. */
function invite(transition: Transition, member: Member): void {
  const { state } = transition
  if (member.invitedGeneration === state.generation) return
  member.invitedGeneration = state.generation
  member.awaitingLease = false
  transition.send(member.id, { type: 'async', ...transition.ballot, modeEpoch: state.modeEpoch })
}

function isSlow({ health: { pace } }: RunState): boolean {
  return pace !== undefined && pace.recordMs >= SLOW_STEP_MS
}

function grant(transition: Transition, phase: Ring, awaitingLease: readonly Member[]): void {
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
    const leases = lease(transition, member.id, blocks, state.leases)
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
function nextLease(state: RunState, phase: Ring): BlockId[] {
  const { batchBlocks } = state.config
  const count = Math.max(1, Math.floor(batchBlocks / (phase.members.length + 1)))
  const planned = new Set([...phase.planned.values()].flat())
  const far = BATCHES_LEFT * batchBlocks + count
  const free = available(state, (block) => planned.has(block) || isOffRingBlock(state, block), far)
  return free.length < far ? [] : free.slice(0, count)
}

/** R12: with an off-ring member, or on its way into a step: no plan has it, and it is not leased again. */
export function isOffRingBlock(state: RunState, block: BlockId): boolean {
  return isTaken(state, block) || (!state.config.off.has('A1') && (state.given?.blocks.includes(block) ?? false))
}

/** A2 held. One by one, pushes are weighed against what is usual, and join what waits for the ring. */
export function onOffRingPush(
  transition: Transition,
  { push, gradDigest, norms }: Extract<RunInput, { type: 'push' }>,
): void {
  const { state } = transition
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
  const { offRingNorms, members } = transition.state
  for (const id of offRingNorms.keys()) if (!members.has(id)) offRingNorms.delete(id)
  const offRingMembers = [...members.keys()].filter((id) => isOffRing(transition.state, id, transition.now)).length
  const weights = weighPush(offRingNorms, author, norms, offRingMembers)
  const member = members.get(author)
  if (
    member === undefined ||
    weights === undefined ||
    Math.min(weights.gradient, weights.statistics) === 1 ||
    member.outlierNoted
  )
    return weights
  member.outlierNoted = true
  transition.note(
    'refusal',
    `${member.name}, an off-ring member, pushes more than others: what is above ${OFF_RING_BOUND} times the usual does not count`,
  )
  return weights
}

/** One sum at a time, to one member after the other. */
function give(transition: Transition, phase: Ring): void {
  const { state } = transition
  const { pushes, blocks } = state.open
  if (state.given !== undefined || pushes.length === 0 || phase.plannedTo - state.chain.head.v < STEPS_LEFT) return
  const total = (of: (push: Push) => number): number => pushes.reduce((sum, push) => sum + of(push), 0)
  const id = ++state.offRingSums
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
  state.given = { id, blocks: sum.blocks, to, known: new Set() }
  state.open = emptySum()
  transition.effect({ type: 'off-ring-give', id })
  transition.broadcast(phase.members, { type: 'off-ring', ...transition.ballot, ...sum, rank })
}

export function onOffRingKnown(transition: Transition, member: MemberId, { id }: MessageFrom<'off-ring-known'>): void {
  const { phase, given } = transition.state
  if (phase.type !== 'ring' || given?.id !== id || !phase.members.includes(member) || given.known.has(member)) return
  given.known.add(member)
  if (given.known.size === phase.members.length)
    transition.send(given.to, { type: 'off-ring-take', ...transition.ballot, id })
}

/**
 * The step that holds it is on the chain, or the generation closed without it: then its blocks are to be done again.
 */
export function settleGiven(transition: Transition, closed: boolean): void {
  const { state } = transition
  const [first] = state.given?.blocks ?? []
  if (first === undefined || !(closed || state.chain.isDone(first))) return
  state.given = undefined
  transition.effect({ type: 'off-ring-forget', open: false })
}

/** Blocks that a record of the running generation may hold beyond its planned ones: all of these or none. */
export function givenBlocks({ given }: RunState): readonly BlockId[] {
  return given?.blocks ?? []
}

/**
 * Nothing is left to plan but what off-ring members have: it goes back. What a member was given already ends with the
 * generation.
 */
export function recallOffRing(transition: Transition): boolean {
  const { state } = transition
  if (state.leases.size + state.open.blocks.size === 0 && state.given === undefined) return false
  const wasGiven = state.given !== undefined
  forgetOffRing(transition)
  if (wasGiven)
    transition.enqueue({
      type: 'ballot',
      reason: 'the blocks of off-ring members were not taken into a step',
      trouble: false,
    })
  return !wasGiven
}

export function forgetOffRing(transition: Transition): void {
  const { state } = transition
  state.leases.clear()
  state.open = emptySum()
  state.given = undefined
  transition.effect({ type: 'off-ring-forget', open: true })
}
