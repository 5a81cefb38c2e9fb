// What a job says of its replica groups, with defaults.
import type { GroupSettings } from '@starling-grid/protocol'

export interface GroupPolicy {
  /** H: inner steps of a round; auto: as many as fit into a round's best length (round-length.ts) */
  readonly innerSteps: number | 'auto'
  /** how the inner learning rate follows the number of members (crowd-rate.ts); absent: it does not */
  readonly crowdRate?: 'sqrt'
}

export function groupPolicy({ innerSteps = 'auto', crowdRate }: GroupSettings): GroupPolicy {
  return { innerSteps, ...(crowdRate === undefined ? {} : { crowdRate }) }
}

/** Rounds of one step are none: members push gradients. */
export function makesRounds(policy: GroupPolicy | undefined): boolean {
  return policy !== undefined && policy.innerSteps !== 1
}
