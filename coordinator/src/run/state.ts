// The state of one run, its events and its effects. The reducer (run.ts) owns the state and changes it in place. It
// does no I/O, reads no clock and draws no randomness, so the same state, event and time always give the same decision.
import type {
  AdapterDescription,
  BlockId,
  Claim,
  Consumed,
  MemberId,
  Push,
  Sha256,
  ShardRef,
  StepRecord,
  StepScaling,
  ToCoordinator,
  ToVolunteer,
  VersionRef,
  ErrorCode,
  GradientEncoding,
  RunEvent,
} from '@starling-grid/protocol'
import type { PushWeights } from '../parameter-server/add-push.ts'
import type { PushNorms } from '../parameter-server/norm-clip.ts'
import type { SourceLink } from './links/source-links.ts'
import type { ExchangeChoice } from './policy/exchange-choice.ts'
import type { GenerationHealth } from './policy/generation-health.ts'
import type { LeaseIndex } from './queue/lease-index.ts'
import type { Checkpoint, Derived, JournalEntry, Recording, SumStep } from './recorded.ts'

export type { Lease } from './queue/lease-index.ts'
export type { Checkpoint, Derived, JournalEntry, RunConfig, SumStep, ValidationResult } from './recorded.ts'

export interface MemberInfo {
  readonly id: MemberId
  readonly name: string
  readonly client: 'node' | 'tab'
  readonly adapter: AdapterDescription
  /**
   * where its socket comes from, in words that only have to be equal or not: members of one network count as one voice
   */
  readonly network?: string
  /** opens no direct link */
  readonly relaysOnly?: boolean
}

/** How far the coordinator believes a member. */
interface MemberTrust {
  /** committed steps that it held, and how fast they show it to be at least (speed-trust.ts) */
  stepsHeld: number
  shownSpeed: number
  /** pushes in a row that were refused for what they held, and until when it gets no work for that */
  refusedPushes: number
  noWorkUntil: number
  /** how often it held other bytes than others, and whether its state is to be fetched anew at the next FORM */
  differed: number
  drifted: boolean
  /** how often two others contradicted what it measured, and until when it validates nothing for that */
  outvoted: number
  noSayUntil: number
}

export interface Member extends MemberInfo, MemberTrust {
  samplesPerSecond: number
  /** a tab in the background */
  hidden: boolean
  readonly joinedAt: number
  /** ms: last work, or when it could have begun (inert.ts) */
  workedAt: number
  /** asked to leave */
  leaving: boolean
  /** not in a ring before this time (blamed, or did not confirm) */
  excludedUntil: number
  /** the member that it reaches in no way, for which it was left out (R18) */
  excludedOver: MemberId | undefined
  /** how often in a row it was left out */
  exclusions: number
  /** no source for the parameter server before this time (was asked to upload and did not) */
  cannotUploadUntil: number
  /** did not answer the last ballot in time: asked again at the next, not waited for and no reason to open one */
  silent: boolean
  /** async: asked for work and got none yet */
  awaitingLease: boolean
  /** async: leases in a row that ended without a push: others are served first */
  missedLeases: number
  /** async: its last grant, which a push names as a whole (G1) */
  granted:
    | {
        readonly leaseEpoch: number
        readonly blocks: readonly BlockId[]
        /** units of the data that the member did not have: the time that these take says little of the exchange */
        readonly fetches?: readonly number[]
        /** of its push, where the run chooses it */
        readonly encoding?: GradientEncoding
      }
    | undefined
  /** async: moving average of the time from grant to push, ms; 0 before the first */
  pushMs: number
  /** bytes a ms of its uploads, when last measured */
  uploadRate: number | undefined
}

/** An upload that is no checkpoint yet. */
export interface Provisional {
  readonly version: VersionRef
  readonly blob: Sha256
  readonly bytes: number
  readonly from: MemberId
  /** ms */
  readonly at: number
}

/** The members of one ring in their order. */
export interface GenerationMembers {
  readonly generation: number
  readonly members: readonly MemberId[]
  /** pairs of places whose link goes through the coordinator */
  readonly relayed: readonly RankPair[]
  readonly exchange: ExchangeChoice
}

/** The lower one first. */
export type RankPair = readonly [number, number]

