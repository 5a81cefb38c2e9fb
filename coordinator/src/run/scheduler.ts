// Which blocks come next: the plan of a running generation (R12, R13) and the next lease of async mode. Pure functions of
// the chain, the seed and what is already given out.
import { type BlockId, epochOf, epochOrder, PLAN_WINDOW, type PlanStep, trainingBlock } from '@starling-grid/protocol'
import type { RunState } from './state.ts'

/** The epoch that training is in: the one of the last record, or the next of which something is left. */
export function currentEpoch(state: RunState): number {
  const last = state.chain.records.at(-1)?.blocks[0]
  let epoch = last === undefined ? 0 : epochOf(last)
  while (epoch < state.config.epochs && remaining(state, epoch) === 0) epoch++
  return epoch
}

/** Blocks of the epoch that are neither on the chain nor quarantined. */
export function remaining(state: RunState, epoch: number): number {
  let quarantined = 0
  for (const block of state.quarantined) if (epochOf(block) === epoch && !state.chain.isDone(block)) quarantined++
  return state.config.blocks - state.chain.doneIn(epoch).size - quarantined
}

/** No step may follow: the last epoch is on the chain, or maxSteps is reached. */
export function trainingIsOver(state: RunState): boolean {
  const { epochs, maxSteps } = state.config
  return state.chain.head.v >= (maxSteps ?? Number.POSITIVE_INFINITY) || currentEpoch(state) >= epochs
}

/** Blocks of the current epoch, in its seeded order, that are not taken (R13: never of the next while this one is open). */
export function available(state: RunState, taken: (block: BlockId) => boolean): BlockId[] {
  const epoch = currentEpoch(state)
  const free = freeIn(state, epoch, taken)
  return free.length === 0 && state.config.off.has('R13') && epoch + 1 < state.config.epochs ? freeIn(state, epoch + 1, taken) : free
}

function freeIn(state: RunState, epoch: number, taken: (block: BlockId) => boolean): BlockId[] {
  const { seed, blocks } = state.config
  const free: BlockId[] = []
  for (const index of cachedOrder(seed, epoch, blocks)) {
    const block = trainingBlock(epoch, index)
    if (!state.chain.isDone(block) && !state.quarantined.has(block) && !taken(block)) free.push(block)
  }
  return free
}

/** plan(g, s) for the steps after `plannedTo`, up to PLAN_WINDOW ahead of C (R12): only of the current epoch (R13). */
export function planSteps(state: RunState, planned: ReadonlyMap<number, readonly BlockId[]>, plannedTo: number): PlanStep[] {
  const { batchBlocks, maxSteps, off } = state.config
  if (trainingIsOver(state)) return []
  const given = new Set<BlockId>(off.has('R12') ? [] : [...planned.values()].flat())
  if (off.has('R12-done')) for (const block of state.everPlanned) given.add(block)
  const free = available(state, (block) => given.has(block))
  const last = Math.min(state.chain.head.v + PLAN_WINDOW, maxSteps ?? Number.POSITIVE_INFINITY)
  const steps: PlanStep[] = []
  for (let step = plannedTo + 1, i = 0; step <= last && i < free.length; step++, i += batchBlocks) steps.push({ step, blocks: free.slice(i, i + batchBlocks) })
  return steps
}

let cached: { readonly key: string; readonly order: Uint32Array } | undefined

/** epochOrder, remembered for the last epoch asked for: it is asked again at every plan. */
function cachedOrder(seed: number, epoch: number, blocks: number): Uint32Array {
  const key = `${seed} ${epoch} ${blocks}`
  if (cached?.key !== key) cached = { key, order: epochOrder(seed, epoch, blocks) }
  return cached.order
}
