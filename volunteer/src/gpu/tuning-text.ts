// What a volunteer says of its tuning: how much was measured, and what was taken over from others. Pure.

export interface TuningTally {
  /** calls with several variants that were measured or checked now */
  readonly shapes: number
  readonly variants: number
  readonly ms: number
  /** whose reports the coordinator had */
  readonly volunteers: number
  /** shapes whose variant several others named, and that passed the check */
  readonly takenOver: number
  /** how many named the one of these that fewest named */
  readonly fewestVotes: number
  /** shapes whose variant several others named, and that was slower here */
  readonly dropped: number
  /** shapes whose variant one other named: measured like any other */
  readonly unconfirmed: number
  /** shapes for which no time was left */
  readonly left: number
}

/** Undefined: nothing was to be measured. */
export function tuningText(tally: TuningTally): string | undefined {
  const { shapes, variants, ms, volunteers, takenOver, fewestVotes, dropped, unconfirmed, left } = tally
  if (shapes === 0 && left === 0) return undefined
  const least = fewestVotes < volunteers ? `at least ${fewestVotes} of ` : ''
  const from = `${least}${volunteers} volunteers with this class of adapter`
  const parts = [
    `kernels: ${counted(variants, 'variant')} of ${counted(shapes, 'shape')} measured in ${(ms / 1000).toFixed(2)} s`,
    ...(takenOver > 0 ? [`${takenOver} taken over from ${from}, checked`] : []),
    ...(dropped > 0 ? [`${dropped} that others named dropped, because they are slower here`] : []),
    ...(unconfirmed > 0 ? [`${unconfirmed} named by one volunteer alone, and not taken over`] : []),
    ...(left > 0 ? [`${left} left with the first guess, because the time was over`] : []),
  ]
  return `${parts.join('; ')}.`
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`
}
