// What a job says of its replica groups, with defaults.
import type { GroupSettings } from '@starling-grid/protocol'

export interface GroupPolicy {
  /** H: inner steps of a round; auto: as many as fit into a round's best length (round-length.ts) */
  readonly innerSteps: number | 'auto'
}

export function groupPolicy({ innerSteps = 'auto' }: GroupSettings): GroupPolicy {
  return { innerSteps }
}

/** Rounds of one step are none: members push gradients. */
export function makesRounds(policy: GroupPolicy | undefined): boolean {
  return policy !== undefined && policy.innerSteps !== 1
}
