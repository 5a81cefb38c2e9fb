// Which checkpoints a run keeps, and for how long (`keep` of the job). Decides from what is recorded alone, so that a
// restart keeps the same.
import { type KeepRule, LAST_CHECKPOINTS, type Metric } from '@starling-grid/protocol'
import type { Checkpoint } from '../recorded.ts'
import { bestOnes, type Evaluation } from './ending.ts'
import { MOST_OF_EVERY } from './kept.ts'

export interface KeepOf {
  readonly keep: KeepRule
  /** absent: loss */
  readonly metric: Metric | undefined
  readonly evaluations: readonly Evaluation[]
}

/** Of the newest checkpoints, how many have their bytes. A rewind needs the newest; others serve when it is damaged. */
export function lastOf({ last = LAST_CHECKPOINTS }: KeepRule): number {
  return last
}

/** Of these, the oldest first, those that `best` and `every` keep. */
export function keptOf(checkpoints: readonly Checkpoint[], { keep, metric, evaluations }: KeepOf): Checkpoint[] {
  const best = new Set(bestOnes(evaluations, metric, keep.best ?? 0).map(({ version }) => version.id))
  const marks = new Set(firstOfEach(checkpoints, keep.every).slice(-MOST_OF_EVERY))
  return checkpoints.filter((one) => best.has(one.version.id) || marks.has(one))
}

/** From step `every` on, the first in each so many steps. */
function firstOfEach(checkpoints: readonly Checkpoint[], every: number | undefined): Checkpoint[] {
  if (every === undefined) return []
  const markOf = ({ version }: Checkpoint): number => Math.floor(version.v / every)
  return checkpoints.filter((one, i) => markOf(one) > Math.max(0, ...checkpoints.slice(i - 1, i).map(markOf)))
}

/** Whether the newest checkpoint is of steps before the last multiple of `every`. */
export function isMarkDue({ every }: KeepRule, head: number, newest: number): boolean {
  return every !== undefined && Math.floor(head / every) > Math.floor(newest / every)
}

/** Steps from the head to the next multiple of `every`: a plan goes no further. */
export function toMark({ every }: KeepRule, head: number): number {
  return every === undefined ? Number.POSITIVE_INFINITY : every - (head % every)
}

/** The version with its evaluation is among the best now: it must have a checkpoint. */
export function isAmongBest(id: string, { keep, metric, evaluations }: KeepOf): boolean {
  return bestOnes(evaluations, metric, keep.best ?? 0).some(({ version }) => version.id === id)
}
