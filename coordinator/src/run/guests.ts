// Guests of a ring (A1): members that cannot be in it (R17 left them out) compute leased blocks at the newest
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
import type { PushWeights } from '../parameter-server/add-push.ts'
import { addToSum, emptySum, isTaken } from './accumulator.ts'
import { dampingOf } from './async-policy.ts'
import { askCheckpoint, nextCheckpointVersion } from './checkpoints.ts'
import { GUEST_BOUND, type PushNorms, weighPush } from './guest-norms.ts'
import { newestCheckpoint } from './journal-replay.ts'
import { available } from './scheduler.ts'
import type { Member, RunInput, RunPhase, RunState } from './state.ts'
import type { Turn } from './turn.ts'
import { lease, leaseMs } from './validation.ts'

type Ring = Extract<RunPhase, { type: 'ring' }>

/** What a member of the ring was given to contribute. */
export interface GuestSum {
  readonly id: number
  readonly blocks: readonly BlockId[]
  readonly to: MemberId
  /** members that know of it: the others would take its blocks for a lie */
  readonly known: Set<MemberId>
}

/** ms that a step takes at least: a checkpoint for every few quicker ones would cost the ring more than guests bring */
const SLOW_STEP_MS = 250
/** ms between checkpoints that are made for guests */
const CHECKPOINT_MS = 5000
/** Of the staleness bound, what a base may be behind when work begins on it. */
const FRESH_SHARE = 0.5
/** Global batches that must be left beyond a guest's blocks: an epoch must not end with waiting for a guest. */
const BATCHES_LEFT = 4
/** Planned steps that must be left for the member that is given a sum to put it into one. */
const STEPS_LEFT = 4

