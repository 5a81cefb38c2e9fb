// Messages between volunteer and coordinator (JSON over one WebSocket). One type, one line that says who sends it and
// when. Numbers of rules are COMMIT.md's.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { StepRecordSchema, VersionRefSchema } from './chain.ts'
import { ERROR_CODES, type ErrorCode } from './errors.ts'
import { NONCE_BYTES, PUBLIC_KEY_BYTES, SALT_BYTES, SIGNATURE_BYTES } from './identity.ts'
import type { BlockId, JobId } from './ids.ts'
import { ExchangeSchema, JobTermsSchema } from './job.ts'
import {
  FETCH_CHUNK_BYTES,
  MAX_BUTTERFLY_MEMBERS,
  MAX_ICE_SERVERS,
  MAX_LINK_OPEN_MS,
  MAX_NAME_LENGTH,
  MAX_REFUSALS,
  MAX_RING_MEMBERS,
  MAX_SPARSE_PARTS,
  MAX_STEP_BLOCKS,
  MIN_LINK_OPEN_MS,
  PLAN_WINDOW,
  PROTOCOL_VERSION,
} from './limits.ts'
import {
  BlockIdSchema,
  Count,
  FiniteNumber,
  JobIdSchema,
  MemberIdSchema,
  Sha256Schema,
  strict,
  VersionIdSchema,
} from './schema.ts'

const literal = <T extends string>(type: T) => Type.Literal(type)
const ErrorCodeSchema = Type.Unsafe<ErrorCode>(Type.String({ maxLength: 40, pattern: '^[a-z-]+$' }))
const Text = Type.String({ maxLength: 400 })
const Hex = (bytes: number) => Type.String({ pattern: `^[0-9a-f]{${2 * bytes}}$` })
const Token = Type.String({ minLength: 16, maxLength: 128 })
/** owner: fence of the coordinator process (R3); gen: ballot and generation in one (R2) */
const ballot = { owner: Count, gen: Count }
const Tail = Type.Array(StepRecordSchema, { maxItems: 2 * PLAN_WINDOW })
const PlanStepSchema = Type.Unsafe<PlanStep>(
  strict({
    step: Count,
    blocks: Type.Array(BlockIdSchema, { maxItems: MAX_STEP_BLOCKS }),
    kept: Type.Optional(
      Type.Array(Type.Array(BlockIdSchema, { maxItems: MAX_STEP_BLOCKS }), { maxItems: MAX_RING_MEMBERS }),
    ),
  }),
)
/** what each member of the ring gets of a step, in proportion: its speed in samples per second */
const Shares = Type.Array(Type.Number({ minimum: 0, maximum: 1e12 }), { minItems: 1, maxItems: MAX_RING_MEMBERS })
/** Two places of the ring, the lower one first. */
const PairSchema = Type.Tuple([Count, Count])
/** every two members of a butterfly */
const MAX_PAIRS = (MAX_BUTTERFLY_MEMBERS * (MAX_BUTTERFLY_MEMBERS - 1)) / 2
const Plan = Type.Array(PlanStepSchema, { maxItems: 2 * PLAN_WINDOW })
/** Blocks of one step that change their member, both by their places in the ring. */
const ShareMoveSchema = strict({
  from: Count,
  to: Count,
  blocks: Type.Array(BlockIdSchema, { minItems: 1, maxItems: MAX_STEP_BLOCKS }),
})
const LeaseTokenSchema = strict({ block: BlockIdSchema, leaseEpoch: Count })

/** Why a member gives a generation up. The first three are troubles of a link, and name every link that has them. */
export const BLAME_REASONS = {
  unopened: 'a link to a neighbour could not be opened in time',
  closed: 'an open link closed',
  silent: 'an open link brought nothing for SILENCE_MS, not even a heartbeat',
  refused: 'a neighbour sent what an honest member does not send',
  stalled: 'links are alive and the reduce makes no progress',
  own: 'a fault of the member itself',
} as const
export type BlameReason = keyof typeof BLAME_REASONS
export type LinkTrouble = 'unopened' | 'closed' | 'silent'
export const isLinkTrouble = (why: BlameReason): why is LinkTrouble =>
  why === 'unopened' || why === 'closed' || why === 'silent'
