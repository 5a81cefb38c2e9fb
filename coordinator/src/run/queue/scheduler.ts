// Which blocks come next: the plan of a running generation (R12, R13) and the next lease of async mode. Pure functions
// of the chain, the seed and what is already given out.
import { type BlockId, epochOf, epochOrder, PLAN_WINDOW, type PlanStep, trainingBlock } from '@starling-grid/protocol'
import { endOf } from '../history/ending.ts'
import type { RunState } from '../state.ts'

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
 * one is open. `takenCount`: how many are taken, which spares a look at each of them.
 */
export function available(
  state: RunState,
  taken: (block: BlockId) => boolean,
  wanted: Pick<WantedBlocks, 'max' | 'takenCount'>,
): BlockId[] {
  return freeIn(state, { epoch: currentEpoch(state), taken, ...wanted })
}

interface WantedBlocks {
  readonly epoch: number
  readonly taken: (block: BlockId) => boolean
  readonly max: number
  readonly takenCount?: number
}

function freeIn(state: RunState, { epoch, taken, max, takenCount }: WantedBlocks): BlockId[] {
  const { chain, quarantined } = state
  const front = frontOf(state, epoch)
  const { order } = front
  const isOver = (place: number): boolean =>
    chain.isDoneAt(epoch, order[place] ?? 0) || (quarantined.size > 0 && quarantined.has(blockAt(front, place)))
  for (; front.index < order.length && isOver(front.index); front.index++) front.names.delete(front.index)
  const free: BlockId[] = []
  const lookFrom = (first: number): void => {
    for (front.fullTo = first; front.fullTo < order.length && free.length < max; front.fullTo++)
      if (!isOver(front.fullTo) && !taken(blockAt(front, front.fullTo))) free.push(blockAt(front, front.fullTo))
    front.seen = Math.max(front.seen, front.fullTo)
  }
  if (takenCount === undefined) {
    lookFrom(front.index)
    front.left = undefined
    return free
  }
  const over = chain.doneIn(epoch) + setAsideIn(state, epoch)
  const isAsLeft = front.left === front.seen - over - takenCount
  lookFrom(isAsLeft ? Math.max(front.index, front.fullTo) : front.index)
  if (free.length === 0 && isAsLeft) lookFrom(front.index)
  front.left = front.seen - over - takenCount - free.length
  return free
}

/** Thousands of blocks are under way between the first open one and the next free one: each is named once. */
function blockAt({ epoch, order, names }: Front, place: number): BlockId {
  const name = names.get(place)
  if (name !== undefined) return name
  const block = trainingBlock(epoch, order[place] ?? 0)
  names.set(place, block)
  return block
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
  /** of blocks that were looked at, by their places in the order */
  readonly names: Map<number, BlockId>
  /** place of the first block that is not over */
  index: number
  /** places that were looked at; what was given is before `fullTo`, as is nothing that is free */
  seen: number
  fullTo: number
  /**
   * Free places that were seen and not given; undefined: not known. As long as it is as many, all that was given was
   * taken and none came back, so that a look may begin at `fullTo`.
   */
  left: number | undefined
}

const fronts = new WeakMap<RunState, Front>()

/** Remembered, not state: blocks before it stay done or set aside until a rewind. */
function frontOf(state: RunState, epoch: number): Front {
  const existing = fronts.get(state)
  const truncations = state.chain.truncations + state.restorations // both bring blocks back
  if (existing?.epoch === epoch && existing.truncations === truncations) return existing
  const { seed } = state.config
  const front = {
    epoch,
    truncations,
    order: existing?.epoch === epoch ? existing.order : epochOrder(seed, epoch, blocksIn(state, epoch)),
    names: new Map(),
    index: 0,
    seen: 0,
    fullTo: 0,
    left: undefined,
  }
  fronts.set(state, front)
  return front
}
