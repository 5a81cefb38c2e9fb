// What happened in a simulated grid: tests ask whether the rare states were reached.
import { CHRONICLED } from './chronicle.ts'

const COUNTED = [
  ...CHRONICLED,
  /** a holder came back while the coordinator waited for all (R6) */
  'lateReturns',
  /** a member answered a ballot that it had answered before */
  'equalBallots',
  /** whole states that members took over, and that the coordinator served; steps applied outside of a ring (R7) */
  'stateFetches',
  'coordinatorFetches',
  'catchUps',
  /** newcomers fetched a version while the ring ran without them; newcomers proved what they hold (R2) */
  'prefetches',
  'proofs',
  /** blocks that another member took over from one that was behind (R12) */
  'movedBlocks',
  /** a member carried its plan out to the end while no coordinator was there (R14) */
  'plansExhausted',
  'pushesTaken',
  'pushesRefused',
  /** leases that members gave back, and reports of files */
  'gaveBack',
  'unreadable',
  /** an append with an old fence failed; appends that a disk refused; rows that died with their process (R1) */
  'fencedAppends',
  'slowAppends',
  'lostDecisions',
  /** an answer over HTTP was lost although its request arrived */
  'lostAnswers',
  /** a request arrived twice */
  'repeatedRequests',
  /** members came back with a state that they had kept */
  'warmStarts',
  /** whole states that members uploaded */
  'uploads',
  /** a coordinator began with a run in async mode */
  'serverRestarts',
  /** members said different states, and the coordinator derived the true one */
  'derivedStates',
  /**
   * versions that members of groups began from, of which members were to serve a part; chunks that one falsified (G3)
   */
  'sharedVersions',
  'falseChunks',
  /** further jobs that owners submitted */
  'jobs',
] as const
export type Counted = (typeof COUNTED)[number]
export type Counts = Record<Counted, number>

export function noCounts(): Counts {
  return Object.fromEntries(COUNTED.map((name) => [name, 0])) as Counts
}

export function addCounts(total: Counts, one: Counts): void {
  for (const name of COUNTED) total[name] += one[name]
}