export type RunPhase =
  | { readonly type: 'waiting' }
  | {
      readonly type: 'freeze'
      readonly since: number
      readonly goal: 'ring' | 'async'
      /** not decided before all of these answered or the time is up */
      readonly expected: Set<MemberId>
      readonly deadline: number
      /** ms: not decided before, since attempts before this one failed (ballot-pace.ts) */
      readonly notBefore: number
      /** ms: since when the holders of the committed version are waited for (R6) */
      readonly lostSince?: number
      /** members whose promise is above this ballot (restored.ts) */
      readonly outpromised: Set<MemberId>
      readonly claims: Map<MemberId, Claim | null>
      /** what members learned from in a round that this ballot ended (A7) */
      readonly consumed: Map<MemberId, Consumed>
      /** what this ballot ended: its members may still say what was wrong with their links */
      readonly before: GenerationMembers | undefined
    }
  | {
      readonly type: 'form'
      readonly since: number
      readonly members: readonly MemberId[]
      readonly relayed: readonly RankPair[]
      readonly exchange: ExchangeChoice
      readonly weights: readonly number[]
      readonly records: readonly StepRecord[]
      readonly target: VersionRef
      /** members that claim it */
      readonly sources: readonly MemberId[]
      /** links to sources that go through the coordinator, beside those of the generation (R18) */
      readonly relayedSources: readonly SourceLink[]
      readonly consumed: ReadonlyMap<MemberId, Consumed>
      readonly confirmed: Map<MemberId, Sha256>
      /** ms: the last CONFIRM */
      lastConfirmAt: number | undefined
      /** members that have what they need for it (ring/form-deadlines.ts) */
      readonly near: ReadonlySet<MemberId>
    }
  | {
      readonly type: 'ring'
      readonly since: number
      readonly members: readonly MemberId[]
      readonly relayed: readonly RankPair[]
      /** the reason and the costs are those of now */
      exchange: ExchangeChoice
      readonly weights: readonly number[]
      /** step → its assignments, where speeds changed since FORM */
      readonly planWeights: Map<number, readonly number[]>
      /** version → who holds it, and the record they agree on */
      readonly held: Map<number, { readonly record: StepRecord; readonly by: Set<MemberId> }>
      /** last planned step and the blocks planned beyond C */
      plannedTo: number
      /** the committed version that its members were last told of */
      ackedTo: number
      readonly planned: Map<number, readonly BlockId[]>
      /** of planned steps, in a job with weak scaling */
      readonly scalings: Map<number, StepScaling>
      /** last commit, plan or validation result */
      progressAt: number
      /** members change after this step */
      lastStep: { readonly step: number; readonly at: number; readonly reason: string } | undefined
    }
  /** ring → async: the source uploads the decided version (A5) */
  | {
      readonly type: 'handover'
      readonly since: number
      readonly target: VersionRef
      readonly records: readonly StepRecord[]
      /** all that hold the target; those in turn that are asked to upload it, the others say their digests */
      readonly holders: readonly MemberId[]
      readonly source: MemberId
      /** ms: when the first byte came */
      begunAt: number | undefined
      upload: Provisional | undefined
    }
  /** async → ring: the parameter server writes its newest version (A6) */
  | { readonly type: 'settle'; readonly since: number; readonly target: VersionRef }
  | { readonly type: 'async'; readonly since: number; checkpointAskedAt: number | undefined }
  | { readonly type: 'lost'; readonly since: number; readonly goal: 'ring' | 'async' }
  | { readonly type: 'finished' }

export type RingPhase = Extract<RunPhase, { type: 'ring' }>
export type FormPhase = Extract<RunPhase, { type: 'form' }>
export type AsyncPhase = Extract<RunPhase, { type: 'async' }>

/**
 * What the aspects of a run remember beside the journal. Each declares its part in its own file, which alone changes it
 * (`own`); a restart begins all of them anew.
 */
// eslint-disable-next-line typescript/no-empty-object-type
export interface Slices {}

type Shown = { readonly [K in keyof Slices]: DeepReadonly<Slices[K]> }