const BlameReasonSchema = Type.Unsafe<BlameReason>(Type.Enum(Object.keys(BLAME_REASONS)))
/** STUN and TURN servers; the credentials of TURN are short-lived */
const IceServersSchema = Type.Array(
  strict({
    urls: Type.String({ maxLength: 400 }),
    username: Type.Optional(Type.String({ maxLength: 400 })),
    credential: Type.Optional(Type.String({ maxLength: 400 })),
  }),
  { maxItems: MAX_ICE_SERVERS },
)

export const AdapterSchema = strict({
  name: Type.String({ maxLength: 120 }),
  vendor: Type.String({ maxLength: 80 }),
  software: Type.Boolean(),
  executor: Type.Union([Type.Literal('reference'), Type.Literal('webgpu')]),
})

/** What a member says it holds: a committed version, and the records since (R4 checks it). */
export const ClaimSchema = strict({ base: VersionRefSchema, records: Tail })

/**
 * Blocks that a member learned from in a local round that was not finished, and the version that the round started from
 * (A7).
 */
const ConsumedSchema = strict({
  base: VersionRefSchema,
  blocks: Type.Array(BlockIdSchema, { maxItems: MAX_STEP_BLOCKS }),
})

// ---- volunteer → coordinator ----
const toCoordinator = {
  /**
   * answer to challenge: who it is, and the proof (identity.ts). The same incarnation may say hello on any number of
   * sockets
   */
  hello: strict({
    type: literal('hello'),
    /** of another one nothing else is looked at (codec.ts) */
    protocol: Type.Literal(PROTOCOL_VERSION),
    incarnation: MemberIdSchema,
    name: Type.String({ minLength: 1, maxLength: MAX_NAME_LENGTH }),
    client: Type.Union([Type.Literal('node'), Type.Literal('tab')]),
    publicKey: Hex(PUBLIC_KEY_BYTES),
    salt: Hex(SALT_BYTES),
    /** name and port of the coordinator, as the volunteer dialled it */
    coordinator: Type.String({ minLength: 1, maxLength: 300 }),
    /** of helloText */
    signature: Hex(SIGNATURE_BYTES),
    /** this incarnation was welcomed before */
    again: Type.Optional(Type.Boolean()),
  }),
  /** model planned, adapter measured: asks for admission */
  ready: strict({
    type: literal('ready'),
    modelHash: Sha256Schema,
    adapter: AdapterSchema,
    samplesPerSecond: Type.Number({ minimum: 0, maximum: 1e12 }),
    /** a version that it holds whole: kept since its last visit */
    holds: Type.Optional(VersionRefSchema),
  }),
  /** every HEARTBEAT_MS */
  heartbeat: strict({
    type: literal('heartbeat'),
    samplesPerSecond: Type.Number({ minimum: 0, maximum: 1e12 }),
    activity: Type.String({ maxLength: 40 }),
    bytesSent: Count,
    bytesReceived: Count,
    /** ms that a frame takes to another member, of its slowest link in the ring; absent: not measured yet */
    linkMs: Type.Optional(Type.Number({ minimum: 0, maximum: 60_000 })),
    /** a tab that nobody looks at: its browser may slow it down or suspend it at any time */
    hidden: Type.Optional(Type.Boolean()),
    /** what other members sent and this one refused since its last heartbeat */
    refusals: Type.Optional(
      Type.Array(strict({ code: ErrorCodeSchema, from: MemberIdSchema, count: Count }), { maxItems: MAX_REFUSALS }),
    ),
  }),
  /** answer to freeze (R3); null: holds nothing */
  state: strict({
    type: literal('state'),
    ...ballot,
    claim: Type.Union([ClaimSchema, Type.Null()]),
    consumed: Type.Optional(ConsumedSchema),
  }),
  /** a copy of this version is kept for newcomers */
  copied: strict({ type: literal('copied'), ...ballot, version: VersionRefSchema }),
  /** answer to prefetch: this committed version is held whole; null: it could not be fetched */
  prefetched: strict({ type: literal('prefetched'), ...ballot, version: Type.Union([VersionRefSchema, Type.Null()]) }),
  /** at the target with all links that the exchange needs open (R7, R8) */
  confirm: strict({ type: literal('confirm'), ...ballot, version: VersionRefSchema, digest: Sha256Schema }),
  /** step `record.v` is applied and whole on this member (R10) */
  held: strict({ type: literal('held'), ...ballot, record: StepRecordSchema }),
  /**
   * this generation cannot go on (R2). `links`: the members whose link has this trouble, the blamed one's first (R17,
   * R18)
   */
  abort: strict({
    type: literal('abort'),
    ...ballot,
    step: Count,
    blamed: Type.Union([MemberIdSchema, Type.Null()]),
    why: BlameReasonSchema,
    links: Type.Array(MemberIdSchema, { maxItems: MAX_BUTTERFLY_MEMBERS - 1 }),
    code: ErrorCodeSchema,
    message: Text,
  }),
  /**
   * the own share of a step takes longer than the plan expects, and blocks of it are not begun: others may take them
   * (R12)
   */
  behind: strict({ type: literal('behind'), ...ballot, step: Count }),
  /**
   * answer to hold. `open`: it does not contribute before moved; `left`: blocks of its share that are not begun;
   * `blockMs`: what one takes
   */
  progress: strict({
    type: literal('progress'),
    ...ballot,
    step: Count,
    round: Count,
    open: Type.Boolean(),
    left: Count,
    blockMs: Type.Number({ minimum: 0, maximum: 1e9 }),
  }),
  /**
   * answer to inquire. computing: it did not contribute yet; held: the step is behind it. `received`: frames of the
   * step that came; `waitsFor`: places whose frames are missing
   */
  standing: strict({
    type: literal('standing'),
    ...ballot,
    step: Count,
    stage: Type.Union([Type.Literal('computing'), Type.Literal('reducing'), Type.Literal('held')]),
    received: Count,
    waitsFor: Type.Array(Count, { maxItems: MAX_RING_MEMBERS }),
  }),
  /** answer to guest: its blocks are taken for right in a manifest from now on (A1) */
  'guest-known': strict({ type: literal('guest-known'), ...ballot, id: Count }),
  /** answer to release: these blocks were not begun here and will not be (R12) */
  released: strict({
    type: literal('released'),
    ...ballot,
    step: Count,
    round: Count,
    blocks: Type.Array(BlockIdSchema, { maxItems: MAX_STEP_BLOCKS }),
  }),
  /** a direct link to a neighbour could be opened, whose frames the coordinator relays in this generation (R18) */
  'link-restored': strict({ type: literal('link-restored'), ...ballot, peer: MemberIdSchema }),
  /** digest of the whole state at a version that a checkpoint-at named (R15) */
  'version-digest': strict({
    type: literal('version-digest'),
    ...ballot,
    version: VersionRefSchema,
    digest: Sha256Schema,
  }),
  /** result of one leased validation block */
  validated: strict({
    type: literal('validated'),
    version: VersionRefSchema,
    lease: LeaseTokenSchema,
    samples: Count,
    targets: Count,
    correct: Count,
    lossSum: FiniteNumber,
  }),
  /** these leases are not computed, and will not be by this member: what they need could not be had */
  'gave-back': strict({
    type: literal('gave-back'),
    leases: Type.Array(LeaseTokenSchema, { minItems: 1, maxItems: 256 }),
    code: ErrorCodeSchema,
    message: Text,
  }),
  /** the shard of these blocks cannot be had or is damaged as it comes: the coordinator looks at its own copy */
  unreadable: strict({
    type: literal('unreadable'),
    blocks: Type.Array(BlockIdSchema, { minItems: 1, maxItems: 256 }),
    code: ErrorCodeSchema,
    message: Text,
  }),
  /** async mode: free for work */
  'lease-request': strict({ type: literal('lease-request'), modeEpoch: Count }),
  /** closing on purpose: leases go back at once */
  leave: strict({ type: literal('leave') }),
}

