// How many volunteers the open jobs have work for: what an autoscaler of headless volunteers follows.
import { EXCHANGES, type JobSpec, MOST_BATCH_BLOCKS } from '@starling-grid/protocol'

export interface OpenJob {
  readonly spec: Pick<JobSpec, 'batchBlocks' | 'weakScaling' | 'volunteers'>
  /** by its owner */
  readonly paused: boolean
}

/**
 * A member of a ring has one block of a step at least, so that a step of B blocks has work for B members. With weak
 * scaling each has B blocks, of the most that a step may have.
 */
export function volunteersWanted(jobs: readonly OpenJob[]): number {
  const wants = jobs
    .filter(({ paused }) => !paused)
    .map(({ spec: { batchBlocks, weakScaling, volunteers: { min = 1, max = Number.POSITIVE_INFINITY } = {} } }) => {
      const most = weakScaling === undefined ? batchBlocks : Math.floor(MOST_BATCH_BLOCKS / batchBlocks)
      return Math.max(min, Math.min(max, most, EXCHANGES.ring.mostMembers))
    })
  return wants.reduce((sum, want) => sum + want, 0)
}
