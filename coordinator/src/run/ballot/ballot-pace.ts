// How long a ballot waits before it is decided. Attempts that fail one after the other wait longer each time, in every
// mode, even when members are left out. Ballots that come in bunches wait, too. So a run has at most `ballotsPerMinute`
// ballots in a minute plus those that fit between waits of LONGEST_CROWDED_MS. These are 37 with the default timing,
// each with one row in the journal and one START.
import { random32 } from '@starling-grid/protocol'
import type { RunState } from '../state.ts'

/** ms that the first ballot beyond `ballotsPerMinute` in a minute waits; twice as long with each one more */
const FIRST_CROWDED_MS = 250
/** ms that such a ballot waits at most: members come and go some times a minute, and the run has to work between */
const LONGEST_CROWDED_MS = 5000
/** Part of a wait that jitter adds at most, so that a cause which repeats does not meet the same moment each time. */
const JITTER = 0.5
const MINUTE_MS = 60_000

export interface BallotWait {
  readonly ms: number
  /** for people; empty: the ballot does not wait */
  readonly why: string
}

/** The wait of the ballot that is opened now, before it is counted in `health.ballots`. */
export function ballotWait({ health, config, generation }: RunState, now: number): BallotWait {
  const { timing, seed } = config
  const troubles = health.consecutiveAborts
  const crowd = health.ballots.filter((at) => now - at < MINUTE_MS).length - timing.ballotsPerMinute
  const afterTrouble = troubles < 2 ? 0 : Math.min(timing.retryMaxMs, timing.retryMs * 2 ** (troubles - 2))
  const inCrowd = crowd < 0 ? 0 : Math.min(LONGEST_CROWDED_MS, FIRST_CROWDED_MS * 2 ** crowd)
  if (afterTrouble === 0 && inCrowd === 0) return { ms: 0, why: '' }
  const ms = Math.round(Math.max(afterTrouble, inCrowd) * (1 + JITTER * unit(seed, generation)))
  return {
    ms,
    why:
      afterTrouble >= inCrowd
        ? `${troubles} attempts in a row failed`
        : `there were ${crowd + timing.ballotsPerMinute} ballots in a minute`,
  }
}

/** 0…1, the same for the same run and ballot. */
function unit(seed: number, generation: number): number {
  return random32(Math.imul(seed | 0, 0x9e3779b1) ^ generation)() / 2 ** 32
}
