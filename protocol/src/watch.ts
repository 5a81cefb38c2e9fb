// What the dashboard and the contribute page see of a run: GET /api/jobs, GET /api/jobs/ID, and the WebSocket
// /api/watch, which sends one `snapshot` and then `update`s at most twice a second.
import * as Type from 'typebox'
import type { AdapterDescription } from './adapter.ts'
import type { VersionRef } from './chain.ts'
import type { JobId, MemberId } from './ids.ts'
import type { Exchange, Mode } from './job.ts'
import { strict } from './schema.ts'

/** Characters of an owner's token. */
const MAX_TOKEN_LENGTH = 1000

/** Where a run is: waiting for volunteers, agreeing on a version, training, or over. */
export type Phase =
  | 'waiting'
  | 'freeze'
  | 'forming'
  | 'ring'
  | 'handover'
  | 'async'
  | 'validating'
  | 'lost'
  | 'finished'

/** What a member does now, and its part in each step. */
export interface MemberWork {
  /** joining: plans the model; learning: fetches state; training; idle: admitted, waits */
  readonly state: 'joining' | 'learning' | 'training' | 'idle'
  /** reported by the member itself: "computing", "exchanging", … */
  readonly activity: string
  readonly samplesPerSecond: number
  /** position in the running ring, or null */
  readonly rank: number | null
  /** of each step that the ring makes now: the part that is planned for it, 0…1; null outside the ring */
  readonly fraction: number | null
  /** ms that a lease lasts that it gets now */
  readonly leaseMs: number
}

/** What it exchanges with others. */
export interface MemberTraffic {
  /**
   * its link to the next member of the ring, or in a direct exchange to any behind it, goes through the coordinator
   * (R18)
   */
  readonly relayed: boolean
  readonly bytesSent: number
  readonly bytesReceived: number
}

export interface MemberView extends MemberWork, MemberTraffic {
  readonly id: MemberId
  readonly name: string
  readonly client: 'node' | 'tab'
  readonly adapter: AdapterDescription | null
  /** a tab in the background: half the share, twice the lease */
  readonly hidden: boolean
  readonly joinedAt: number
}

export interface DepartureView {
  readonly id: MemberId
  readonly name: string
  readonly at: number
  readonly reason: string
  readonly expected: boolean
}

/** How gradients travel now, and why. */
export interface PhaseView {
  readonly phase: Phase
  /** why the phase is what it is, in words */
  readonly reason: string
  readonly mode: Mode
  readonly modeReason: string
  /**
   * which way gradients travel in the running ring, why, and predicted ms of a step's exchange either way where both
   * can be told; null: no ring
   */
  readonly exchange: {
    readonly type: Exchange
    readonly reason: string
    readonly costs: { readonly ring: number; readonly direct: number } | null
  } | null
  readonly modeEpoch: number
  readonly generation: number
}

/** How far the training is. */
export interface ProgressView {
  readonly version: VersionRef
  readonly epoch: number
  readonly queue: {
    readonly todo: number
    readonly pending: number
    readonly done: number
    readonly quarantined: number
  }
  readonly validationQueue: { readonly todo: number; readonly pending: number; readonly done: number }
  readonly samplesCommitted: number
  readonly samplesExpected: number
  readonly samplesPerSecond: number
  readonly etaSeconds: number | null
  readonly startedAt: number
  readonly finishedAt: number | null
}

/** Who takes part. */
export interface MembershipView {
  /**
   * whole: all of it; totals: no names, no reasons and no member by itself, for readers without a token of a job that
   * is not public
   */
  readonly detail: 'whole' | 'totals'
  readonly memberCount: number
  readonly members: readonly MemberView[]
  readonly departed: readonly DepartureView[]
  /**
   * links whose frames go through the coordinator: open now, bytes carried for this run since the coordinator started,
   * and lately
   */
  readonly relay: { readonly links: number; readonly bytes: number; readonly bytesPerSecond: number }
  /** refusals by code (protocol errors table) */
  readonly refusals: Readonly<Record<string, number>>
}

export interface RunView extends PhaseView, ProgressView, MembershipView {
  readonly job: {
    readonly id: JobId
    readonly name: string
    readonly owner: string
    readonly purpose: string
    readonly model: string
    readonly parameters: number
    /** bytes of the values that training on one sample keeps */
    readonly activationBytes: number
    readonly dataset: string
    readonly trainSamples: number
    readonly validationSamples: number
    readonly downloadBytes: number
    readonly epochs: number
    /** training blocks of one epoch */
    readonly blocksPerEpoch: number
    readonly blockSamples: number
    readonly batchBlocks: number
  }
  /**
   * newest durable version; `agreeing` of the `members` of its ring are known to hold exactly these bytes, its uploader
   * included
   */
  readonly checkpoint:
    | (VersionRef & {
        readonly bytes: number
        readonly at: number
        readonly witnessed: boolean
        readonly agreeing: number
        readonly members: number
      })
    | null
  /** committed steps that the coordinator computed again since it started */
  readonly audit: AuditView
  /** path of the exported model, or null before the first checkpoint */
  readonly exportPath: string | null
}

/** Committed steps that the coordinator computed again, and what came of it. */
export interface AuditView {
  /** about one step of so many */
  readonly every: number
  readonly agreed: number
  readonly differed: number
  readonly notComputed: number
  /** why steps of this job are not audited; null: they are */
  readonly off: string | null
  readonly last: {
    readonly v: number
    /** ms since the epoch */
    readonly at: number
    readonly result: 'agreed' | 'differed' | 'not computed'
    readonly text: string
  } | null
}

/** One committed step. at: ms since the epoch of the clock. */
export interface StepPoint {
  readonly v: number
  readonly loss: number
  /** share of training samples of this step that were classified right, before its update */
  readonly accuracy: number
  readonly samples: number
  readonly mode: Mode
  readonly at: number
}
export interface ValidationPoint {
  readonly v: number
  readonly epoch: number
  readonly accuracy: number
  readonly loss: number
  readonly samples: number
  /** of each block two members measured the same */
  readonly confirmed: boolean
  readonly at: number
}
export interface RunEvent {
  readonly at: number
  readonly kind: 'mode' | 'generation' | 'member' | 'checkpoint' | 'rewind' | 'validation' | 'refusal' | 'run' | 'audit'
  readonly text: string
}

/** The one message that a page may send, as its first: the owner's token. It is in no address, so in no log. */
export const WatchTokenSchema = strict({
  type: Type.Literal('owner'),
  token: Type.String({ maxLength: MAX_TOKEN_LENGTH }),
})

export type WatchMessage =
  | { readonly type: 'none'; readonly reason: string }
  | {
      readonly type: 'snapshot'
      readonly run: RunView
      readonly steps: readonly StepPoint[]
      readonly validations: readonly ValidationPoint[]
      readonly events: readonly RunEvent[]
    }
  /** points and events since the last message; `rewoundTo`: drop points above this v first */
  | {
      readonly type: 'update'
      readonly run: RunView
      readonly steps: readonly StepPoint[]
      readonly validations: readonly ValidationPoint[]
      readonly events: readonly RunEvent[]
      readonly rewoundTo?: number
    }