// ---- coordinator → volunteer ----
const toVolunteer = {
  /** first message on a socket; `nonce` is for the hello of this socket only */
  challenge: strict({ type: literal('challenge'), nonce: Hex(NONCE_BYTES) }),
  /** answer to hello; job is null while there is none */
  welcome: strict({
    type: literal('welcome'),
    session: Token,
    owner: Count,
    signallingPath: Type.String({ maxLength: 200 }),
    iceServers: IceServersSchema,
    /** for a link to open, where it is not LINK_OPEN_MS */
    linkOpenMs: Type.Optional(Type.Integer({ minimum: MIN_LINK_OPEN_MS, maximum: MAX_LINK_OPEN_MS })),
    job: Type.Union([JobTermsSchema, Type.Null()]),
  }),
  /** new credentials, before those of the welcome expire */
  'ice-servers': strict({ type: literal('ice-servers'), iceServers: IceServersSchema }),
  /** a job began after the welcome */
  job: strict({ type: literal('job'), job: JobTermsSchema }),
  /** something was refused; `fatal`: the socket closes and coming back as is makes no sense */
  refused: strict({
    type: literal('refused'),
    code: ErrorCodeSchema,
    message: Type.String({ maxLength: 1000 }),
    fatal: Type.Boolean(),
  }),
  /** new ballot: stop the ring, answer state (R2, R3) */
  freeze: strict({ type: literal('freeze'), ...ballot }),
  /** who will be in the ring, the version that each must hold, and where to get it (R5, R7) */
  form: strict({
    type: literal('form'),
    ...ballot,
    members: Type.Array(MemberIdSchema, { minItems: 1, maxItems: MAX_RING_MEMBERS }),
    shares: Shares,
    /** pairs of places whose link goes through the coordinator (R18) */
    relayed: Type.Array(PairSchema, { maxItems: MAX_PAIRS }),
    /** which way the steps' frames take, and why; absent: around the ring */
    exchange: Type.Optional(strict({ type: ExchangeSchema, reason: Text })),
    committed: VersionRefSchema,
    records: Tail,
    target: VersionRefSchema,
    sources: Type.Array(MemberIdSchema, { maxItems: MAX_RING_MEMBERS }),
    /** the coordinator can serve the target over HTTP */
    coordinatorHolds: Type.Boolean(),
    /** what this member holds is not what others hold: it fetches the target whole */
    anew: Type.Optional(Type.Literal(true)),
    modeEpoch: Count,
    /** what each step is: one global batch, or a round of inner steps (A7) */
    kind: Type.Union([Type.Literal('ring'), Type.Literal('round')]),
  }),
  /** at version v, keep a copy of your state for newcomers */
  'copy-at': strict({ type: literal('copy-at'), ...ballot, v: Count }),
  /** to a newcomer while the ring runs: get this version, of which these members keep copies (R7) */
  prefetch: strict({
    type: literal('prefetch'),
    ...ballot,
    version: VersionRefSchema,
    sources: Type.Array(MemberIdSchema, { maxItems: MAX_RING_MEMBERS }),
    coordinatorHolds: Type.Boolean(),
  }),
  /** to a newcomer that has it: steps that were committed since; get their reduced gradients from these members */
  follow: strict({
    type: literal('follow'),
    ...ballot,
    records: Type.Array(StepRecordSchema, { minItems: 1, maxItems: PLAN_WINDOW }),
    sources: Type.Array(MemberIdSchema, { maxItems: MAX_RING_MEMBERS }),
  }),
  /** all confirmed: contribute from step `after.v + 1` on (R8, R9) */
  start: strict({ type: literal('start'), ...ballot, after: VersionRefSchema, plan: Plan }),
  /** more steps of the running generation (R12, R13); `shares`: of these steps, when speeds changed since FORM */
  plan: strict({ type: literal('plan'), ...ballot, steps: Plan, shares: Type.Optional(Shares) }),
  /** somebody is behind in this step: do not contribute to it before moved, and say how far you are */
  hold: strict({ type: literal('hold'), ...ballot, step: Count, round: Count }),
  /** this step takes too long: say how far you are, and go on (R17) */
  inquire: strict({ type: literal('inquire'), ...ballot, step: Count }),
  /** give up to `count` blocks of this step that you have not begun */
  release: strict({ type: literal('release'), ...ballot, step: Count, round: Count, count: Count }),
  /**
   * these blocks changed members, by their places in the ring, after their former ones released them; contribute when
   * your share is done (R12)
   */
  moved: strict({
    type: literal('moved'),
    ...ballot,
    step: Count,
    round: Count,
    moves: Type.Array(ShareMoveSchema, { maxItems: MAX_STEP_BLOCKS }),
  }),
  /** what guests computed will be in the share of the member in this place, of a step that it chooses (A1) */
  guest: strict({
    type: literal('guest'),
    ...ballot,
    id: Count,
    place: Count,
    blocks: Type.Array(BlockIdSchema, { minItems: 1, maxItems: MAX_STEP_BLOCKS }),
    samples: Count,
    targets: Count,
    lossSum: FiniteNumber,
    correct: Count,
  }),
  /** all know of this sum of guests: get it, and contribute it (A1) */
  'guest-take': strict({ type: literal('guest-take'), ...ballot, id: Count }),
  /** begin no step after this one: members change then, and nobody loses work to it (R2) */
  until: strict({ type: literal('until'), ...ballot, step: Count }),
  /** the chain is committed up to here (R11) */
  ack: strict({ type: literal('ack'), ...ballot, committed: VersionRefSchema }),
  /** at version v, `uploader` uploads its state, the others send its digest (R15) */
  'checkpoint-at': strict({ type: literal('checkpoint-at'), ...ballot, v: Count, uploader: MemberIdSchema }),
  /** `uploader` uploads the state of this version now, the others say their digest of it (A5) */
  'upload-request': strict({
    type: literal('upload-request'),
    ...ballot,
    version: VersionRefSchema,
    uploader: MemberIdSchema,
  }),
  /** compute these validation blocks at this version */
  validate: strict({
    type: literal('validate'),
    version: VersionRefSchema,
    leases: Type.Array(LeaseTokenSchema, { maxItems: 256 }),
  }),
  /** async mode began or goes on: ask for leases */
  async: strict({ type: literal('async'), ...ballot, modeEpoch: Count }),
  /** leases of one push, at a base version to pull; `guest`: beside a ring (A1), where the base is a checkpoint */
  grant: strict({
    type: literal('grant'),
    ...ballot,
    modeEpoch: Count,
    base: VersionRefSchema,
    leases: Type.Array(LeaseTokenSchema, { minItems: 1, maxItems: 256 }),
    deadlineMs: Count,
    guest: Type.Optional(Type.Boolean()),
  }),
  /** nothing to do now, and why */
  wait: strict({ type: literal('wait'), reason: Text }),
  /** the run ended */
  finished: strict({ type: literal('finished'), version: VersionRefSchema, reason: Text }),
}

