// What must survive a restart: a run's settings, the entries of its journal, and the state that they make. Only
// applyEntry (journal-replay.ts) writes it, live and on replay; all others see it as `Recording`.
import type {
  BlockId,
  EvaluateRule,
  Exchange,
  JobId,
  KeepRule,
  Measurements,
  MemberId,
  Mode,
  Sha256,
  StepRecord,
  StopRule,
  Tally,
  VersionRef,
} from '@starling-grid/protocol'
import type { OptimizerSpec } from '@starling-grid/shaders'
import type { AppendedShards } from './appended-shards.ts'
import type { AsyncPolicy } from './async/async-policy.ts'
import type { Evaluation } from './history/ending.ts'
import type { WrittenRun } from './history/written-run.ts'
import type { EncodingRung, RoundBytes } from './policy/encoding-choice.ts'
import type { Chain, ChainIndex } from './queue/chain-index.ts'
import type { Timing } from './timing.ts'

/** Version 0, and what makes it. */
interface RunBeginning {
  readonly genesis: VersionRef
  readonly seed: number
  /** digest of the parameters of version 0, which members fetch; absent: they make them from the seed */
  readonly initial?: Sha256
}

/** Which samples a run trains on, and how many at a time. */
interface RunBlocks {
  /** training and validation blocks per epoch */
  readonly blocks: number
  readonly validationBlocks: number
  /** blocks of a shard, about: rounds take what lies together (decision 60); absent: 1 */
  readonly shardBlocks?: number
  readonly batchBlocks: number
  /** samples of a whole block */
  readonly blockSamples: number
  /** at most; fewer when the owner ends the run with one */
  readonly epochs: number
  /** `batchBlocks` are of each member, and the learning rate follows (weak-scaling.ts); absent: of all */
  readonly weak?: {
    /** steps in which the rate rises to that of a larger batch */
    readonly warmup: number
    readonly optimizer: OptimizerSpec
  }
  /** H: global batches in one local round */
  readonly roundSteps: number
}

export interface RunConfig extends RunBeginning, RunBlocks {
  readonly job: JobId
  /** what else ends the run */
  readonly stop: StopRule
  readonly evaluate: EvaluateRule
  readonly keep: KeepRule
  readonly minVolunteers: number
  readonly mode: 'auto' | Mode
  /** which way gradients take in a ring, and the bytes of one as it travels */
  readonly exchange: { readonly asked: 'auto' | Exchange; readonly bytes: number }
  /** of a job whose encoding is `auto`: those that it may use, the finest first (encoding-choice.ts) */
  readonly encodings?: readonly EncodingRung[]
  /** bytes that a member of async mode fetches and sends for one push */
  readonly roundBytes: RoundBytes
  /** bytes of a whole state as it is uploaded, about */
  readonly versionBytes: number
  readonly async: AsyncPolicy
  readonly timing: Timing
}

/** What must survive a restart. Replaying the entries in order rebuilds the durable state (docs/RULES.md). */
export type JournalEntry =
  | { readonly type: 'fence'; readonly fence: number }
  /** `after`: generations between the two may have run under rows that a restored journal does not have */
  | { readonly type: 'ballot'; readonly generation: number; readonly after?: number }
  | {
      readonly type: 'start'
      readonly generation: number
      readonly members: readonly MemberId[]
      readonly records: readonly StepRecord[]
    }
  | { readonly type: 'commit'; readonly records: readonly StepRecord[] }
  | {
      readonly type: 'checkpoint'
      readonly version: VersionRef
      readonly blob: Sha256
      readonly bytes: number
      readonly witnessed: boolean
      readonly agreeing: number
      readonly members: number
      readonly remembered?: Sha256
    }
  /**
   * `final`: members disagreed about what is cut off, so that it cannot come back with them, of no generation up to
   * `generation`
   */
  | { readonly type: 'rewind'; readonly to: VersionRef; readonly final?: true; readonly generation?: number }
  | { readonly type: 'mode'; readonly mode: Mode; readonly modeEpoch: number; readonly reason: string }
  | { readonly type: 'lease'; readonly reserved: number }
  | { readonly type: 'quarantine'; readonly block: BlockId }
  /** their shard is whole again */
  | { readonly type: 'restored'; readonly blocks: readonly BlockId[] }
  /** a checkpoint that cannot be read, or that is not the state of its version: it no longer counts as one */
  | { readonly type: 'checkpoint-damaged'; readonly version: VersionRef }
  /** members said different states of a version: what the coordinator derived, or why votes decided; for people */
  | ({ readonly type: 'derived'; readonly version: VersionRef } & Derived)
  | {
      readonly type: 'validated'
      readonly version: VersionRef
      readonly block: BlockId
      readonly samples: number
      readonly targets: number
      readonly correct: number
      readonly lossSum: number
      readonly tally?: Tally
      /** two members measured the same; absent in journals from before that was asked */
      readonly confirmed?: boolean
    }
  /** all blocks of a version are validated: means over its targets */
  | ({ readonly type: 'evaluated'; readonly version: VersionRef; readonly confirmed: boolean } & Measurements)
  /** the owner appended data: its shards are of the epochs from this one on */
  | ({ readonly type: 'appended' } & AppendedShards)
  /** ms of training so far, of a job with a limit of minutes */
  | { readonly type: 'trained'; readonly ms: number }
  /** the owner ended the run early: it has this many epochs now */
  | { readonly type: 'epochs'; readonly epochs: number }
  /** the owner lets the run rest, or go on */
  | { readonly type: 'paused'; readonly paused: boolean }
  | { readonly type: 'finished'; readonly reason: string }
  /**
   * what all entries before made, so that they can go. `run`: the durable state (snapshot.ts); `shown`: what people are
   * shown of the past (run-history.ts). Both are checked when they are read
   */
  | { readonly type: 'snapshot'; readonly run: WrittenRun; readonly shown: unknown }