/** As others see it. */
export type DeepReadonly<T> = T extends
  | ((...args: never[]) => unknown)
  | string
  | number
  | boolean
  | bigint
  | symbol
  | null
  | undefined
  ? T
  : T extends ReadonlyMap<infer K, infer V>
    ? ReadonlyMap<K, DeepReadonly<V>>
    : T extends ReadonlySet<infer V>
      ? ReadonlySet<V>
      : { readonly [K in keyof T]: DeepReadonly<T[K]> }

/** For the file that declares the slice, and for tests. */
export function own<K extends keyof Slices>(state: RunState, slice: K): Slices[K] {
  return (state as unknown as Slices)[slice]
}

export interface RunState extends Recording, Shown {
  /** number of the last lease; after a restart the last reserved one */
  leaseEpoch: number
  phase: RunPhase
  phaseReason: string
  readonly members: Map<MemberId, Member>
  readonly leases: LeaseIndex
  /** async mode: members whose last lease came back as a push */
  readonly workers: Set<MemberId>
  readonly health: GenerationHealth
  /** what members of the last ring said to hold beyond the committed chain, until the next ring starts (R5) */
  heldBefore: ReadonlyMap<number, { readonly record: StepRecord; readonly by: ReadonlySet<MemberId> }>
}

export interface DamagedCheckpoint {
  readonly version: VersionRef
  /** which file, and what is wrong with it */
  readonly problem: string
  /** the parameter server was to start from it; or a person or a volunteer asked for it */
  readonly neededBy: 'server' | 'reader'
}

export type RunInput =
  /** the journal was taken over: its last entry is this process's `owner` (R2) */
  | { readonly type: 'coordinator-started'; readonly secret: string }
  | {
      readonly type: 'member-joined'
      readonly member: MemberInfo
      readonly samplesPerSecond: number
      readonly holds?: VersionRef
    }
  | { readonly type: 'member-lost'; readonly member: MemberId; readonly reason: string; readonly expected: boolean }
  /** asked to leave: it goes between two steps, so that the others lose none */
  | { readonly type: 'member-leaving'; readonly member: MemberId }
  | {
      readonly type: 'speed'
      readonly member: MemberId
      readonly samplesPerSecond: number
      readonly hidden?: boolean
      readonly linkMs?: number
    }
  | { readonly type: 'message'; readonly member: MemberId; readonly message: RunMessage }
  /** the coordinator looked at its own copy of a shard; `problem` undefined: it is whole */
  | {
      readonly type: 'shard-checked'
      readonly split: 'training' | 'validation'
      readonly indexes: readonly number[]
      readonly file: string
      readonly problem: string | undefined
    }
  /** a member begins to send its state */
  | { readonly type: 'upload-begun'; readonly member: MemberId; readonly version: VersionRef }
  /** the upload that it began broke off, or was refused */
  | { readonly type: 'upload-failed'; readonly member: MemberId; readonly version: VersionRef }
  /** a member's state arrived whole: its bytes are stored under `blob` */
  | {
      readonly type: 'uploaded'
      readonly member: MemberId
      readonly version: VersionRef
      readonly blob: Sha256
      readonly bytes: number
    }
  /**
   * gradients arrived; their shape is right and they are finite. `gradDigest`: SHA-256 of the bytes. `norms`: of an
   * off-ring member of the ring; the parameter server measures by itself
   */
  | { readonly type: 'push'; readonly push: Push; readonly gradDigest: Sha256; readonly norms?: PushNorms }
  /** the push was refused before the reducer saw it (not finite, wrong shape) */
  | { readonly type: 'push-refused'; readonly push: Push; readonly code: ErrorCode }
  /** the parameter server wrote its state as a blob */
  | {
      readonly type: 'server-checkpoint'
      readonly version: VersionRef
      readonly blob: Sha256
      readonly bytes: number
      readonly remembered?: Sha256
    }
  /** the parameter server made a version; `norm`: of the mean that it took, before the job's bound */
  | { readonly type: 'server-closed'; readonly version: VersionRef; readonly norm: number }
  /** shards that were appended to its dataset, behind the `before` first ones; they are among the blobs */
  | { readonly type: 'dataset-appended'; readonly before: number; readonly shards: readonly ShardRef[] }
  /** the bytes of a checkpoint are gone, or are not what was written */
  | ({ readonly type: 'checkpoint-damaged' } & DamagedCheckpoint)
  /** the coordinator digested its bytes of a checkpoint */
  | { readonly type: 'checkpoint-digested'; readonly salt: Sha256; readonly digest: Sha256 }
  /** the coordinator followed a checkpoint by the sums of the steps after it, or could not */
  | { readonly type: 'state-derived'; readonly version: VersionRef; readonly derived: Derived }
  /** the parameter server died: what it held since its last checkpoint is gone (A4) */
  | { readonly type: 'server-lost'; readonly reason: string }
  /** another job gets the volunteers: answered by the effect `parked` */
  | { readonly type: 'park'; readonly reason: string }
  /** the owner lets the run rest: it ends its step, writes a checkpoint and stands still, also over restarts */
  | { readonly type: 'pause' }
  /** the owner lets it go on */
  | { readonly type: 'resume' }
  /** the owner wants no epoch after the one that training is in */
  | { readonly type: 'end-with-epoch' }
  | { readonly type: 'tick' }

