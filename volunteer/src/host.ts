// Everything that differs between a tab and a Node process, in one object. Shared code touches web-standard globals
// only (fetch, crypto, AbortSignal); the rest comes from here. client-web and client-node supply it from files of the
// same names.
import type { ModelSpec } from '@starling-grid/model'
import type { Clock, JobId, JobTerms, Sha256, Signer, StepRecord, VersionRef } from '@starling-grid/protocol'
import type { SendRequest } from './coordinator-http.ts'
import type { Executor, ExecutorBounds } from './graph/executor.ts'
import type { KeptNotes } from './kept-notes.ts'
import type { PeerNetwork, SignallingAccess } from './link/peer-link.ts'
import type { RelaySocket } from './link/relay-link.ts'
import type { OwnLimits } from './own-limits.ts'

/** A text socket to the coordinator. The browser's WebSocket and `ws` both fit. */
export interface CoordinatorSocket {
  send(text: string): void
  close(): void
  onMessage: ((text: string) => void) | undefined
  onClose: ((reason: string) => void) | undefined
}

/** Shards that were fetched before, by content. A cache may forget; it never lies: bytes are hashed again when read. */
export interface ShardCache {
  get(name: Sha256): Promise<Uint8Array | undefined>
  put(name: Sha256, bytes: Uint8Array): Promise<void>
}

/** Keeps what an audit of the committed steps of one job needs (recovery/step-audit.ts). */
export interface StepWitness {
  /** this member applied Σ gradients `sum`, which stays as it is */
  applied(record: StepRecord, sum: Float32Array): void
  /** this member took over a whole version that it did not compute */
  adopted(version: VersionRef, state: () => Uint8Array): void
  /** this member begins a round of a group from these parameters, as its job encodes them; absent: not kept */
  began?(version: VersionRef, bytes: Uint8Array): void
}

/** How one coordinator is reached. */
export interface CoordinatorDoor {
  /** http(s) origin of the coordinator, without a slash at the end */
  readonly coordinatorUrl: string
  /** @throws GridError 'coordinator-lost' when it cannot be reached */
  dialCoordinator(path: string): Promise<CoordinatorSocket>
  /** `token`: of the session. @throws GridError 'coordinator-lost' when it cannot be reached, or refuses */
  dialRelay(path: string, token: string): Promise<RelaySocket>
}

/** How the coordinator and, through it, other members are reached. */
export interface CoordinatorAccess extends CoordinatorDoor {
  /** absent: with fetch */
  readonly sendRequest?: SendRequest
  /** Another coordinator of the grid. Absent: this host stays with one. */
  at?(coordinatorUrl: string): CoordinatorDoor
  /** Where `at` is absent: the host itself goes to the other one, and this volunteer ends. A tab opens its page. */
  leaveFor?(coordinatorUrl: string, job: JobId | null): void
  openPeerNetwork(access: SignallingAccess): Promise<PeerNetwork>
}

/** What the owner of this machine allows, and what is kept of it. */
export interface OwnersTerms {
  /** hosts of STUN and TURN servers that its owner allows, beside the coordinator's own; absent: none */
  readonly allowedIce?: readonly string[]
  /** what its owner allows; absent: DEFAULT_LIMITS */
  readonly limits?: OwnLimits
  /**
   * addresses are shown to no other volunteer: every link goes through the coordinator; and kernel variants are neither
   * reported nor asked for
   */
  readonly relaysOnly?: boolean
  /** jobs that are declined; absent: forgotten at the end */
  readonly declined?: KeptNotes
  /** bytes sent in the present hour; absent: forgotten at the end */
  readonly uploaded?: KeptNotes
}

export interface VolunteerHost extends CoordinatorAccess, OwnersTerms {
  readonly client: 'node' | 'tab'
  /** of all that this volunteer waits for and measures */
  readonly clock: Clock
  /**
   * The key that its lasting id is made of; the same at every call.
   * @throws GridError 'no-key'
   */
  signer(): Promise<Signer>
  /**
   * For batches whose blocks have up to `blockSamples` samples.
   * @throws GridError 'no-adapter', 'adapter-limit', 'no-f16', 'own-limit'
   */
  createExecutor(spec: ModelSpec, blockSamples: number, bounds?: ExecutorBounds): Promise<Executor>
  readonly shards: ShardCache
  /** SHA-256 on a thread beside the caller's; the bytes may change once it resolves. Absent: as the platform does it */
  digestOf?(bytes: Uint8Array): Promise<Sha256>
  /** absent: nothing is kept for an audit */
  witness?(terms: JobTerms): StepWitness
  /** A tab in the background: its browser may slow it down. Absent: never. */
  isHidden?(): boolean
}

export type VolunteerPhase =
  | 'connecting' // to the coordinator; also while it is away
  | 'waiting' // joined; nothing to do yet, `detail` says for what
  | 'preparing' // fetching data, planning the model, measuring speed
  | 'catching-up' // fetching parameters and optimizer state
  | 'computing'
  | 'exchanging' // in the ring
  | 'validating'
  | 'finished'
  | 'stopped'
  | 'failed'

/** Of its own part in the training. */
export interface VolunteerProgress {
  /** own speed over the last steps, compute only */
  readonly samplesPerSecond: number
  /** samples of mine that are in committed versions */
  readonly samplesCommitted: number
  /** newest version that I hold */
  readonly version: number
  /** mean loss of the last step */
  readonly loss: number | null
}

/** What the volunteer shows to its owner, on the page and on the terminal. */
export interface VolunteerStatus extends VolunteerProgress {
  readonly phase: VolunteerPhase
  /** one sentence, for people */
  readonly detail: string
  readonly job: { readonly name: string; readonly owner: string; readonly purpose: string } | null
  readonly adapter: Executor['adapter'] | null
  /** where the imported model that the job tunes came from; absent: it was here, or the job tunes none */
  readonly base?: string
  readonly mode: 'ring' | 'local' | 'async' | null
  readonly ring: { readonly rank: number; readonly size: number } | null
  /** links to neighbours whose frames go through the coordinator, because no direct one opens */
  readonly relayedLinks: number
  /** links over TCP */
  readonly tcpLinks: number
  readonly bytesSent: number
  readonly bytesReceived: number
  /** why it failed or stopped */
  readonly error: { readonly code: string; readonly message: string } | null
}
