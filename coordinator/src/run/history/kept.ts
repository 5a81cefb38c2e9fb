// How much of a run's past stays in memory, and so in a snapshot.
import { MOST_BEST_CHECKPOINTS } from '@starling-grid/protocol'

/** Generations whose members are remembered: claims are of the newest few. */
export const RINGS_KEPT = 64
/** Validated versions whose results by block are kept: the newest ones. */
export const VALIDATED_KEPT = 4
/** Checkpoints of `keep.every`: a disk is finite. */
export const MOST_OF_EVERY = 100
/** Checkpoints that the job keeps beside the newest ones. */
export const MOST_KEPT = MOST_OF_EVERY + MOST_BEST_CHECKPOINTS
/** Checkpoints whose bytes are deleted with the next new one: the rules let go of a few meanwhile. */
export const MOST_RELEASED = 16