/** What a member says to its run; its connection takes the others (net/session.ts). */
export type RunMessage = Exclude<ToCoordinator, { type: 'hello' | 'seek-base' | 'ready' | 'heartbeat' | 'leave' }>

/** Carried out in order; what follows a journal effect is sent only after its fsync (R1). */
export type Effect =
  | { readonly type: 'journal'; readonly entries: readonly JournalEntry[] }
  /** the job has these training shards, too, before anyone is told of them */
  | { readonly type: 'append-shards'; readonly shards: readonly ShardRef[] }
  | { readonly type: 'send'; readonly to: MemberId; readonly message: ToVolunteer }
  | { readonly type: 'refuse'; readonly to: MemberId; readonly code: ErrorCode; readonly message: string }
  | { readonly type: 'note'; readonly kind: RunEvent['kind']; readonly text: string }
  /**
   * the end is durable and members were told: volunteers that only prepare hear of it, and all are free for another job
   */
  | { readonly type: 'ended' }
  /** the run paused: its volunteers may go to another job */
  | { readonly type: 'parked' }
  /** look at the shards of these blocks on our own disk, and answer with shard-checked */
  | { readonly type: 'check-blocks'; readonly blocks: readonly BlockId[] }
  /** digest the bytes of this checkpoint with the salt, and answer with checkpoint-digested */
  | { readonly type: 'digest-checkpoint'; readonly version: VersionRef; readonly salt: Sha256 }
  /** follow the checkpoint by the sums of these steps, from these members in turn; answer with state-derived */
  | {
      readonly type: 'derive-state'
      readonly version: VersionRef
      readonly from: Checkpoint
      readonly steps: readonly SumStep[]
      readonly members: readonly MemberId[]
    }
  /** the parameter server takes over this version (A5) */
  | { readonly type: 'server-load'; readonly checkpoint: Checkpoint }
  /** the push that this decision is about joins the open sum, scaled by `damping` (A2) */
  | { readonly type: 'server-add'; readonly base: VersionRef; readonly targets: number; readonly damping: number }
  /** the open sum becomes version `version` (A3) */
  | { readonly type: 'server-close'; readonly record: StepRecord; readonly version: VersionRef }
  /** write the server's state as a blob and answer with server-checkpoint */
  | { readonly type: 'server-checkpoint'; readonly version: VersionRef }
  | { readonly type: 'server-unload' }
  /** the push that this decision is about joins the sum of off-ring members, weighed (A1) */
  | { readonly type: 'off-ring-add'; readonly weights: PushWeights }
  /** the sum of off-ring members is served to the member that it was given to; a new one begins */
  | { readonly type: 'off-ring-give'; readonly id: number }
  /** what was given is on the chain or never will be; `open`: also what no member was given yet */
  | { readonly type: 'off-ring-forget'; readonly open: boolean }
  /** a member that asked to leave may go: its session closes, and member-lost follows */
  | { readonly type: 'dismiss'; readonly member: MemberId }
  /** answer to the push that this decision is about */
  | { readonly type: 'push-verdict'; readonly verdict: 'received' | ErrorCode; readonly message: string }

export interface Decision {
  readonly effects: readonly Effect[]
  /** why the run is where it is, in words; shown when it changes */
  readonly reason: string
}
