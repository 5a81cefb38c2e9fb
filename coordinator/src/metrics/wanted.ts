// How many volunteers the open jobs have work for: what an autoscaler of headless volunteers follows.
import { EXCHANGES, type JobSpec } from '@starling-grid/protocol'

export interface OpenJob {
  readonly spec: Pick<JobSpec, 'batchBlocks' | 'volunteers'>
  /** by its owner */
  readonly paused: boolean
}

/** A member of a ring has one block of a step at least, so that a step of B blocks has work for B members. */
export function volunteersWanted(jobs: readonly OpenJob[]): number {
  const wants = jobs
    .filter(({ paused }) => !paused)
    .map(({ spec: { batchBlocks, volunteers: { min = 1, max = Number.POSITIVE_INFINITY } = {} } }) =>
      Math.max(min, Math.min(max, batchBlocks, EXCHANGES.ring.mostMembers)),
    )
  return wants.reduce((sum, want) => sum + want, 0)
}