/** Types of messages that belong to a connection. Every other message belongs to one job and names it on the wire. */
const OF_CONNECTION = ['challenge', 'hello', 'leave', 'welcome', 'ice-servers', 'job', 'refused'] as const
type OfConnection = (typeof OF_CONNECTION)[number]
const isOfConnection = (type: string): type is OfConnection => (OF_CONNECTION as readonly string[]).includes(type)

/**
 * A message as it travels: one that belongs to a job carries the job's id, so that no run takes what is for another.
 */
export type OnWire<M extends { readonly type: string }> = M extends { readonly type: OfConnection }
  ? M
  : M & { readonly job: JobId }

/** Adds the job's id to a message that belongs to a job. */
export function named<M extends ToCoordinator | ToVolunteer>(job: JobId, message: M): OnWire<M> {
  return (isOfConnection(message.type) ? message : { ...message, job }) as OnWire<M>
}

type Schemas = Readonly<Record<string, { readonly properties: Parameters<typeof strict>[0] }>>

function onWire(schemas: Schemas): Readonly<Record<string, Type.TSchema>> {
  return Object.fromEntries(
    Object.entries(schemas).map(([type, { properties }]) => [
      type,
      strict(isOfConnection(type) ? properties : { ...properties, job: JobIdSchema }),
    ]),
  )
}