export interface Checkpoint {
  readonly version: VersionRef
  /** undefined for version 0: it is made from the seed, or from the parameters that the job began with */
  readonly blob: Sha256 | undefined
  readonly bytes: number
  /** blob of what the parameter server that wrote it remembers of pushes */
  readonly remembered?: Sha256
  /** a member other than its uploader vouches for it (R15) */
  readonly witnessed: boolean
  /** members of the ring of `members` that reported these bytes, the uploader included */
  readonly agreeing: number
  readonly members: number
  readonly at: number
}

export interface ValidationResult {
  readonly samples: number
  readonly targets: number
  readonly correct: number
  readonly lossSum: number
  readonly tally?: Tally
  /** two members measured the same */
  readonly confirmed: boolean
}

/** A committed step, or one that a ballot is about to commit, and what it leads to. */
export interface SumStep {
  readonly record: StepRecord
  readonly version: VersionRef
}

/** The digest of a version's state; or why it was not derived. */
export type Derived = { readonly digest: Sha256 } | { readonly why: string }

interface RecordedBlocks {
  /** replaced as a whole, when the owner ends the run early */
  config: RunConfig
  readonly chain: ChainIndex
  /** the oldest first */
  appended: readonly AppendedShards[]
}

interface RecordedWork {
  readonly checkpoints: Checkpoint[]
  /** those that the job keeps beside the newest ones, the oldest first (keep.ts) */
  kept: readonly Checkpoint[]
  /** those that it kept until a while ago: their bytes are to go */
  released: readonly Checkpoint[]
  finished: string | undefined
  /** by its owner */
  paused: boolean
  /** the branch that the last rewind cut off: a member that returns with it can bring it back (R6) */
  abandoned: readonly StepRecord[]
  readonly quarantined: Set<BlockId>
  /** how often blocks came back from there */
  restorations: number
  /** version id → finished validation results by block */
  readonly validated: Map<string, Map<BlockId, ValidationResult>>
  /** validated versions of the chain, the oldest first: the newest ones, and the best */
  evaluations: readonly Evaluation[]
}

interface RecordedNumbers {
  fence: number
  generation: number
  mode: Mode
  modeEpoch: number
  modeReason: string
  /** numbers of leases up to here may be in use (R16) */
  leasesReserved: number
  /** ms of training */
  trainedMs: number
}

interface RecordedGenerations {
  /** members of the last generations that started: a restart waits for them, and their claims bound each other (R5) */
  readonly rings: Map<number, readonly MemberId[]>
  /** numbers of generations that ran under rows which this journal lost (restored.ts) */
  lostGenerations: { readonly from: number; readonly to: number } | undefined
  /** steps of generations up to here that are not on the chain cannot come back (`final` rewinds) */
  forgottenGeneration: number
}

/** For applyEntry alone. */
export interface Recorded extends RecordedBlocks, RecordedWork, RecordedNumbers, RecordedGenerations {}

/** Durable state, as it is read. */
export type Recording = { readonly [K in keyof Recorded]: K extends 'chain' ? Chain : Read<Recorded[K]> }

type Read<T> =
  T extends Map<infer K, infer V>
    ? ReadonlyMap<K, Read<V>>
    : T extends Set<infer V>
      ? ReadonlySet<V>
      : T extends readonly (infer E)[]
        ? readonly E[]
        : T
