// What a job says of its replica groups, with defaults.
import type { GroupSettings } from '@starling-grid/protocol'

export interface GroupPolicy {
  /** H: inner steps of a round */
  readonly innerSteps: number
}

/** Over home lines a round should last for a minute; a ring exchanges all the time. */
const INNER_STEPS = 32

export function groupPolicy({ innerSteps = INNER_STEPS }: GroupSettings): GroupPolicy {
  return { innerSteps }
}
