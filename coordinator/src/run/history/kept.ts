// How much of a run's past stays in memory, and so in a snapshot.

/** Generations whose members are remembered: claims are of the newest few. */
export const RINGS_KEPT = 64
/** Validated versions whose results by block are kept: the newest ones. */
export const VALIDATED_KEPT = 4
