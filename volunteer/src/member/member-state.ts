// State, inputs and effects of a member. Parameters, gradients and sockets are elsewhere: this part is pure, so that
// the simulation runs the same code as a tab. docs/RULES.md explains the rules.
import {
  EXCHANGES,
  type BlameReason,
  type BlockId,
  type Consumed,
  type ErrorCode,
  type Manifest,
  type MemberId,
  type MessageFrom,
  type MessageTo,
  type PlanStep,
  type Sha256,
  type AssignmentMove,
  type StepRecord,
  type ToCoordinator,
  type ToVolunteer,
  type VersionRef,
} from '@starling-grid/protocol'
import type { GivenSum } from './given-sums.ts'

/** The step that is being computed or reduced. */
export interface Flight {
  readonly step: number
  stage: 'computing' | 'reducing'
  /** blocks of this member's assignment that are not begun */
  todo: BlockId[]
  /** begun or done, in that order */
  begun: BlockId[]
  /** nothing joins or leaves the assignment any more */
  sealed: boolean
  /** goes with this assignment, since it was sealed (A1) */
  given: GivenSum | undefined
  /** ms that a block takes here, as last measured */
  blockMs: number
  /**
   * rounds of moves that this member waits for, and those that are over: a late `hold` of one of these has no effect
   */
  readonly held: Set<number>
  readonly over: Set<number>
  /** round → what was given up in it: a repeated release is answered again */
  readonly released: Map<number, readonly BlockId[]>
}

/** The committed version that is fetched, and the records since that are not applied yet. */
export interface Learning {
  readonly fence: number
  readonly generation: number
  readonly version: VersionRef
  records: MessageTo<'follow'>['records']
  sources: MessageTo<'follow'>['sources']
  /** the version that is being fetched now */
  fetching: VersionRef | undefined
  /**
   * the version at which it says again how far it is: the last that it knew of when it last said so. One that follows
   * as fast as steps are committed never holds the last of them
   */
  reportAt: number
}

/** What FORM says of a generation. */
interface FormedGeneration {
  readonly fence: number
  readonly generation: number
  readonly modeEpoch: number
  /** what a step is: one global batch, or a round of inner steps (A7) */
  readonly kind: 'ring' | 'round'
  readonly members: readonly MemberId[]
  readonly weights: readonly number[]
  /** pairs of ranks whose link goes through the coordinator (R18) */
  readonly relayed: MessageTo<'form'>['relayed']
  /** which way frames take; absent: around the ring */
  readonly exchange?: MessageTo<'form'>['exchange']
  /** how gradients travel; absent: as the job says */
  readonly encoding?: MessageTo<'form'>['encoding']
  readonly rank: number
}

/** The version that every member reaches before it confirms, and the way there (R7). */
interface WayToTarget {
  readonly committed: VersionRef
  /** records that lead from `committed` to `target` */
  readonly records: readonly StepRecord[]
  readonly target: VersionRef
  /** who can serve the target */
  readonly sources: readonly MemberId[]
  /** those of them that are no neighbours and are reached through the coordinator (R18) */
  readonly relayedSources?: MessageTo<'form'>['relayedSources']
  readonly coordinatorHolds: boolean
}

/** One ballot from FORM on. */
export interface MemberGeneration extends FormedGeneration, WayToTarget {
  linksOpen: boolean
  /**
   * forming: on the way to the target; ready: confirmed; running: after START; broken: gave up, waits for the next
   * ballot
   */
  stage: 'forming' | 'ready' | 'running' | 'broken'
  readonly plan: Map<number, PlanStep & { readonly weights: readonly number[] }>
  /** no step after this one begins */
  lastStep: number
  /** the step that is being computed or reduced */
  flight: Flight | undefined
  /** step → blocks that changed members, by rounds (R12) */
  readonly moves: Map<number, readonly { readonly round: number; readonly moves: readonly AssignmentMove[] }[]>
  checkpoint: { readonly v: number; readonly uploader: MemberId } | undefined
  /** by number: the member that was given one contributes it with its assignment (A1) */
  readonly givenSums: Map<number, GivenSum>
  /** version at which a copy is put aside for newcomers */
  copyAt: { readonly v: number; readonly salt: Sha256 } | undefined
}

export interface MemberCore {
  readonly id: MemberId
  /** steps whose reduced gradients together are less to fetch than a whole state */
  readonly replayMost: number
  /** highest coordinator fence and ballot seen (R3) */
  fence: number
  promised: number
  /** the version whose parameters are held whole; undefined: nothing is held */
  version: VersionRef | undefined
  /** last acknowledged committed version, and the records since: base ⊕ tail = version */
  base: VersionRef
  tail: StepRecord[]
  /** committed records that lead to `base`, the newest few: for a coordinator whose journal lost them (R4) */
  past: { base: VersionRef; readonly records: StepRecord[] }
  /** blocks of a round under way that inner steps learned from (A7) */
  consumed: Consumed | undefined
  ring: MemberGeneration | undefined
  /** while the ring runs without this member */
  learning: Learning | undefined
  /** what it is to prove once it holds that version */
  proving: MessageTo<'prove'> | undefined
  /** async mode: its epoch, and whether work was asked for */
  asyncEpoch: number | undefined
}

/** What the coordinator says under a ballot (R3); leases are for async work. */
export type ControlMessage = Exclude<Extract<ToVolunteer, { generation: number }>, { type: 'grant' }>

