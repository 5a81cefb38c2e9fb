// Blocks that cannot be computed are set aside, visibly, and the run goes on without them. It happens when three
// different members failed on one, or when the coordinator finds the shard damaged on its own disk. Where fewer than
// three members work, all of them must have failed several times; the block comes back as soon as a further member
// works.
import {
  type BlockId,
  blockIndex,
  epochOf,
  type MemberId,
  type MessageFrom,
  trainingBlock,
  validationBlock,
} from '@starling-grid/protocol'
import { hasRounds } from '../groups/group-rounds.ts'
import { withdraw } from '../history/validation.ts'
import { own, type RunInput, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { blocksIn, currentEpoch, isIdle, isMostlySetAside } from './scheduler.ts'

/** Different members that a block must fail with. */
const ACCUSERS = 3
/** Times that a block must fail with each member that works, where those are fewer than ACCUSERS. */
const TRIES = 3
/** ms between two tries of one member that count: a fault that passes has passed by then */
export const TRY_GAP_MS = 5000
/** ms that a block waits for the next try of a member that failed on it and asks for no work now */
const NEXT_TRY_MS = 60_000
/** ms between looks at shards that were found damaged: an owner may have put the file back */
const LOOK_AGAIN_MS = 30_000

declare module '../state.ts' {
  interface Slices {
    aside: Aside
  }
}

/** Why blocks are set aside, or may be soon. */
export interface Aside {
  /** block → members that could not compute it */
  readonly failures: Map<BlockId, Map<MemberId, Tries>>
  /** blocks of rounds → the member that was late with them last */
  readonly lateWith: Map<BlockId, MemberId>
  /** blocks that fewer than three members set aside, and who: others try them again */
  readonly byFew: Map<BlockId, Map<MemberId, Tries>>
  /** shards that are damaged on the coordinator's disk, by name, and their blocks */
  readonly damaged: Map<string, DamagedShard>
  /** blocks that were set aside before this process began, or before a rewind; and when it last looked, ms */
  readonly before: Set<BlockId>
  lookedAt: number
}

interface DamagedShard {
  readonly split: 'training' | 'validation'
  readonly indexes: readonly number[]
  /** ms */
  checkedAt: number
}

export const quarantine = {
  initial: () => ({
    aside: {
      failures: new Map(),
      lateWith: new Map(),
      byFew: new Map(),
      damaged: new Map(),
      before: new Set(),
      lookedAt: Number.NEGATIVE_INFINITY,
    },
  }),
  on: {
    'coordinator-started': lookAgain,
    'shard-checked': onShardChecked,
  },
  rewound: lookAgain,
  hear: { unreadable: onUnreadable },
  advance: lookAround,
} satisfies Aspect

/** The run rests, once its version is validated and it is not over. */
export const pause = {
  holds: ({ state }) => (isIdle(state) ? pausedBecause(state) : undefined),
} satisfies Aspect

/**
 * Their shard may have become whole in an epoch that a rewind goes back from: `repaired` restores one epoch's blocks.
 */
function lookAgain({ state }: Transition): void {
  for (const block of state.quarantined) own(state, 'aside').before.add(block)
}

/** What a block did with one member. */
export interface Tries {
  readonly times: number
  /** ms: of the last one that counted */
  readonly at: number
}

const NO_TRIES: Tries = { times: 0, at: Number.NEGATIVE_INFINITY }

/** The member could not compute the block, or gave values that are none. */
export function onBlockFailed(transition: Transition, block: BlockId, member: MemberId): void {
  const by = noteAccuser(transition, block, member)
  const { times, at } = by.get(member) ?? NO_TRIES
  if (transition.now - at >= TRY_GAP_MS) by.set(member, { times: times + 1, at: transition.now })
  setAsideByFew(transition, block)
}

/**
 * The member did not answer in time, which says less of the block than values that are none: it is no try. Of the
 * hundreds of blocks of a round it says next to nothing: only one that was in late rounds of two members is suspected.
 */
export function onBlockLate(transition: Transition, block: BlockId, member: MemberId): void {
  const { lateWith, failures } = own(transition.state, 'aside')
  const first = lateWith.get(block)
  lateWith.set(block, member)
  const isSuspected = failures.has(block) || (first !== undefined && first !== member)
  if (!hasRounds(transition.state) || isSuspected) noteAccuser(transition, block, member)
}

function noteAccuser(transition: Transition, block: BlockId, member: MemberId): Map<MemberId, Tries> {
  const { state } = transition
  const by = own(state, 'aside').failures.get(block) ?? new Map<MemberId, Tries>()
  own(state, 'aside').failures.set(block, by.set(member, by.get(member) ?? NO_TRIES))
  if (by.size >= ACCUSERS && !state.quarantined.has(block)) {
    setAside(transition, [block])
    transition.note('refusal', `block ${block} failed with ${by.size} members and is set aside`)
  }
  return by
}

/** It was computed. */
export function onBlockComputed(state: RunState, block: BlockId): void {
  forgetTries(state, block)
}

function forgetTries(state: RunState, block: BlockId): void {
  const { failures, lateWith } = own(state, 'aside')
  failures.delete(block)
  lateWith.delete(block)
}

/** One or two volunteers must be able to end a run, although three accusers never come together. */
function setAsideByFew(transition: Transition, block: BlockId): void {
  const { state } = transition
  const by = own(state, 'aside').failures.get(block)
  if (by === undefined || state.quarantined.has(block)) return
  const workers = [...new Set([...working(state), ...between(transition, by)])]
  if (workers.length === 0 || workers.length >= ACCUSERS) return
  if (workers.some((id) => (by.get(id)?.times ?? 0) < TRIES || !canCompute(state, id))) return
  setAside(transition, [block])
  own(state, 'aside').byFew.set(block, by)
  transition.note(
    'refusal',
    `block ${block} failed ${TRIES} times with each of the ${workers.length} members that work and is set aside; ` +
      'it is tried again when a further member works',
  )
}

/**
 * The member's failure says something of a block: others went well with it, or most of this epoch is on the chain. In a
 * ring members report what they cannot read, and the coordinator looks.
 */
export function canCompute(state: RunState, id: MemberId): boolean {
  if (state.phase.type === 'ring') return true
  return (
    (state.members.get(id)?.pushMs ?? 0) > 0 ||
    2 * state.chain.doneIn(currentEpoch(state)) >= blocksIn(state, currentEpoch(state))
  )
}

/** Members that failed on it a moment ago: they may be between two leases. */
function between({ state, now }: Transition, by: ReadonlyMap<MemberId, Tries>): MemberId[] {
  if (state.phase.type !== 'async') return []
  return [...by].filter(([id, { at }]) => state.members.has(id) && now - at < NEXT_TRY_MS).map(([id]) => id)
}

/** Members that could try a block: those of the ring, or those that ask for leases. */
function working({ phase, members, workers, leases }: RunState): readonly MemberId[] {
  if (phase.type === 'ring') return phase.members
  if (phase.type !== 'async') return []
  const holders = leases.holders()
  return [...members.values()]
    .filter(({ id, awaitingLease }) => awaitingLease || workers.has(id) || holders.has(id))
    .map(({ id }) => id)
}

/** What few set aside, a further member tries: their word alone keeps no data from it. */
function tryAgain(transition: Transition): void {
  const { state } = transition
  if (own(state, 'aside').byFew.size === 0) return
  const workers = working(state)
  const epoch = currentEpoch(state)
  for (const [block, by] of own(state, 'aside').byFew) {
    if (!block.startsWith('v:') && epochOf(block) < epoch) own(state, 'aside').byFew.delete(block)
    else if (workers.some((id) => !by.has(id))) comeBack(transition, block, by)
  }
}

function comeBack(transition: Transition, block: BlockId, by: Map<MemberId, Tries>): void {
  const { state } = transition
  own(state, 'aside').byFew.delete(block)
  if (!state.quarantined.has(block)) return
  transition.journal({ type: 'restored', blocks: [block] })
  own(state, 'aside').failures.set(block, by)
  transition.note('run', `block ${block} is tried again: a further member works`)
}

/** A member cannot get these blocks: the coordinator looks at its own copy. */
function onUnreadable(transition: Transition, member: MemberId, { blocks, message }: MessageFrom<'unreadable'>): void {
  const { state } = transition
  if (!state.members.has(member)) return
  const open = blocks.filter(
    (block) => exists(state, block) && !state.quarantined.has(block) && !state.chain.isDone(block),
  )
  if (open.length === 0) return
  transition.note(
    'member',
    `${state.members.get(member)?.name ?? member} cannot read ${open.length} blocks: ${message}`,
  )
  // A plan has blocks of one epoch (R13): what is remembered of failures stays bounded by it.
  const epoch = currentEpoch(state)
  for (const block of open)
    if (block.startsWith('v:') || epochOf(block) === epoch) onBlockFailed(transition, block, member)
  transition.effect({ type: 'check-blocks', blocks: open })
  planAnew(transition)
  transition.enqueue({ type: 'advance' })
}

function exists(state: RunState, block: BlockId): boolean {
  const { config } = state
  const index = blockIndex(block)
  return block.startsWith('v:')
    ? index < config.validationBlocks
    : index < blocksIn(state, epochOf(block)) && epochOf(block) < config.epochs
}

/** What the coordinator found on its own disk settles it at once, for all blocks of the shard. */
function onShardChecked(
  transition: Transition,
  { split, indexes, file, problem }: Extract<RunInput, { type: 'shard-checked' }>,
): void {
  const { state } = transition
  const existing = own(state, 'aside').damaged.get(file)
  if (problem === undefined)
    return existing === undefined ? foundWhole(transition, { split, indexes }) : onRepaired(transition, file)
  own(state, 'aside').damaged.set(file, { split, indexes, checkedAt: transition.now })
  setAside(transition, blocksOf(state, { split, indexes }))
  if (existing === undefined) transition.note('refusal', `${indexes.length} ${split} blocks are set aside: ${problem}`)
  planAnew(transition)
  transition.enqueue({ type: 'advance' })
}

function onRepaired(transition: Transition, file: string): void {
  const { state } = transition
  const damaged = own(state, 'aside').damaged.get(file)
  if (damaged === undefined) return
  own(state, 'aside').damaged.delete(file)
  const blocks = blocksOf(state, damaged, true)
  if (blocks.length > 0) transition.journal({ type: 'restored', blocks })
  transition.note('run', `the shard ${file} is whole again: ${blocks.length} blocks come back`)
  transition.enqueue({ type: 'advance' })
}

/** Why they were set aside is forgotten: they are tried again, and three members that fail set them aside anew. */
function foundWhole(transition: Transition, shard: Pick<DamagedShard, 'split' | 'indexes'>): void {
  const { before } = own(transition.state, 'aside')
  const blocks = blocksOf(transition.state, shard, true).filter((block) => before.has(block))
  if (blocks.length === 0) return
  for (const block of blocks) before.delete(block)
  transition.journal({ type: 'restored', blocks })
  transition.note(
    'run',
    `${blocks.length} blocks that were set aside before a restart or a rewind are in a whole shard: they come back`,
  )
  transition.enqueue({ type: 'advance' })
}

/** Those of the current epoch; `isAside`: of them those that are set aside. */
function blocksOf(
  state: RunState,
  { split, indexes }: { readonly split: 'training' | 'validation'; readonly indexes: readonly number[] },
  isAside = false,
): BlockId[] {
  const epoch = currentEpoch(state)
  const blocks = indexes.map((index) => (split === 'training' ? trainingBlock(epoch, index) : validationBlock(index)))
  return blocks.filter(
    (block) =>
      state.quarantined.has(block) === isAside &&
      (split === 'validation' || (epoch < state.config.epochs && !state.chain.isDone(block))),
  )
}

function setAside(transition: Transition, blocks: readonly BlockId[]): void {
  const { state } = transition
  if (blocks.length === 0) return
  transition.journal(...blocks.map((block) => ({ type: 'quarantine' as const, block })))
  for (const block of blocks) {
    state.leases.delete(block)
    withdraw(state, block)
    forgetTries(state, block)
  }
}

/** A running generation must not go on with a plan that names them. */
function planAnew(transition: Transition): void {
  const { phase, quarantined } = transition.state
  if (phase.type !== 'ring') return
  const isPlanned = [...phase.planned.values()].some((blocks) => blocks.some((block) => quarantined.has(block)))
  if (isPlanned) transition.enqueue({ type: 'ballot', reason: 'planned blocks are set aside', trouble: false })
}

/** Shards that were found damaged are so in every epoch; now and then they are looked at again. */
function lookAround(transition: Transition): void {
  const { state, now } = transition
  tryAgain(transition)
  lookAtAsideBefore(transition)
  for (const damaged of own(state, 'aside').damaged.values()) {
    setAside(transition, blocksOf(state, damaged))
    if (now - damaged.checkedAt < LOOK_AGAIN_MS) continue
    damaged.checkedAt = now
    transition.effect({
      type: 'check-blocks',
      blocks: damaged.indexes
        .slice(0, 1)
        .map((index) => (damaged.split === 'training' ? trainingBlock(0, index) : validationBlock(index))),
    })
  }
}

/** Blocks of this epoch, and of validation: nothing brings others back. */
function lookAtAsideBefore(transition: Transition): void {
  const { quarantined } = transition.state
  const aside = own(transition.state, 'aside')
  if (aside.before.size === 0 || transition.now - aside.lookedAt < LOOK_AGAIN_MS) return
  aside.lookedAt = transition.now
  const epoch = currentEpoch(transition.state)
  const blocks = [...aside.before].filter((block) => block.startsWith('v:') || epochOf(block) === epoch)
  const open = blocks.filter((block) => quarantined.has(block))
  if (open.length > 0) transition.effect({ type: 'check-blocks', blocks: open })
}

/** Why the run rests: most of its epoch is set aside, and an end without it would be a lie. */
function pausedBecause(state: RunState): string | undefined {
  const epoch = currentEpoch(state)
  if (epoch >= state.config.epochs || !isMostlySetAside(state, epoch)) return undefined
  const files = [...state.aside.damaged.keys()]
  const cause =
    files.length > 0 ? `damaged: ${files.join(', ')}; put the file back` : 'members fail on them; see the events'
  return `paused: most blocks of epoch ${epoch + 1} are set aside (${cause})`
}
