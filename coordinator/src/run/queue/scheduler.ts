// Which blocks come next: the plan of a running generation (R12, R13) and the next lease of async mode. Pure functions
// of the chain, the seed and what is already given out.
import {
  type BlockId,
  epochOf,
  epochOrder,
  PLAN_WINDOW,
  type PlanStep,
  trainingBlock,
  unitOrder,
} from '@starling-grid/protocol'
import { makesRounds } from '../groups/group-policy.ts'
import { endOf } from '../history/ending.ts'
import type { RunState } from '../state.ts'
import { FreeBlocks } from './free-blocks.ts'

/** The epoch that training is in: the one of the last record, or the next of which something is left. */
export function currentEpoch(state: RunState): number {
  const last = state.chain.records.at(-1)?.blocks[0]
  let epoch = last === undefined ? 0 : epochOf(last)
  while (epoch < state.config.epochs && remaining(state, epoch) === 0 && !isMostlySetAside(state, epoch)) epoch++
  return epoch
}

/** Training blocks of an epoch: more of those that came after data was appended. */
export function blocksIn({ config, appended }: Pick<RunState, 'config' | 'appended'>, epoch: number): number {
  return appended.findLast((one) => one.epoch <= epoch)?.blocks ?? config.blocks
}

/**
 * Blocks of the epoch that are neither on the chain nor quarantined: never fewer than none, whatever a journal names.
 */
export function remaining(state: RunState, epoch: number): number {
  return Math.max(0, blocksIn(state, epoch) - state.chain.doneIn(epoch) - setAsideIn(state, epoch))
}

function setAsideIn(state: RunState, epoch: number): number {
  let count = 0
  for (const block of state.quarantined) if (epochOf(block) === epoch && !state.chain.isDone(block)) count++
  return count
}

/** More than half of an epoch is set aside: it is no epoch, and the run rests instead of ending without it. */
export function isMostlySetAside(state: RunState, epoch: number): boolean {
  return 2 * setAsideIn(state, epoch) > blocksIn(state, epoch)
}

/** Nothing is under way: no planned step, no lease. */
export function isIdle({ phase, chain, leases }: RunState): boolean {
  return phase.type === 'ring' ? phase.plannedTo === chain.head.v : leases.size === 0
}

/** No step may follow. */
export function trainingIsOver(state: RunState): boolean {
  return whyOver(state) !== undefined
}

/** The reason; undefined: it goes on. */
export function whyOver(state: RunState): string | undefined {
  const { config, chain, evaluations, trainedMs } = state
  const epoch = currentEpoch(state)
  return endOf(config.stop, {
    steps: chain.head.v,
    epochs: epoch + (epoch < config.epochs ? chain.doneIn(epoch) / blocksIn(state, epoch) : 0),
    endedWith: epoch >= config.epochs ? config.epochs : undefined,
    trainedMs,
    evaluations,
  })
}

/**
 * At most `max` blocks of the current epoch that are not taken, in its seeded order. R13: never of the next while this
 * one is open.
 */
export function available(
  state: RunState,
  taken: (block: BlockId) => boolean,
  wanted: Pick<WantedBlocks, 'max'>,
): BlockId[] {
  return freeIn(state, { epoch: currentEpoch(state), taken, ...wanted })
}

interface WantedBlocks {
  readonly epoch: number
  readonly taken: (block: BlockId) => boolean
  readonly max: number
}

function freeIn(state: RunState, { epoch, taken, max }: WantedBlocks): BlockId[] {
  const front = frontOf(state, epoch)
  const { order } = front
  for (; front.index < order.length && isOver(state, front, front.index); front.index++) front.names.delete(front.index)
  const free: BlockId[] = []
  for (let place = front.index; place < order.length && free.length < max; place++)
    if (!isOver(state, front, place) && !taken(nameAt(front, place))) free.push(nameAt(front, place))
  return free
}

/** Done or set aside. */
function isOver({ chain, quarantined }: RunState, { epoch, order }: Front, place: number): boolean {
  const index = order[place] ?? 0
  return chain.isDoneAt(epoch, index) || (quarantined.size > 0 && quarantined.has(trainingBlock(epoch, index)))
}

/** Thousands of blocks are planned between the first open one and the next free one: each is named once. */
function nameAt({ epoch, order, names }: Front, place: number): BlockId {
  const name = names.get(place)
  if (name !== undefined) return name
  const block = trainingBlock(epoch, order[place] ?? 0)
  names.set(place, block)
  return block
}