export type MemberInput =
  | { readonly type: 'order'; readonly order: ControlMessage }
  /** links to all that frames go to or come from are open */
  | { readonly type: 'links-open'; readonly generation: number }
  /** a whole state was fetched and checked; it is staged, not yet adopted */
  | { readonly type: 'state-fetched'; readonly generation: number; readonly version: VersionRef }
  /** a kept reduced gradient was fetched and matches the digest in its record; staged */
  | { readonly type: 'reduced-fetched'; readonly generation: number; readonly version: VersionRef }
  /** no source has the reduced gradient any more: some hold the version because they fetched it themselves */
  | { readonly type: 'reduced-missing'; readonly generation: number }
  /** this member's assignment takes longer than the plan expects; ms that a block takes */
  | { readonly type: 'behind'; readonly generation: number; readonly step: number; readonly blockMs: number }
  /** a sum that this member was given is here */
  | { readonly type: 'given-fetched'; readonly generation: number; readonly id: number }
  /** blocks of this member's assignment are computed from now on; ms that a block took so far, 0: not known yet */
  | {
      readonly type: 'begin'
      readonly generation: number
      readonly step: number
      readonly blocks: readonly BlockId[]
      readonly blockMs: number
    }
  /** the assignment is complete: nothing joins or leaves it any more (R12) */
  | { readonly type: 'seal'; readonly generation: number; readonly step: number; readonly blockMs: number }
  /** what the inner steps of the round under way learned from (A7) */
  | { readonly type: 'learned'; readonly generation: number; readonly consumed: Consumed }
  /** own assignment of a step is computed; it was sealed before (assignment.ts) */
  | {
      readonly type: 'computed'
      readonly generation: number
      readonly step: number
      readonly manifest: Manifest
      readonly finite: boolean
    }
  /** all sums and manifests of a step arrived and are verified; the sum is staged, not yet applied */
  | {
      readonly type: 'reduced'
      readonly generation: number
      readonly step: number
      readonly manifests: readonly Manifest[]
      readonly gradDigest: Sha256
    }
  /** the generation cannot go on from here; `alsoBlamed`: other neighbours with the same trouble */
  | {
      readonly type: 'trouble'
      readonly generation: number
      readonly blamed: MemberId | null
      readonly alsoBlamed?: readonly MemberId[]
      readonly why: BlameReason
      readonly code: ErrorCode
      readonly message: string
    }

export type MemberEffect =
  | { readonly type: 'send'; readonly message: ToCoordinator }
  /** stop the ring and drop its frames, also those already buffered (R3) */
  | { readonly type: 'halt' }
  /** `relayed`: the neighbours that are reached through the coordinator, `relayedSources`: others (R18) */
  | {
      readonly type: 'open-links'
      readonly generation: number
      readonly neighbours: readonly MemberId[]
      readonly relayed: readonly MemberId[]
      readonly relayedSources: readonly MemberId[]
    }
  /** these members open links to this one, which serves them; it links to `relayed` through the coordinator (R18) */
  | {
      readonly type: 'meet'
      readonly generation: number
      readonly members: readonly MemberId[]
      readonly relayed: readonly MemberId[]
    }
  | {
      readonly type: 'fetch-state'
      readonly generation: number
      readonly target: VersionRef
      readonly sources: readonly MemberId[]
      readonly coordinatorHolds: boolean
    }
  | {
      readonly type: 'fetch-reduced'
      readonly generation: number
      readonly record: StepRecord
      readonly target: VersionRef
      readonly sources: readonly MemberId[]
    }
  /** the staged state becomes the version, in one piece */
  | { readonly type: 'adopt'; readonly version: VersionRef }
  /** the staged sum goes through the optimizer and becomes the version, in one piece (R10) */
  | { readonly type: 'apply'; readonly record: StepRecord; readonly version: VersionRef }
  /** compute the digest of the held state and send CONFIRM (R7) */
  | { readonly type: 'confirm'; readonly fence: number; readonly generation: number; readonly version: VersionRef }
  | {
      readonly type: 'compute'
      readonly generation: number
      readonly step: number
      readonly kind: 'ring' | 'round'
      readonly blocks: readonly BlockId[]
    }
  /** get the given sum from the coordinator (A1) */
  | { readonly type: 'fetch-given'; readonly generation: number; readonly id: number }
  /** the assignment that waited is complete, or has more blocks: go on (assignment.ts) */
  | { readonly type: 'resume'; readonly generation: number; readonly step: number }
  /** tell how far this member is with a step (R17) */
  | {
      readonly type: 'report-standing'
      readonly fence: number
      readonly generation: number
      readonly step: number
      readonly stage: MessageFrom<'standing'>['stage']
    }
  /** the computed gradient goes into the ring (R9) */
  | { readonly type: 'contribute'; readonly generation: number; readonly step: number; readonly manifest: Manifest }
  | { readonly type: 'upload'; readonly version: VersionRef }
  /** put a copy of the held state aside, and send its salted digest */
  | {
      readonly type: 'copy'
      readonly fence: number
      readonly generation: number
      readonly version: VersionRef
      readonly salt: Sha256
    }
  /** digest the held state with the salt, link to these members, and send both (R2) */
  | { readonly type: 'prove'; readonly order: MessageTo<'prove'> }
  | {
      readonly type: 'report-digest'
      readonly fence: number
      readonly generation: number
      readonly version: VersionRef
    }

type Neighbourhood = Pick<MemberGeneration, 'members' | 'rank' | 'exchange'>

/** Members that send frames of a step to this one. */
export function senders({ members, rank, exchange }: Neighbourhood): MemberId[] {
  const { sends } = EXCHANGES[exchange?.type ?? 'ring']
  return members.filter((_, from) => from !== rank && sends(from, rank, members.length))
}

/** Members whose links a step needs: the next one, and those that send to this one. */
export function neighbours(ring: Neighbourhood): MemberId[] {
  const { members, rank } = ring
  const next = members[(rank + 1) % members.length]
  return [...new Set([...(next === undefined ? [] : [next]), ...senders(ring)])].filter((id) => id !== members[rank])
}
