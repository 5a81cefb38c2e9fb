// How fast a member counts as, for assignments and plans. What it says of itself is a claim. It counts up to twice what
// is usual among the others. Beyond that, committed steps must show that it did its assignment in time. Pure.

/** What is known of one member's speed, in samples per second. */
export interface Speed {
  /** as it says; 0: not known */
  readonly samplesPerSecond: number
  /** of its assignment, over the whole time that a committed step took: it was at least so fast */
  readonly shownSpeed: number
  /** committed steps that it held */
  readonly stepsHeld: number
}

/** Times the lower median of the others: what a member may claim at once. */
const CLAIMED = 2
/** Committed steps after which what they showed counts: about a plan. */
const STEPS = 50
/** Times what it showed: a step is also exchange, and assignments have to grow before more can be shown. */
const SHOWN = 4
/** Times the lower median of the others at most: the content of an assignment is not checked yet. */
const MOST = 16
/** Part of what was shown that is kept from step to step: a member that became slower is not fast for ever. */
const KEPT = 0.98

/** By rank; 0 where nothing at all is known. Thousands are sorted once, not once for each of them. */
export function countedSpeeds(members: readonly Speed[]): number[] {
  const measured = members
    .flatMap(({ samplesPerSecond }) => (samplesPerSecond > 0 ? [samplesPerSecond] : []))
    .sort((a, b) => a - b)
  if (members.length === 1 || measured.length < 2)
    // nothing to compare a claim with
    return members.map(({ samplesPerSecond }) => (members.length === 1 ? samplesPerSecond : 0))
  return members.map((member) => {
    const usual = usualOfOthers(measured, member.samplesPerSecond)
    if (member.samplesPerSecond <= 0) return usual
    const shown = member.stepsHeld < STEPS ? 0 : Math.min(MOST * usual, SHOWN * member.shownSpeed)
    return Math.min(member.samplesPerSecond, Math.max(CLAIMED * usual, shown))
  })
}

/** After a committed step: `samples` of its assignment, `ms` of the whole step. */
export function shownNow(
  { shownSpeed }: Pick<Speed, 'shownSpeed'>,
  { samples, ms }: { readonly samples: number; readonly ms: number },
): number {
  return Math.max(KEPT * shownSpeed, (1000 * samples) / Math.max(ms, 1))
}

/** The lower median of `ascending` without `own`, which is one of them where it is above 0. */
function usualOfOthers(ascending: readonly number[], own: number): number {
  if (own <= 0) return ascending[(ascending.length - 1) >> 1] ?? 0
  const middle = (ascending.length - 2) >> 1
  const usual = ascending[middle] ?? 0
  return own <= usual ? (ascending[middle + 1] ?? usual) : usual
}
