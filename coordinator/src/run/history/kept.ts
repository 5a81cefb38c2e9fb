// How much of a run's past stays in memory, and so in a snapshot.

/** Generations whose members are remembered: claims are of the newest few. */
export const RINGS_KEPT = 64
/**
 * Checkpoints whose bytes are kept: the newest is what a rewind needs; the others serve when it is damaged, and people
 * who compare.
 */
export const KEPT_CHECKPOINTS = 3
/** Validated versions whose results by block are kept: the newest ones. */
export const VALIDATED_KEPT = 4
