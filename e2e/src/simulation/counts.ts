// What happened in a simulation: tests ask whether the rare states were reached.

export const FAULTS = [
  'member-crash',
  'member-leave',
  'socket-loss',
  'socket-loss-in-exchange',
  'all-sockets-lost',
  'coordinator-crash',
  'crash-between-effects',
  'takeover',
  'spurious-abort',
  'link-partition',
  // a member claims a step beyond the committed chain that no ring made
  'false-claim',
  'bad-gradient',
  'everybody-dies',
  // a laptop's lid, a computation that hangs, a network that is gone, links that stop and go on one by one
  'suspended-member',
  'stuck-member',
  'network-outage',
  'swizzle',
  // a disk that takes nothing for a while
  'disk-failure',
  // another job gets all members for a while
  'job-switch',
  // the bytes of a checkpoint are gone
  'damaged-checkpoint',
  // the data folder of an earlier moment
  'restored-backup',
  // a file of the dataset on the coordinator's disk, and a member whose requests for such files fail, for a while
  'damaged-shard',
  'lost-downloads',
  // a volunteer comes that is mute, holds another state than it says, or opens no link
  'odd-newcomer',
] as const
export type Fault = (typeof FAULTS)[number]

const COUNTED = [
  'ballots',
  'generations',
  'commits',
  'rewinds',
  'checkpoints',
  'quarantines',
  /** blocks that came back when their file was whole again; leases that members gave back, and reports of files */
  'restorations',
  'gaveBack',
  'unreadable',
  /** a holder came back while the coordinator waited for all (R6), or after the rewind, in time to undo it */
  'lateReturns',
  'undoneRewinds',
  /** a member answered a ballot that it had answered before */
  'equalBallots',
  'ringToAsync',
  'asyncToRing',
  /** `auto` changed between steps and local rounds, either way; and rounds that were committed (A7) */
  'localChanges',
  'rounds',
  /** whole states, from members and from the coordinator; kept reduced gradients (R7) */
  'stateFetches',
  'coordinatorFetches',
  'catchUps',
  /**
   * buckets of a gradient that left before the rest of it was computed, and those whose step a ballot then ended (R3)
   */
  'earlyBuckets',
  'voidBuckets',
  /** steps that a member completed in a direct exchange */
  'directSteps',
  /** frames that the coordinator carried past a bad link (R18) */
  'relayedFrames',
  /** blocks that another member took over from one that was behind (R12) */
  'movedBlocks',
  /** blocks of a round that inner steps had learned from before a ballot and kept (A7) */
  'resumedBlocks',
  /** newcomers fetched a version while the ring ran without them, and steps that they followed it by */
  'prefetches',
  'followedSteps',
  /** newcomers proved what they hold, or tried to */
  'proofs',
  /**
   * sums of off-ring members that a member of the ring was given, and blocks of off-ring members that are on the chain
   * (A1)
   */
  'offRingSums',
  'offRingBlocks',
  /** a member carried its plan out to the end while no coordinator was there (R14) */
  'plansExhausted',
  'pushesTaken',
  'pushesRefused',
  'validations',
  /** an append with an old fence failed */
  'fencedAppends',
  /** a decision waited for the disk; what waited was lost with its process (R1) */
  'slowAppends',
  'lostDecisions',
  /** an answer over HTTP was lost although its request arrived */
  'lostAnswers',
  /** members came back with a state that they had kept */
  'warmStarts',
  /** a checkpoint could not be read when it was needed, and an older one served */
  'damagedCheckpoints',
  /** steps whose rows a restored journal had lost, and that members brought back */
  'restoredSteps',
  /** whole states that members began to upload */
  'uploads',
  /** a coordinator restarted while a parameter server ran */
  'serverRestarts',
] as const
export type Counted = (typeof COUNTED)[number]

export interface Counts extends Record<Counted, number> {
  readonly faults: Record<Fault, number>
}

export function noCounts(): Counts {
  const zero = <K extends string>(names: readonly K[]): Record<K, number> =>
    Object.fromEntries(names.map((name) => [name, 0])) as Record<K, number>
  return { ...zero(COUNTED), faults: zero(FAULTS) }
}

export function addCounts(total: Counts, one: Counts): void {
  for (const name of COUNTED) total[name] += one[name]
  for (const fault of FAULTS) total.faults[fault] += one.faults[fault]
}
