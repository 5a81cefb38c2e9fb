// Which variants of a call are measured, and in which order, when others with such an adapter named one. What several
// named needs two measurements instead of all; what one named comes first, and no more. Pure.
import { type VariantVotes, VOTES_TO_CONFIRM } from '@starling-grid/protocol'

/** What others say of one shape. */
export type VariantVote = Pick<VariantVotes['shapes'][number], 'variant' | 'votes'>

export interface Timing {
  readonly variant: string
  readonly ms: number
}

export interface MeasuringOrder<T> {
  readonly order: readonly T[]
  /** measured even when the time is over: what others named is never used without another one beside it */
  readonly least: number
  /** the first two decide, unless the first fails the check */
  readonly isConfirmed: boolean
}

/** The variant that is taken over, and the one that it is compared with. */
export const CHECKED = 2
/** Timings of one variant differ by so much from run to run. */
const CHECK_MARGIN = 1.1

/** `candidates`: the first guess first. A name that none of them has is no vote. */
export function measuringOrder<T>(
  candidates: readonly T[],
  nameOf: (candidate: T) => string,
  vote: VariantVote | undefined,
): MeasuringOrder<T> {
  const named = candidates.find((candidate) => nameOf(candidate) === vote?.variant)
  if (vote === undefined || named === undefined) return { order: candidates, least: 1, isConfirmed: false }
  const order = [named, ...candidates.filter((candidate) => candidate !== named)]
  return { order, least: CHECKED, isConfirmed: vote.votes >= VOTES_TO_CONFIRM }
}

/** Whether what others named is as good here as they say; `timings`: of it, then of the first guess. */
export function passesCheck([named, guess]: readonly Timing[]): boolean {
  return named !== undefined && guess !== undefined && named.ms <= CHECK_MARGIN * guess.ms
}