/** Left out of the ring for a while, and here. Rounds have no guests: their shares are no gradients (A7). */
export function isGuest(state: RunState, id: MemberId, now: number): boolean {
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

export function guestsTick(turn: Turn, phase: Ring): void {
  const { state, now } = turn
  for (const [block, { deadline }] of state.leases) if (deadline < now) state.leases.delete(block)
  const guests = [...state.members.values()].filter((member) => isGuest(state, member.id, now))
  for (const member of guests) invite(turn, member)
  if (guests.length > 0 && isSlow(state))
    grant(
      turn,
      phase,
      guests.filter((member) => member.hungry),
    )
  give(turn, phase)
}

/** Once in each generation: from then on it asks for leases, as in async mode. */
function invite(turn: Turn, member: Member): void {
  const { state } = turn
  if (member.invitedIn === state.gen) return
  member.invitedIn = state.gen
  member.hungry = false
  turn.send(member.id, { type: 'async', ...turn.ballot, modeEpoch: state.modeEpoch })
}

function isSlow({ health: { pace } }: RunState): boolean {
  return pace !== undefined && pace.recordMs >= SLOW_STEP_MS
}

function grant(turn: Turn, phase: Ring, hungry: readonly Member[]): void {
  const { state, now } = turn
  if (hungry.length === 0) return
  const base = newestCheckpoint(state)
  const behind = state.chain.head.v - base.version.v
  const fresh = FRESH_SHARE * bound(state)
  if (behind > fresh / 2 && now - base.at >= CHECKPOINT_MS)
    askCheckpoint(turn, phase, nextCheckpointVersion(state, phase))
  if (behind > fresh) return
  for (const member of hungry) {
    const blocks = nextLease(state, phase)
    if (blocks.length === 0) return
    member.hungry = false
    const leases = lease(turn, member.id, blocks, state.leases)
    turn.send(member.id, {
      type: 'grant',
      ...turn.ballot,
      modeEpoch: state.modeEpoch,
      base: base.version,
      leases,
      deadlineMs: leaseMs(state, member.id),
      guest: true,
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
  const free = available(state, (block) => planned.has(block) || isGuestBlock(state, block), far)
  return free.length < far ? [] : free.slice(0, count)
}

/** R12: with a guest, or on its way into a step: no plan has it, and it is not leased again. */
export function isGuestBlock(state: RunState, block: BlockId): boolean {
  return isTaken(state, block) || (!state.config.off.has('A1') && (state.given?.blocks.includes(block) ?? false))
}

/** A2 held. One by one, pushes are weighed against what is usual, and join what waits for the ring. */
export function guestPushed(turn: Turn, { push, gradDigest, norms }: Extract<RunInput, { type: 'push' }>): void {
  const { state } = turn
  if (norms === undefined) throw new Error('internal: the push of a guest has no measured norms')
  const verdict = (code: 'received' | ErrorCode, message: string): void =>
    turn.effect({ type: 'push-verdict', verdict: code, message })
  if (state.open.blocks.size + push.leases.length > MAX_STEP_BLOCKS / 4)
    return verdict('rate-exceeded', 'the ring has not taken what came before yet')
  for (const { block } of push.leases) state.leases.delete(block)
  const weights = weigh(turn, push.incarnation, norms)
  if (weights === undefined)
    return verdict('gradient-unproven', 'how large gradients are here is known when a second guest has pushed')
  addToSum(turn, push, gradDigest)
  const damping = dampingOf(state.config.async, state.chain.head.v - push.base.v)
  turn.effect({ type: 'guest-add', weights: { ...weights, gradient: damping * weights.gradient } })
  verdict('received', 'for a step of the ring')
}

function weigh(turn: Turn, guest: MemberId, norms: PushNorms): PushWeights | undefined {
  const { guestNorms, members } = turn.state
  for (const id of guestNorms.keys()) if (!members.has(id)) guestNorms.delete(id)
  const guests = [...members.keys()].filter((id) => isGuest(turn.state, id, turn.now)).length
  const weights = weighPush(guestNorms, guest, norms, guests)
  const member = members.get(guest)
  if (
    member === undefined ||
    weights === undefined ||
    Math.min(weights.gradient, weights.statistics) === 1 ||
    member.outsized
  )
    return weights
  member.outsized = true
  turn.note(
    'refusal',
    `${member.name}, a guest, pushes more than others: what is above ${GUEST_BOUND} times the usual does not count`,
  )
  return weights
}

/** One sum at a time, to one member after the other. */
function give(turn: Turn, phase: Ring): void {
  const { state } = turn
  const { pushes, blocks } = state.open
  if (state.given !== undefined || pushes.length === 0 || phase.plannedTo - state.chain.head.v < STEPS_LEFT) return
  const total = (of: (push: Push) => number): number => pushes.reduce((sum, push) => sum + of(push), 0)
  const id = ++state.guestSums
  const place = id % phase.members.length
  const to = phase.members[place]
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
  turn.effect({ type: 'guest-give', id })
  turn.broadcast(phase.members, { type: 'guest', ...turn.ballot, ...sum, place })
}

export function guestKnown(turn: Turn, member: MemberId, { id }: MessageFrom<'guest-known'>): void {
  const { phase, given } = turn.state
  if (phase.type !== 'ring' || given?.id !== id || !phase.members.includes(member) || given.known.has(member)) return
  given.known.add(member)
  if (given.known.size === phase.members.length) turn.send(given.to, { type: 'guest-take', ...turn.ballot, id })
}

/**
 * The step that holds it is on the chain, or the generation closed without it: then its blocks are to be done again.
 */
export function settleGiven(turn: Turn, closed: boolean): void {
  const { state } = turn
  const [first] = state.given?.blocks ?? []
  if (first === undefined || !(closed || state.chain.isDone(first))) return
  state.given = undefined
  turn.effect({ type: 'guest-forget', open: false })
}

/** Blocks that a record of the running generation may hold beyond its planned ones: all of these or none. */
export function givenBlocks({ given }: RunState): readonly BlockId[] {
  return given?.blocks ?? []
}

/**
 * Nothing is left to plan but what guests have: it goes back. What a member was given already ends with the generation.
 */
export function recallGuests(turn: Turn): boolean {
  const { state } = turn
  if (state.leases.size + state.open.blocks.size === 0 && state.given === undefined) return false
  const wasGiven = state.given !== undefined
  forgetGuests(turn)
  if (wasGiven) turn.then({ type: 'ballot', reason: 'the blocks of guests were not taken into a step', trouble: false })
  return !wasGiven
}

export function forgetGuests(turn: Turn): void {
  const { state } = turn
  state.leases.clear()
  state.open = emptySum()
  state.given = undefined
  turn.effect({ type: 'guest-forget', open: true })
}
