// The open sum of async mode: pushes that were taken and are no version yet, and when they become one (A3). Volatile:
// blocks of a sum that is dropped are in no record, and so are to be done again (A4, A6).
import {
  type BlockId,
  digest,
  extend,
  MAX_STEP_BLOCKS,
  MAX_VERSION_BLOCKS,
  type MemberId,
  type Push,
  type Sha256,
  type StepRecord,
} from '@starling-grid/protocol'
import { Ascending } from '../../ascending.ts'
import { arrived, expected, isForsaken, isInTurn, isOverdue } from '../groups/group-rounds.ts'
import { renewRoundLength } from '../groups/round-length.ts'
import { renewEncoding } from '../policy/encoding-cost.ts'
import type { FreeBlocks } from '../queue/free-blocks.ts'
import { freeBlocksNow, trainingIsOver } from '../queue/scheduler.ts'
import { own, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { closeContributions, dropContributions } from './crowd.ts'

declare module '../state.ts' {
  interface Slices {
    open: OpenSum
  }
}

/** What is pushed and is no version yet; in ring mode: no member was given it yet. */
export interface OpenSum {
  readonly pushes: Push[]
  /** SHA-256 of the gradients, in the order of the pushes */
  readonly digests: Sha256[]
  readonly blocks: Set<BlockId>
  /** ms: its first push of a whole round that is of the newest version; undefined: others alone */
  since: number | undefined
  /** whose pushes these are, and how many of each */
  readonly pushers: Map<MemberId, number>
  /** of them, whose round began from the newest version */
  readonly fresh: Set<MemberId>
  /** of each push, what its member usually takes from grant to push; 0 of one that is gone */
  readonly usualMs: Ascending
}

const empty = (): OpenSum => ({
  pushes: [],
  digests: [],
  blocks: new Set(),
  since: undefined,
  pushers: new Map(),
  fresh: new Set(),
  usualMs: new Ascending(),
})

/** Taken elsewhere, or dropped. */
export function emptySum(state: RunState): void {
  Object.assign(own(state, 'open'), empty())
  dropContributions(state)
}

export const accumulator = {
  initial: () => ({ open: empty() }),
  advance: closeWhenDue,
  memberLost: ({ state }, { id, pushMs }) => takesOtherwise(state, id, { before: pushMs, now: 0 }),
  plan: { isTaken },
} satisfies Aspect

/**
 * K: pushes that make a version. Counted over those whose last lease came back: who gives nothing is not waited for.
 */
export function pushesPerVersion(state: RunState): number {
  if (state.config.async.groups !== undefined) return Math.max(1, pushesAsked(state, expected(state)))
  return Math.max(1, Math.min(pushesAsked(state), state.config.batchBlocks))
}

function pushesAsked({ config, workers }: RunState, pushing = workers.size): number {
  const { update, proportion } = config.async
  if (update === 'each') return 1
  if (update === 'all') return pushing
  return proportion > 1 ? proportion : Math.ceil(proportion * pushing)
}

/** Blocks of one lease: K of them are one global batch, so that a version has as many samples as a step of the ring. */
export function blocksPerLease(state: RunState): number {
  return Math.ceil(state.config.batchBlocks / pushesPerVersion(state))
}

export function addToSum(transition: Transition, push: Push, gradDigest: Sha256): void {
  const { state } = transition
  const member = state.members.get(push.incarnation)
  const mostBlocks = state.config.async.groups === undefined ? MAX_STEP_BLOCKS : MAX_VERSION_BLOCKS
  if (state.open.blocks.size + push.leases.length > mostBlocks) closeSum(transition)
  const open = own(state, 'open')
  open.pushes.push(push)
  open.digests.push(gradDigest)
  open.pushers.set(push.incarnation, (open.pushers.get(push.incarnation) ?? 0) + 1)
  open.usualMs.add(member?.pushMs ?? 0)
  for (const { block } of push.leases) open.blocks.add(block)
  if (isInTurn(transition, push) && push.base.v === state.chain.head.v) open.since ??= transition.now
  if (push.base.v === state.chain.head.v) open.fresh.add(push.incarnation)
}

/** This member takes another time from grant to push than it usually did. */
export function takesOtherwise(
  state: RunState,
  id: MemberId,
  ms: { readonly before: number; readonly now: number },
): void {
  const { pushers, usualMs } = own(state, 'open')
  for (let left = pushers.get(id) ?? 0; left > 0; left--) {
    usualMs.remove(ms.before)
    usualMs.add(ms.now)
  }
}

/** A3: enough pushes, or no more to come before these are a version. */
function closeWhenDue(transition: Transition): void {
  const { state } = transition
  if (state.phase.type !== 'async') return
  if (trainingIsOver(state)) return drop(state)
  if (state.open.pushes.length === 0) return
  const isEnough = arrived(state) >= pushesPerVersion(state) && !awaitsEpoch(state)
  if (isEnough || isLast(transition)) closeSum(transition)
}

/**
 * Rounds under way have what is left of the epoch: members whose push is here get no other work before these come, so
 * a version without them would only be one more (G2).
 */
function awaitsEpoch(state: RunState): boolean {
  const { config, open, leases, members } = state
  if (config.async.groups === undefined || !nothingFree(state)) return false
  for (const { holder } of leases.grants())
    if (members.get(holder)?.missedLeases === 0 && !open.pushers.has(holder)) return true
  return false
}

/** No push comes before these are a version, or none for long. */
function isLast({ state, now }: Transition): boolean {
  const { groups, update } = state.config.async
  const isIdle = state.leases.size === 0
  if (groups === undefined) return isIdle && nothingFree(state)
  if (update === 'all') return isIdle && (nothingFree(state) || isForsaken(state, now))
  return isIdle || isOverdue(state, now)
}

/** One record of all pushes, durable before the server makes its version (R1). */
export function closeSum(transition: Transition): void {
  const { state } = transition
  const { pushes, digests, blocks } = own(state, 'open')
  if (pushes.length === 0) return
  const total = (of: (push: Push) => number): number => pushes.reduce((sum, push) => sum + of(push), 0)
  const record: StepRecord = {
    v: state.chain.head.v + 1,
    generation: state.generation,
    modeEpoch: state.modeEpoch,
    kind: 'async',
    blocks: [...blocks],
    samples: total(({ samples }) => samples),
    targets: total(({ targets }) => targets),
    lossSum: total(({ lossSum }) => lossSum),
    correct: total(({ correct }) => correct),
    gradDigest: digestOfAll(digests),
  }
  const version = extend(state.chain.head, record)
  closeContributions(state, version.v)
  emptySum(state)
  transition.journal({ type: 'commit', records: [record] })
  state.health.consecutiveAborts = 0
  renewEncoding(transition)
  renewRoundLength(transition, pushes.length)
  transition.effect({ type: 'server-close', record, version })
}

/** Of one push its own digest, as in the ring; of several that of their digests. */
function digestOfAll(digests: readonly Sha256[]): Sha256 {
  const [first, ...others] = digests
  return first !== undefined && others.length === 0 ? first : digest(new TextEncoder().encode(digests.join('')))
}

/** What is still computed would make a version too many. */
function drop(state: RunState): void {
  emptySum(state)
  state.leases.clear()
}

export function nothingFree(state: RunState): boolean {
  return freeNow(state).total === 0
}

/** Blocks of the epoch that are not taken, in order, at most so many. */
export function freeBlocks(state: RunState, max: number): BlockId[] {
  return freeNow(state).first(max)
}

/** The same, by the units of the data that they lie in. */
export function freeNow(state: RunState): FreeBlocks {
  const takenCount = state.leases.size + state.open.blocks.size
  return freeBlocksNow(state, { taken: (block) => isTaken(state, block), takenCount })
}

/** A2: leased, or in the open sum. */
export function isTaken({ leases, open }: RunState, block: BlockId): boolean {
  return leases.has(block) || open.blocks.has(block)
}

/**
 * Bounded staleness (SSP): whether one more lease leaves the oldest one fresh enough. Every other lease, the new one
 * and the open sum may become versions before it comes back. `update: all` is this with a bound of 0.
 */
export function mayRunAhead(state: RunState, bound: number): boolean {
  if (state.config.async.whenStale === 'drop' || state.leases.size === 0) return true
  let oldest = Number.POSITIVE_INFINITY
  for (const { base } of state.leases.grants()) oldest = Math.min(oldest, base)
  const ahead = Math.floor((state.open.pushes.length + state.leases.grantCount) / pushesPerVersion(state))
  return state.chain.head.v + ahead - oldest <= bound
}
