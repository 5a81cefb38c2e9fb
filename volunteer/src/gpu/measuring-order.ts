// Which variants of a call are measured, and in which order, when others with such an adapter named one. What several
// named needs two measurements instead of all; what one named comes first, and no more. Pure.
import { type VariantVotes, VOTES_TO_CONFIRM } from '@starling-grid/protocol'
import type { MeasuredVariant } from './tuning-table.ts'

/** What others say of one shape. */
export type VariantVote = Pick<VariantVotes['shapes'][number], 'variant' | 'votes'>

export interface VariantTiming {
  readonly variant: string
  readonly ms: number
}

export interface MeasuringOrder<T> {
  /** the first guess first, after what others named */
  readonly order: readonly T[]
  /** others named the first of the order */
  readonly isNamed: boolean
  /** so many did that the first two decide, unless the first fails the check */
  readonly isConfirmed: boolean
}

export interface MeasuringOutcome {
  readonly measured: MeasuredVariant
  /** variants that ran */
  readonly variants: number
  /** of others, for what was measured first */
  readonly votes: number
  /** what became of the variant that others named */
  readonly others: 'none' | 'unconfirmed' | 'taken over' | 'dropped'
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
  if (vote === undefined || named === undefined) return { order: candidates, isNamed: false, isConfirmed: false }
  const order = [named, ...candidates.filter((candidate) => candidate !== named)]
  return { order, isNamed: true, isConfirmed: vote.votes >= VOTES_TO_CONFIRM }
}

/** Measured even when the time is over: what others named is never used without another one beside it. */
export function leastOf({ isNamed }: Pick<MeasuringOrder<unknown>, 'isNamed'>): number {
  return isNamed ? CHECKED : 1
}

/** Whether what others named is as good here as they say; `timings`: of it, then of the first guess. */
export function passesCheck([named, guess]: readonly VariantTiming[]): boolean {
  return named !== undefined && guess !== undefined && named.ms <= CHECK_MARGIN * guess.ms
}

/** `timings`: in the order in which they were measured. */
export function outcomeOf(
  plan: MeasuringOrder<unknown>,
  vote: VariantVote | undefined,
  timings: readonly VariantTiming[],
): MeasuringOutcome {
  const others = fateOf(plan, timings)
  const isTaken = others === 'taken over'
  const [first = { variant: '', ms: 0 }, ...rest] = timings.toSorted((a, b) => a.ms - b.ms)
  const [second] = rest
  const asGood = rest.filter(({ ms }) => ms <= CHECK_MARGIN * first.ms).map(({ variant }) => variant)
  const measured = {
    ...first,
    ...(second ? { nextMs: second.ms } : {}),
    ...(timings.length === plan.order.length && !isTaken ? { asGood } : {}),
    ...(isTaken && first.variant === vote?.variant ? { takenFrom: vote.votes } : {}),
  }
  return { measured, variants: timings.length, votes: vote?.votes ?? 0, others }
}

function fateOf({ isNamed, isConfirmed }: MeasuringOrder<unknown>, timings: readonly VariantTiming[]) {
  if (isConfirmed) return passesCheck(timings) ? 'taken over' : 'dropped'
  return isNamed ? 'unconfirmed' : 'none'
}
