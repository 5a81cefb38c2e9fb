// A straggler costs a bounded delay: blocks of the running step that its member has not begun go to members that are
// ahead. ask all members (hold) → decide → givers answer what they gave up (released) → all get the new division
// (moved). A block changes members only after the answer of the one that had it, so it never has two contributors
// (R12). Nothing here has a deadline that gives a block away: who does not answer is dead for the ring, and a ballot
// follows (R2).
import {
  type BlockId,
  type MemberId,
  type MessageFrom,
  type ShareMove,
  sharesAfter,
  splitBlocks,
} from '@starling-grid/protocol'
import type { RunPhase } from './state.ts'
import type { Turn } from './turn.ts'

type Ring = Extract<RunPhase, { type: 'ring' }>

/** How far a member is with a step. */
export interface ShareProgress {
  /** it will not contribute before it hears more */
  readonly open: boolean
  /** blocks not begun */
  readonly left: number
  /** ms that one takes; 0: not known yet */
  readonly blockMs: number
}

/** One round of moves within a step. */
export interface MoveRound {
  readonly step: number
  readonly round: number
  readonly since: number
  readonly answers: Map<MemberId, ShareProgress>
  /** undefined: still asking. By places in the ring */
  gifts: readonly Gift[] | undefined
  readonly released: Map<number, readonly BlockId[]>
}

export interface Gift {
  readonly from: number
  readonly to: number
  readonly count: number
}

/** ms after which those who did not say how far they are take no part: two round trips around the world */
const ANSWER_MS = 600
/** Rounds of one step: a member that gets slower and slower must not keep the others asking. */
const MAX_ROUNDS = 8

/** A member expects to need much longer than planned. */
export function memberBehind(turn: Turn, member: MemberId, { step }: MessageFrom<'behind'>): void {
  const { phase, chain } = turn.state
  if (turn.state.mode === 'local') return // a round is long, and what inner steps learned from stays with them (A7)
  if (phase.type !== 'ring' || phase.members.length < 2 || !phase.members.includes(member)) return
  const busy = phase.moving !== undefined && phase.moving.step > chain.head.v
  if (busy || step <= chain.head.v || !phase.planned.has(step)) return
  const earlier = phase.moved.get(step) ?? { rounds: 0, moves: [] }
  if (earlier.rounds >= MAX_ROUNDS) return
  phase.moved.set(step, { ...earlier, rounds: earlier.rounds + 1 })
  phase.moving = {
    step,
    round: ++phase.round,
    since: turn.now,
    answers: new Map(),
    gifts: undefined,
    released: new Map(),
  }
  turn.broadcast(phase.members, { type: 'hold', ...turn.ballot, step, round: phase.round })
}

export function progressTold(
  turn: Turn,
  member: MemberId,
  { step, round, open, left, blockMs }: MessageFrom<'progress'>,
): void {
  const { phase } = turn.state
  const moving = roundOf(turn, { step, round })
  if (phase.type !== 'ring' || moving === undefined || moving.gifts !== undefined || !phase.members.includes(member))
    return
  moving.answers.set(member, { open, left, blockMs })
  if (moving.answers.size === phase.members.length) askForBlocks(turn, phase, moving)
}

/** Who did not answer in time neither gives nor gets, and is let go with the others. */
export function movesTick(turn: Turn, phase: Ring): void {
  const { moving } = phase
  if (moving === undefined) return
  if (moving.step <= turn.state.chain.head.v) phase.moving = undefined
  else if (moving.gifts === undefined && turn.now - moving.since >= ANSWER_MS) askForBlocks(turn, phase, moving)
}

function askForBlocks(turn: Turn, phase: Ring, moving: MoveRound): void {
  const gifts = chooseGifts(phase.members.map((id) => moving.answers.get(id)))
  moving.gifts = gifts
  if (gifts.length === 0) return tellMoves(turn, phase, moving)
  for (const from of givers(gifts)) {
    const count = gifts.reduce((sum, gift) => sum + (gift.from === from ? gift.count : 0), 0)
    const giver = phase.members[from]
    if (giver !== undefined)
      turn.send(giver, { type: 'release', ...turn.ballot, step: moving.step, round: moving.round, count })
  }
}

function givers(gifts: readonly Gift[]): number[] {
  return [...new Set(gifts.map(({ from }) => from))]
}

