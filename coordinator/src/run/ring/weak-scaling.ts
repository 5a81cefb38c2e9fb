// Weak scaling: each member has `batchBlocks` of a step, so that the batch grows with the ring, and the learning rate
// with the batch (linear rule and gradual warm-up: Goyal et al., "Accurate, Large Minibatch SGD", 2017). Both follow
// from the generation and the record before; members are told them with the plan, and the record keeps them. Pure.
import {
  type BlockId,
  MOST_BATCH_BLOCKS,
  type PlanStep,
  type StepRecord,
  type StepScaling,
} from '@starling-grid/protocol'
import { learningRate } from '@starling-grid/shaders'
import { blocksIn, currentEpoch } from '../queue/scheduler.ts'
import type { RunConfig, RunState } from '../state.ts'
import type { Aspect } from '../transition.ts'

export const weakScaling = { plan: { batchBlocks: batchOf } } satisfies Aspect

/** Blocks of a step of the generation that begins or runs; undefined: the job's. */
function batchOf({ config, phase }: RunState): number | undefined {
  if (config.weak === undefined || (phase.type !== 'form' && phase.type !== 'ring')) return undefined
  return batchOfMembers(config, phase.members.length)
}

/** Blocks of a step of so many members. */
export function batchOfMembers(
  { weak, batchBlocks }: Pick<RunConfig, 'weak' | 'batchBlocks'>,
  members: number,
): number {
  return weak === undefined ? batchBlocks : Math.min(MOST_BATCH_BLOCKS, batchBlocks * members)
}

/**
 * Factor of the learning rate of a batch so many times as large as one member's, after a step with the factor `before`.
 * It rises by an equal part in each step, so that it is there after `warmup` steps at most, and falls at once.
 */
export function nextScale(before: number, times: number, warmup: number): number {
  return Math.min(times, warmup === 0 ? times : before + times / warmup)
}

export interface PlannedBefore {
  readonly planned: ReadonlyMap<number, readonly BlockId[]>
  readonly scalings: ReadonlyMap<number, StepScaling>
  readonly plannedTo: number
}

/** Steps with the batch and the rate that all members use for them. `batch`: blocks of each but the last of an epoch */
export function scaled(
  state: RunState,
  steps: readonly PlanStep[],
  { planned, scalings, plannedTo, batch }: PlannedBefore & { readonly batch: number },
): PlanStep[] {
  const { config, chain } = state
  const { weak, batchBlocks } = config
  if (weak === undefined) return [...steps]
  let before = scalings.get(plannedTo)?.scale ?? chain.record(plannedTo)?.scaling?.scale ?? 1
  let blocks = blocksDone(state) + [...planned.values()].flat().length
  return steps.map((step) => {
    const scale = nextScale(before, Math.max(1, batch / batchBlocks), weak.warmup)
    const lr = scale * learningRate(weak.optimizer, blocks / batchBlocks)
    before = scale
    blocks += step.blocks.length
    return { ...step, scaling: { batch, scale, lr } }
  })
}

/** The factor of its rate; undefined: the record is not kept any more. */
export function scaleOf(record: StepRecord | undefined): number | undefined {
  return record && (record.scaling?.scale ?? 1)
}

/**
 * What no plan of its generation says of a step. `before`: the factor of the step before, where it is known. A block
 * that is tried alone is a batch of one. A schedule is not gone through again: its rate is only bounded.
 */
export function isImplausible(
  { config, rings }: RunState,
  { generation, blocks, scaling }: StepRecord,
  before: number | undefined,
): boolean {
  const { weak, batchBlocks } = config
  if (weak === undefined || scaling === undefined) return (weak === undefined) !== (scaling === undefined)
  const { batch, scale, lr } = scaling
  const members = rings.get(generation)?.length
  const isPlanned = members === undefined || batch === batchOfMembers(config, members) || batch === 1
  const most = scale * weak.optimizer.lr
  const isRate = weak.optimizer.schedule === undefined ? lr === most : lr <= most
  const times = Math.max(1, batch / batchBlocks)
  const isScale = before === undefined ? scale <= times : scale === nextScale(before, times, weak.warmup)
  return !isPlanned || !isScale || !isRate || (batch === 1 && blocks.length > 1)
}

/** Over all epochs, as far as they are on the chain: the schedule goes by it, in batches of one member. */
function blocksDone(state: RunState): number {
  const now = currentEpoch(state)
  let blocks = now < state.config.epochs ? state.chain.doneIn(now) : 0
  for (let epoch = 0; epoch < now; epoch++) blocks += blocksIn(state, epoch)
  return blocks
}

export type WeakScaling = NonNullable<RunConfig['weak']>
