// A straggler costs a bounded delay: blocks of the running step that its member has not begun go to members that are
// ahead. The order is: ask all members (hold) → decide → donors answer what they gave up (released) → all get the new
// division (moved). A block changes members only after the answer of the one that had it, so it never has two
// contributors (R12). Nothing here has a deadline that gives a block away: who does not answer is dead for the ring,
// and a ballot follows (R2).
import {
  type BlockId,
  type MemberId,
  type MessageFrom,
  type AssignmentMove,
  assignmentsAfter,
  splitBlocks,
} from '@starling-grid/protocol'
import { own, type RingPhase, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'

/** How far a member is with a step. */
export interface AssignmentProgress {
  /** it will not contribute before it is told more */
  readonly open: boolean
  /** blocks not begun */
  readonly left: number
  /** ms that one takes; 0: not known yet */
  readonly blockMs: number
}

declare module '../state.ts' {
  interface Slices {
    rebalance: Rebalance
  }
}

/** Of the running generation. */
export interface Rebalance {
  /** blocks on their way from one member to another within a step, and the last round's number */
  moving: RebalanceRound | undefined
  round: number
  /** step → what moved */
  readonly moved: Map<number, { readonly rounds: number; readonly moves: readonly AssignmentMove[] }>
  /** members that others took blocks of: told once */
  readonly helped: Set<MemberId>
}

const anew = (): Rebalance => ({ moving: undefined, round: 0, moved: new Map(), helped: new Set() })

/** One round of moves within a step. */
interface RebalanceRound {
  readonly step: number
  readonly round: number
  readonly since: number
  readonly answers: Map<MemberId, AssignmentProgress>
  /** undefined: still asking. By places in the ring */
  transfers: readonly Transfer[] | undefined
  readonly released: Map<number, readonly BlockId[]>
}

export interface Transfer {
  readonly from: number
  readonly to: number
  readonly count: number
}

/** ms after which those who did not say how far they are take no part: two round trips around the world */
const ANSWER_MS = 600
/** Rounds of one step: a member that gets slower and slower must not keep the others asking. */
const MAX_ROUNDS = 8

export const rebalance = {
  initial: () => ({ rebalance: anew() }),
  hear: { behind: onBehind, 'rebalance-progress': onProgress, 'rebalance-released': onReleased },
  tick: movesTick,
  started: ({ state }) => void Object.assign(own(state, 'rebalance'), anew()),
  committed: ({ state }) => {
    const { moved } = own(state, 'rebalance')
    for (const step of moved.keys()) if (step <= state.chain.head.v) moved.delete(step)
  },
} satisfies Aspect

/** A member expects to need much longer than planned. */
function onBehind(transition: Transition, member: MemberId, { step }: MessageFrom<'behind'>): void {
  const { phase, chain } = transition.state
  if (transition.state.mode === 'local') return // a round is long, and its inner steps keep their blocks (A7)
  if (phase.type !== 'ring' || phase.members.length < 2 || !phase.members.includes(member)) return
  const rebalance = own(transition.state, 'rebalance')
  const busy = rebalance.moving !== undefined && rebalance.moving.step > chain.head.v
  if (busy || step <= chain.head.v || !phase.planned.has(step)) return
  const earlier = rebalance.moved.get(step) ?? { rounds: 0, moves: [] }
  if (earlier.rounds >= MAX_ROUNDS) return
  rebalance.moved.set(step, { ...earlier, rounds: earlier.rounds + 1 })
  rebalance.moving = {
    step,
    round: ++rebalance.round,
    since: transition.now,
    answers: new Map(),
    transfers: undefined,
    released: new Map(),
  }
  transition.broadcast(phase.members, { type: 'rebalance', ...transition.ballot, step, round: rebalance.round })
}

function onProgress(
  transition: Transition,
  member: MemberId,
  { step, round, open, left, blockMs }: MessageFrom<'rebalance-progress'>,
): void {
  const { phase } = transition.state
  const moving = roundOf(transition, { step, round })
  if (
    phase.type !== 'ring' ||
    moving === undefined ||
    moving.transfers !== undefined ||
    !phase.members.includes(member)
  )
    return
  moving.answers.set(member, { open, left, blockMs })
  if (moving.answers.size === phase.members.length) askForBlocks(transition, phase, moving)
}

/** Who did not answer in time neither gives nor gets, and is let go with the others. */
function movesTick(transition: Transition): void {
  const { phase } = transition.state
  const rebalance = own(transition.state, 'rebalance')
  const { moving } = rebalance
  if (phase.type !== 'ring' || moving === undefined) return
  if (moving.step <= transition.state.chain.head.v) rebalance.moving = undefined
  else if (moving.transfers === undefined && transition.now - moving.since >= ANSWER_MS)
    askForBlocks(transition, phase, moving)
}

function askForBlocks(transition: Transition, phase: RingPhase, moving: RebalanceRound): void {
  const transfers = planTransfers(phase.members.map((id) => moving.answers.get(id)))
  moving.transfers = transfers
  if (transfers.length === 0) return tellMoves(transition, phase, moving)
  for (const from of donors(transfers)) {
    const count = transfers.reduce((sum, transfer) => sum + (transfer.from === from ? transfer.count : 0), 0)
    const donor = phase.members[from]
    if (donor !== undefined)
      transition.send(donor, {
        type: 'rebalance-release',
        ...transition.ballot,
        step: moving.step,
        round: moving.round,
        count,
      })
  }
}

function donors(transfers: readonly Transfer[]): number[] {
  return [...new Set(transfers.map(({ from }) => from))]
}

function onReleased(
  transition: Transition,
  member: MemberId,
  { step, round, blocks }: MessageFrom<'rebalance-released'>,
): void {
  const { phase } = transition.state
  const moving = roundOf(transition, { step, round })
  if (phase.type !== 'ring' || moving?.transfers === undefined) return
  const from = phase.members.indexOf(member)
  const asked = moving.transfers.reduce((sum, transfer) => sum + (transfer.from === from ? transfer.count : 0), 0)
  if (asked === 0 || moving.released.has(from)) return
  const assigned = assignmentOf(transition.state, phase, step, from)
  const honest =
    blocks.length <= asked &&
    new Set(blocks).size === blocks.length &&
    blocks.every((block) => assigned.includes(block))
  if (!honest)
    transition.refuse(
      member,
      'message-unexpected',
      `step ${step}: only blocks of your own assignment can be released, ${asked} at most`,
    )
  moving.released.set(from, honest ? blocks : [])
  if (moving.released.size === donors(moving.transfers).length) tellMoves(transition, phase, moving)
}

/** Members that were asked for blocks and do not answer: all wait for them. */
export function muteDonors({ rebalance: { moving } }: RunState, { members }: RingPhase): MemberId[] {
  if (moving?.transfers === undefined) return []
  return donors(moving.transfers).flatMap((rank) => (moving.released.has(rank) ? [] : (members[rank] ?? [])))
}

function roundOf(
  { state }: Transition,
  { step, round }: { readonly step: number; readonly round: number },
): RebalanceRound | undefined {
  const { moving } = own(state, 'rebalance')
  return state.phase.type === 'ring' && moving?.step === step && moving.round === round ? moving : undefined
}

function assignmentOf({ rebalance }: RunState, phase: RingPhase, step: number, rank: number): readonly BlockId[] {
  const assignments = splitBlocks(phase.planned.get(step) ?? [], phase.planWeights.get(step) ?? phase.weights)
  return assignmentsAfter(assignments, rebalance.moved.get(step)?.moves ?? [])[rank] ?? []
}

/** The end of a round: members that held back continue, with more blocks or without. */
function tellMoves(
  transition: Transition,
  phase: RingPhase,
  { step, round, transfers = [], released }: RebalanceRound,
): void {
  const moves = movesOf(transfers, released)
  const rebalance = own(transition.state, 'rebalance')
  const earlier = rebalance.moved.get(step) ?? { rounds: 1, moves: [] }
  rebalance.moved.set(step, { ...earlier, moves: [...earlier.moves, ...moves] })
  rebalance.moving = undefined
  transition.broadcast(phase.members, { type: 'rebalance-done', ...transition.ballot, step, round, moves })
  noteFirst(transition, phase, moves)
}

/**
 * The blocks that were given up, to those who were to get them, in that order; less than was asked for goes to the
 * first.
 */
function movesOf(transfers: readonly Transfer[], released: ReadonlyMap<number, readonly BlockId[]>): AssignmentMove[] {
  const left = new Map([...released].map(([from, blocks]) => [from, [...blocks]]))
  return transfers
    .map(({ from, to, count }) => ({ from, to, blocks: left.get(from)?.splice(0, count) ?? [] }))
    .filter(({ blocks }) => blocks.length > 0)
}

function noteFirst(transition: Transition, phase: RingPhase, moves: readonly AssignmentMove[]): void {
  for (const from of new Set(moves.map((move) => move.from))) {
    const donor = phase.members[from]
    const { helped } = own(transition.state, 'rebalance')
    if (donor === undefined || helped.has(donor)) continue
    helped.add(donor)
    transition.note(
      'generation',
      `${transition.state.members.get(donor)?.name ?? donor} is slower than planned: ` +
        'others take blocks of its assignment',
    )
  }
}

/**
 * Which member gives how many blocks to which, so that all are done about the same time. Block by block, the member
 * that would be last gives to the one that would have done it first, as long as that is earlier. `progress` by rank;
 * who did not answer, or contributed already, takes no part.
 */
export function planTransfers(progress: readonly (AssignmentProgress | undefined)[]): Transfer[] {
  const measured = progress.flatMap((one) => (one !== undefined && one.blockMs > 0 ? [one.blockMs] : []))
  if (measured.length === 0) return []
  const usual = measured.reduce((sum, ms) => sum + ms, 0) / measured.length
  // each member has a block under way; its remaining part is unknown, so it counts whole
  const members = progress.flatMap((one, rank) =>
    one?.open === true ? [{ rank, left: one.left, extra: 0, ms: one.blockMs > 0 ? one.blockMs : usual }] : [],
  )
  const end = ({ left, extra, ms }: (typeof members)[number]): number => (1 + left + extra) * ms
  const transfers = new Map<string, Transfer>()
  for (;;) {
    const from = members
      .filter(({ left }) => left > 0)
      .reduce<(typeof members)[number] | undefined>(
        (last, one) => (last === undefined || end(one) > end(last) ? one : last),
        undefined,
      )
    const to = members
      .filter((one) => one !== from)
      .reduce<(typeof members)[number] | undefined>(
        (first, one) => (first === undefined || end(one) + one.ms < end(first) + first.ms ? one : first),
        undefined,
      )
    if (from === undefined || to === undefined || end(to) + to.ms >= end(from)) return [...transfers.values()]
    from.left--
    to.extra++
    const name = `${from.rank} ${to.rank}`
    transfers.set(name, { from: from.rank, to: to.rank, count: (transfers.get(name)?.count ?? 0) + 1 })
  }
}