export function blocksReleased(turn: Turn, member: MemberId, { step, round, blocks }: MessageFrom<'released'>): void {
  const { phase } = turn.state
  const moving = roundOf(turn, { step, round })
  if (phase.type !== 'ring' || moving?.gifts === undefined) return
  const from = phase.members.indexOf(member)
  const asked = moving.gifts.reduce((sum, gift) => sum + (gift.from === from ? gift.count : 0), 0)
  if (asked === 0 || moving.released.has(from)) return
  const own = shareOf(phase, step, from)
  const honest =
    blocks.length <= asked && new Set(blocks).size === blocks.length && blocks.every((block) => own.includes(block))
  if (!honest)
    turn.refuse(
      member,
      'message-unexpected',
      `step ${step}: only blocks of your own share can be released, ${asked} at most`,
    )
  moving.released.set(from, honest ? blocks : [])
  if (moving.released.size === givers(moving.gifts).length) tellMoves(turn, phase, moving)
}

/** Members that were asked for blocks and do not answer: all wait for them. */
export function muteGivers({ members, moving }: Ring): MemberId[] {
  if (moving?.gifts === undefined) return []
  return givers(moving.gifts).flatMap((place) => (moving.released.has(place) ? [] : (members[place] ?? [])))
}

function roundOf(
  { state: { phase } }: Turn,
  { step, round }: { readonly step: number; readonly round: number },
): MoveRound | undefined {
  return phase.type === 'ring' && phase.moving?.step === step && phase.moving.round === round ? phase.moving : undefined
}

function shareOf(phase: Ring, step: number, place: number): readonly BlockId[] {
  const shares = splitBlocks(phase.planned.get(step) ?? [], phase.planShares.get(step) ?? phase.shares)
  return sharesAfter(shares, phase.moved.get(step)?.moves ?? [])[place] ?? []
}

/** The end of a round: members that held back continue, with more blocks or without. */
function tellMoves(turn: Turn, phase: Ring, { step, round, gifts = [], released }: MoveRound): void {
  const moves = movesOf(gifts, released)
  const earlier = phase.moved.get(step) ?? { rounds: 1, moves: [] }
  phase.moved.set(step, { ...earlier, moves: [...earlier.moves, ...moves] })
  phase.moving = undefined
  turn.broadcast(phase.members, { type: 'moved', ...turn.ballot, step, round, moves })
  noteFirst(turn, phase, moves)
}

/**
 * The blocks that were given up, to those who were to get them, in that order; less than was asked for goes to the
 * first.
 */
function movesOf(gifts: readonly Gift[], released: ReadonlyMap<number, readonly BlockId[]>): ShareMove[] {
  const left = new Map([...released].map(([from, blocks]) => [from, [...blocks]]))
  return gifts
    .map(({ from, to, count }) => ({ from, to, blocks: left.get(from)?.splice(0, count) ?? [] }))
    .filter(({ blocks }) => blocks.length > 0)
}

function noteFirst(turn: Turn, phase: Ring, moves: readonly ShareMove[]): void {
  for (const from of new Set(moves.map((move) => move.from))) {
    const giver = phase.members[from]
    if (giver === undefined || phase.helped.has(giver)) continue
    phase.helped.add(giver)
    turn.note(
      'generation',
      `${turn.state.members.get(giver)?.name ?? giver} is slower than planned: others take blocks of its share`,
    )
  }
}

/**
 * Which member gives how many blocks to which, so that all are done about the same time: one block after the other goes
 * from the member that would be last to the one that would have done it first, as long as that is earlier. `progress`
 * by place in the ring; who did not answer, or contributed already, takes no part.
 */
export function chooseGifts(progress: readonly (ShareProgress | undefined)[]): Gift[] {
  const known = progress.flatMap((one) => (one !== undefined && one.blockMs > 0 ? [one.blockMs] : []))
  if (known.length === 0) return []
  const usual = known.reduce((sum, ms) => sum + ms, 0) / known.length
  // each member has a block under way; its remaining part is unknown, so it counts whole
  const members = progress.flatMap((one, place) =>
    one?.open === true ? [{ place, left: one.left, extra: 0, ms: one.blockMs > 0 ? one.blockMs : usual }] : [],
  )
  const end = ({ left, extra, ms }: (typeof members)[number]): number => (1 + left + extra) * ms
  const gifts = new Map<string, Gift>()
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
    if (from === undefined || to === undefined || end(to) + to.ms >= end(from)) return [...gifts.values()]
    from.left--
    to.extra++
    const name = `${from.place} ${to.place}`
    gifts.set(name, { from: from.place, to: to.place, count: (gifts.get(name)?.count ?? 0) + 1 })
  }
}