export const TO_COORDINATOR = onWire(toCoordinator)
export const TO_VOLUNTEER = onWire(toVolunteer)
export type ToCoordinator = {
  [K in keyof typeof toCoordinator]: Static<(typeof toCoordinator)[K]>
}[keyof typeof toCoordinator]
export type ToVolunteer = { [K in keyof typeof toVolunteer]: Static<(typeof toVolunteer)[K]> }[keyof typeof toVolunteer]
export type MessageTo<K extends keyof typeof toVolunteer> = Static<(typeof toVolunteer)[K]>
export type MessageFrom<K extends keyof typeof toCoordinator> = Static<(typeof toCoordinator)[K]>
export type Claim = Static<typeof ClaimSchema>
export type ShareMove = Static<typeof ShareMoveSchema>
export type Consumed = Static<typeof ConsumedSchema>
/** One step of a plan: its global batch, to be split over the members. */
export interface PlanStep {
  readonly step: number
  readonly blocks: readonly BlockId[]
  /** by place in the ring: what members learned from already in a round that is tried again, and keep (A7) */
  readonly kept?: readonly (readonly BlockId[])[]
}
export type LeaseToken = Static<typeof LeaseTokenSchema>

/** A matrix of which a push carries only some rows; the others are zero. */
const SparsePartSchema = strict({ name: Type.String({ minLength: 1, maxLength: 200 }), rows: Count })
export type SparsePart = Static<typeof SparsePartSchema>
export const SparsePartsSchema = Type.Array(SparsePartSchema, { minItems: 1, maxItems: MAX_SPARSE_PARTS })

