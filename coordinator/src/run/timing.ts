// The times and counts of a run, each with its reason. Tests shorten them; the rules do not change.
import { LINK_OPEN_MS } from '@starling-grid/protocol'

/** From a disturbance to the next generation. */
export interface BallotTiming {
  /** to wait for STATE answers before deciding without the missing ones (R5) */
  readonly stateMs: number
  /** after a coordinator's restart: to wait for the members of the last generation */
  readonly rejoinMs: number
  /** without any valid claim, before a rewind (R6) */
  readonly lostMs: number
  /** for two members to open a link; they are told */
  readonly linkOpenMs: number
  /** without CONFIRM: out of the ballot (R17) */
  readonly formMs: number
  /** for a newcomer to CONFIRM when all that worked in a ring before have: then the others go on without it */
  readonly newcomerMs: number
  /** between the last change of membership and the ballot that admits newcomers */
  readonly admitMs: number
  readonly ballotsPerMinute: number
  /**
   * that the second attempt in a row which failed waits before the next; twice as long with each one more, up to the
   * longest
   */
  readonly retryMs: number
  readonly retryMaxMs: number
}

/** Of a generation that runs, and of who holds it up. */
export interface GenerationTiming {
  /**
   * without a commit, and three times what the step is expected to take: members are asked who holds it up (stalls.ts)
   */
  readonly contributeMs: number
  /** without a commit although steps are planned: new ballot */
  readonly stallMs: number
  /** a member blamed by two others stays out of the ring this long; twice as long each time it happens again */
  readonly excludeMs: number
  /** after which a failure of a link counts half (R18) */
  readonly linkMemoryMs: number
}

/** Of what becomes durable. */
export interface CheckpointTiming {
  /** committed steps between checkpoints, and the time after which one is due anyway */
  readonly checkpointSteps: number
  readonly checkpointMs: number
  /**
   * for an upload that was asked for, before another member is asked: the least; large models get longer (uploadMsOf)
   */
  readonly uploadMs: number
  /** for a run to write its head before its volunteers go to another job */
  readonly parkMs: number
}

/** Of the parameter server, and the way to it and back. */
export interface AsyncTiming {
  readonly leaseMinMs: number
  readonly leaseMaxMs: number
  /** calm needed in async mode before the ring is tried again; doubles with each fallback */
  readonly quietMs: number
  readonly quietMaxMs: number
  readonly abortsBeforeFallback: number
  /** versions that an async push may be behind (A2) */
  readonly stalenessBound: number
  /** for a thread of the parameter server to answer */
  readonly threadAnswerMs: number
  /** members of replica groups that fetch each version from the coordinator at least; the others from members (G3) */
  readonly versionSeeds: number
  /** bytes a ms of pushes and versions up to which more of them do */
  readonly easyBytesPerMs: number
}

/** Milliseconds and counts that decisions depend on; the defaults below have their reasons. */
export interface Timing extends BallotTiming, GenerationTiming, CheckpointTiming, AsyncTiming {}

export const DEFAULT_TIMING: Timing = {
  stateMs: 2000, // T_state of R5: one lost message and its socket's round trip
  rejoinMs: 10_000, // reconnects are spread over a few seconds by full jitter
  lostMs: 60_000, // T_lost of R6: when all members vanish it is mostly our own network
  linkOpenMs: LINK_OPEN_MS,
  formMs: 30_000, // fetch of a state plus linkOpenMs for the links
  newcomerMs: 10_000, // it has its state already, or nearly; links open within a second or two
  contributeMs: 10_000, // a browser's hiccup, a GPU that is shared with a game, a line that is renewed
  stallMs: 60_000, // the net below contributeMs
  admitMs: 2000, // joins come in bunches: one ballot for all of them
  checkpointSteps: 200,
  uploadMs: 20_000, // a state of 64 M parameters and two moments takes so long at 300 Mbit/s; slower lines are measured
  checkpointMs: 15_000, // the bound on repeated work that promise 2 states for async mode (A4)
  parkMs: 120_000, // a step and the upload of a large state; the new job waits no longer
  leaseMinMs: 10_000,
  leaseMaxMs: 600_000,
  quietMs: 20_000,
  quietMaxMs: 300_000,
  abortsBeforeFallback: 3, // k of R17
  ballotsPerMinute: 20, // X of R17
  retryMs: 250, // a ballot on a LAN takes about as long
  retryMaxMs: 30_000, // people who watch see that something happens
  excludeMs: 60_000,
  linkMemoryMs: 600_000, // routers and networks change some times a day; a try that fails costs linkOpenMs
  stalenessBound: 16, // as many volunteers may push at once; published SSP systems use 3–10
  threadAnswerMs: 30_000, // as for a process (parameter-server/shard-processes.ts)
  easyBytesPerMs: 9000, // 75 Mbit/s, of the 100 Mbit/s that rounds may ask (run/groups/round-length.ts)
  versionSeeds: 16, // a thousand are served over six members in a row, each of which passes it on to two in its time
}

/** Members from which on what people read of them is renewed after so many ms, and not at once. */
export const CROWD = 256
export const CROWD_WORDS_MS = 1000