/** The free blocks of the current epoch as they are now; of `takenCount` that are taken none is looked at twice. */
export function freeBlocksNow(
  state: RunState,
  { taken, takenCount }: { readonly taken: (block: BlockId) => boolean; readonly takenCount: number },
): FreeBlocks {
  const epoch = currentEpoch(state)
  const front = frontOf(state, epoch)
  const { order } = front
  front.free ??= new FreeBlocks({ epoch, order, unit: unitOf(state) })
  front.free.refresh(state.leases.takeFreed(), {
    isFree: (place) => !isOver(state, front, place) && !taken(trainingBlock(epoch, order[place] ?? 0)),
    notFree: takenCount + state.chain.doneIn(epoch) + setAsideIn(state, epoch),
  })
  return front.free
}

/**
 * ms that a plan lasts: as long as a coordinator may be away without stopping the ring (R14). Longer plans would keep
 * old assignments.
 */
const PLAN_MS = 60_000
/**
 * Steps planned before the duration of one is measured, and at least. One is under way, one is next, and news of both
 * are on their way.
 */
const FIRST_STEPS = 16
const LEAST_STEPS = 4

/** Steps to plan ahead of C, as far as their duration says. */
export function planWindow({ health: { pace } }: RunState): number {
  return pace === undefined
    ? FIRST_STEPS
    : Math.min(PLAN_WINDOW, Math.max(LEAST_STEPS, Math.ceil(PLAN_MS / Math.max(pace.recordMs, 1))))
}

/** plan(g, s) for the steps after `plannedTo`, up to `window` ahead of C (R12): only of the current epoch (R13). */
export function planSteps(
  state: RunState,
  planned: ReadonlyMap<number, readonly BlockId[]>,
  {
    plannedTo,
    window,
    isTaken,
    batchBlocks = state.config.batchBlocks * (state.mode === 'local' ? state.config.roundSteps : 1),
  }: {
    readonly plannedTo: number
    readonly window: number
    readonly isTaken: (block: BlockId) => boolean
    readonly batchBlocks?: number | undefined
  },
): PlanStep[] {
  const { steps: mostSteps } = state.config.stop
  if (trainingIsOver(state)) return []
  const given = new Set<BlockId>([...planned.values()].flat())
  const last = Math.min(state.chain.head.v + window, mostSteps ?? Number.POSITIVE_INFINITY)
  const taken = (block: BlockId): boolean => given.has(block) || isTaken(block)
  const free = available(state, taken, { max: Math.max(0, last - plannedTo) * batchBlocks })
  const steps: PlanStep[] = []
  for (let step = plannedTo + 1, i = 0; step <= last && i < free.length; step++, i += batchBlocks)
    steps.push({ step, blocks: free.slice(i, i + batchBlocks) })
  return steps
}

/** The order of an epoch, and how much of it is over: a plan must not cost as much as the epoch is long. */
interface Front {
  readonly epoch: number
  readonly truncations: number
  readonly order: Uint32Array
  /** of blocks that a plan looked at, by their places in the order */
  readonly names: Map<number, BlockId>
  /** place of the first block that is not over */
  index: number
  /** of leases; undefined: there were none yet */
  free: FreeBlocks | undefined
}

const fronts = new WeakMap<RunState, Front>()

/** Remembered, not state: blocks before it stay done or set aside until a rewind. */
function frontOf(state: RunState, epoch: number): Front {
  const existing = fronts.get(state)
  const truncations = state.chain.truncations + state.restorations // both bring blocks back
  if (existing?.epoch === epoch && existing.truncations === truncations) return existing
  const front: Front = {
    epoch,
    truncations,
    order: existing?.epoch === epoch ? existing.order : orderOf(state, epoch),
    names: new Map(),
    index: 0,
    free: undefined,
  }
  fronts.set(state, front)
  return front
}

/**
 * Members of a crowd take what lies together: each needs one shard or two for its round, and not the whole dataset
 * before its first. In a ring the blocks of a batch come from everywhere, and all members fetch all data in any case.
 */
function orderOf(state: RunState, epoch: number): Uint32Array {
  const { seed } = state.config
  const blocks = blocksIn(state, epoch)
  return makesRounds(state.config.async.groups)
    ? unitOrder(seed, epoch, blocks, unitOf(state))
    : epochOrder(seed, epoch, blocks)
}

/** Blocks in a row that lie in one shard of the data, about; 1: the order has no such units. */
export function unitOf({ config }: RunState): number {
  return makesRounds(config.async.groups) ? (config.shardBlocks ?? 1) : 1
}