/** What goes with a push of gradients in async mode (HTTP header `x-starling-push`); the body is the f32 sum (A2). */
export const PushSchema = strict({
  incarnation: MemberIdSchema,
  modeEpoch: Count,
  base: VersionRefSchema,
  leases: Type.Array(LeaseTokenSchema, { minItems: 1, maxItems: 256 }),
  samples: Count,
  targets: Count,
  lossSum: FiniteNumber,
  correct: Count,
  /** how the body is cut (model/src/gradient-body.ts); absent: one dense vector */
  sparse: Type.Optional(SparsePartsSchema),
})
export type Push = Static<typeof PushSchema>

/** A member's share of one step; travels around the ring with the sums, so that all build the same record. */
export const ManifestSchema = Type.Unsafe<Manifest>(
  strict({
    blocks: Type.Array(BlockIdSchema, { maxItems: MAX_STEP_BLOCKS }),
    samples: Count,
    targets: Count,
    lossSum: FiniteNumber,
    correct: Count,
  }),
)
export interface Manifest {
  readonly blocks: readonly BlockId[]
  readonly samples: number
  readonly targets: number
  readonly lossSum: number
  readonly correct: number
}

/**
 * A volunteer asks another for state while a generation forms (R7): for the SHA-256 of every chunk of
 * FETCH_CHUNK_BYTES, or for `length` bytes from `from` on.
 */
export const FetchSchema = strict({
  kind: Type.Union([Type.Literal('state'), Type.Literal('reduced')]),
  ask: Type.Union([Type.Literal('hashes'), Type.Literal('bytes')]),
  version: strict({ v: Count, id: VersionIdSchema }),
  from: Count,
  length: Type.Integer({ minimum: 0, maximum: FETCH_CHUNK_BYTES }),
})
/** Payload of a refusal frame. */
export const FetchRefusalSchema = strict({ code: ErrorCodeSchema, message: Text })
export type FetchRequest = Static<typeof FetchSchema>

export const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(ERROR_CODES, code)
