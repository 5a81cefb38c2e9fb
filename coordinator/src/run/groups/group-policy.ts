// What a job says of its replica groups, with defaults.

export interface GroupPolicy {
  /** H: inner steps of a round */
  readonly innerSteps: number
}
