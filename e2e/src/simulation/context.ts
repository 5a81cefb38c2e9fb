// What all parts of a simulation share, and how members reach each other.
import type { FrameType, MemberId, ToCoordinator, VersionId, VersionRef } from '@starling-grid/protocol'
import type { MemberEffect } from '@starling-grid/volunteer/member'
import type { Dice } from '../world/dice.ts'
import type { History, Replica } from '../world/history.ts'
import type { Violations } from '../world/violations.ts'
import type { EventQueue } from './agenda.ts'
import type { Connection, VolunteerEnd } from './connection.ts'
import type { Counts } from './counts.ts'
import type { Defect, Scenario } from './scenario.ts'
import type { SimulatedShards } from './shards.ts'

/** What one member asks another for while a generation forms (R7). */
export interface FetchWish {
  readonly kind: 'state' | 'reduced'
  readonly generation: number
  readonly version: VersionRef
}

export interface Peer extends VolunteerEnd {
  readonly connection: Connection | undefined
  frameArrived(from: MemberId, bytes: Uint8Array): void
  /** Frames of this generation were lost on the way. */
  missed(from: MemberId, generation: number): void
  /** A copy of the state or of the kept reduced gradient, or nothing when it may not or cannot be served. */
  serve(wish: FetchWish): Float32Array | undefined
}

/**
 * What a member is just doing, for tests that strike then: it carries out an effect, or sends a message. A frame of
 * this type and hop reached it, and it sent on what followed; another member asks it for its state.
 */
export type Moment =
  | { readonly at: 'before' | 'after'; readonly what: Exclude<MemberEffect['type'], 'send'> | ToCoordinator['type'] }
  | { readonly at: 'frame'; readonly type: FrameType; readonly hop: number }
  | { readonly at: 'asked' }

export interface Context {
  readonly scenario: Scenario
  readonly dice: Dice
  readonly agenda: EventQueue
  readonly history: History
  readonly violations: Violations
  /** versions that a member made up alone: id → who */
  readonly invented: ReadonlyMap<VersionId, MemberId>
  readonly counts: Counts
  peer(id: MemberId): Peer | undefined
  /** A checkpoint by its version, when a coordinator is there to serve it. */
  stored(version: VersionRef): Replica | undefined
  /** Frames between these two are lost now. */
  isCut(from: MemberId, to: MemberId): boolean
  /** This member fails to do this, always. */
  has(defect: Defect, member: { readonly seat: number }): boolean
  /** The next computation of these blocks is not finite. */
  poisoned(blocks: readonly string[]): boolean
  readonly shards: SimulatedShards
  /** Opens a new connection for the member some time later. */
  reconnect(member: VolunteerEnd): void
  /** The member's process ends, as it wished. */
  departed(member: VolunteerEnd): void
  moment(member: MemberId, moment: Moment): void
  /** Something changed that invariants speak of. */
  touched(): void
  /** A line of the trace, written only when there is one. */
  trace(line: () => string): void
}
