import * as Type from 'typebox'
import type { Static } from 'typebox'
import { MAX_BASE_SOURCES } from './base-manifest.ts'
import { StepRecordSchema, type StepScaling, StepScalingSchema, VersionRefSchema } from './chain.ts'
import { ShardRefSchema } from './dataset.ts'
import type { ErrorCode } from './errors.ts'
import { ExchangeSchema } from './exchange.ts'
import { MAX_VERSION_SOURCES } from './hash-list.ts'
import { NONCE_BYTES, PUBLIC_KEY_BYTES, SALT_BYTES, SIGNATURE_BYTES } from './identity.ts'
import type { BlockId, JobId } from './ids.ts'
import { GradientEncodingSchema, JobTermsSchema, MAX_INNER_STEPS } from './job-terms.ts'
import {
  FETCH_CHUNK_BYTES,
  MAX_DIRECT_MEMBERS,
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
import { MAX_COORDINATORS } from './same-authority.ts'
import {
  BlockIdSchema,
  BlockIdsSchema,
  Count,
  FiniteNumber,
  JobIdSchema,
  MemberIdSchema,
  Sha256Schema,
  strict,
  VersionIdSchema,
} from './schema.ts'
// Messages between volunteer and coordinator (JSON over one WebSocket). The comment of each message is its row in
// docs/PROTOCOL.md (`npm run docs` writes the tables). Rules (R3, A5) are explained in docs/RULES.md.
import { TallySchema } from './tally.ts'

const literal = <T extends string>(type: T) => Type.Literal(type)
const ErrorCodeSchema = Type.Unsafe<ErrorCode>(Type.String({ maxLength: 40, pattern: '^[a-z-]+$' }))
const Text = Type.String({ maxLength: 400 })
const Hex = (bytes: number) => Type.String({ pattern: `^[0-9a-f]{${2 * bytes}}$` })
/** of the learning rate of rounds: √(1 + 256) at most (coordinator/src/run/groups/crowd-rate.ts) */
const MOST_RATE = 17
/** goes into a header (session-socket.ts) */
const Token = Type.String({ minLength: 16, maxLength: 128, pattern: '^[A-Za-z0-9_-]+$' })
/**
 * fence: number of the coordinator process (R3); generation: number of the ballot and of the generation that it forms
 * (R2)
 */
const ballot = { fence: Count, generation: Count }
const Tail = Type.Array(StepRecordSchema, { maxItems: 2 * PLAN_WINDOW })
const PlanStepSchema = Type.Unsafe<PlanStep>(
  strict({
    step: Count,
    blocks: BlockIdsSchema({ maxItems: MAX_STEP_BLOCKS }),
    kept: Type.Optional(Type.Array(BlockIdsSchema({ maxItems: MAX_STEP_BLOCKS }), { maxItems: MAX_RING_MEMBERS })),
    scaling: Type.Optional(StepScalingSchema),
  }),
)
/** Speed of each member in samples per second; a step is divided in these proportions. */
const Weights = Type.Array(Type.Number({ minimum: 0, maximum: 1e12 }), { minItems: 1, maxItems: MAX_RING_MEMBERS })
/** Two ranks, in ascending order. */
const PairSchema = Type.Tuple([Count, Count])
/** As many as a volunteer remembers. */
const MAX_DECLINED = 64
/** As many as a dataset may have. */
const MAX_APPENDED_SHARDS = 1800
/** Links of a direct exchange: one for every two members. */
const MAX_PAIRS = (MAX_DIRECT_MEMBERS * (MAX_DIRECT_MEMBERS - 1)) / 2
const Plan = Type.Array(PlanStepSchema, { maxItems: 2 * PLAN_WINDOW })
/** Blocks of one step that pass from one member to another; both are named by their ranks. */
const AssignmentMoveSchema = strict({
  from: Count,
  to: Count,
  blocks: BlockIdsSchema({ minItems: 1, maxItems: MAX_STEP_BLOCKS }),
})
const LeaseTokenSchema = strict({ block: BlockIdSchema, leaseEpoch: Count })

/** Why a member aborts a generation. The first three are link failures; the abort names each link that failed. */
export const BLAME_REASONS = {
  unopened: 'a link to a neighbour did not open in time',
  closed: 'an open link closed',
  silent: 'no frame, not even a heartbeat, arrived on an open link for SILENCE_MS',
  refused: 'a neighbour sent a frame that an honest member does not send',
  stalled: 'the reduce makes no progress although its links are alive',
  own: 'the member itself failed',
} as const
export type BlameReason = keyof typeof BLAME_REASONS
export type LinkTrouble = 'unopened' | 'closed' | 'silent'
export const isLinkTrouble = (why: BlameReason): why is LinkTrouble =>
  why === 'unopened' || why === 'closed' || why === 'silent'
const BlameReasonSchema = Type.Unsafe<BlameReason>(Type.Enum(Object.keys(BLAME_REASONS)))
/** STUN and TURN servers; TURN credentials expire after minutes. */
export const IceServersSchema = Type.Array(
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
  executor: Type.Union([Type.Literal('reference'), Type.Literal('wasm'), Type.Literal('webgpu')]),
  /** it has the feature shader-f16 */
  f16: Type.Optional(Type.Literal(true)),
})

/** The version that a member claims to hold: a committed version and the records since (checked by R4). */
export const ClaimSchema = strict({ base: VersionRefSchema, records: Tail })

/** Blocks of the inner steps that a member made in an unfinished local round, and the version it started from (A7). */
const ConsumedSchema = strict({
  base: VersionRefSchema,
  blocks: BlockIdsSchema({ maxItems: MAX_STEP_BLOCKS }),
})

/** Origin of a coordinator. */
const CoordinatorUrl = Type.String({ minLength: 1, maxLength: 300 })

/** Characters of an invite's code. */
const MAX_INVITE_LENGTH = 200

// ---- volunteer → coordinator ----
const toCoordinator = {
  /** answer to `challenge`: member id and proof (identity.ts); one member may greet on several sockets */
  hello: strict({
    type: literal('hello'),
    /** the codec refuses any other version before it reads other fields (codec.ts) */
    protocol: Type.Literal(PROTOCOL_VERSION),
    incarnation: MemberIdSchema,
    name: Type.String({ minLength: 1, maxLength: MAX_NAME_LENGTH }),
    client: Type.Union([Type.Literal('node'), Type.Literal('tab')]),
    publicKey: Hex(PUBLIC_KEY_BYTES),
    salt: Hex(SALT_BYTES),
    /** host name and port that the volunteer dialled */
    coordinator: Type.String({ minLength: 1, maxLength: 300 }),
    /** Ed25519 signature of helloText */
    signature: Hex(SIGNATURE_BYTES),
    /** the coordinator welcomed this incarnation before */
    again: Type.Optional(Type.Boolean()),
    /** its present job */
    job: Type.Optional(JobIdSchema),
    /** it takes no other before that one ends */
    only: Type.Optional(Type.Literal(true)),
    /** jobs that it does not take */
    declines: Type.Optional(Type.Array(JobIdSchema, { maxItems: MAX_DECLINED })),
    /** code of the invite that this volunteer was given */
    invite: Type.Optional(Type.String({ minLength: 1, maxLength: MAX_INVITE_LENGTH })),
  }),
  /** before `ready`: which members have the base of the job? */
  'seek-base': strict({ type: literal('seek-base') }),
  /** the model is planned and the adapter measured: the volunteer asks for admission */
  ready: strict({
    type: literal('ready'),
    modelHash: Sha256Schema,
    adapter: AdapterSchema,
    samplesPerSecond: Type.Number({ minimum: 0, maximum: 1e12 }),
    /** a complete version that the volunteer kept from its last visit */
    holds: Type.Optional(VersionRefSchema),
    /** it opens no direct link: the coordinator relays the frames of all its pairs from the first ballot on (R18) */
    relaysOnly: Type.Optional(Type.Literal(true)),
  }),
  /** sent every HEARTBEAT_MS */
  heartbeat: strict({
    type: literal('heartbeat'),
    samplesPerSecond: Type.Number({ minimum: 0, maximum: 1e12 }),
    activity: Type.String({ maxLength: 40 }),
    bytesSent: Count,
    bytesReceived: Count,
    /** one-way latency of its slowest link in ms; absent before the first measurement */
    linkMs: Type.Optional(Type.Number({ minimum: 0, maximum: 60_000 })),
    /** the tab is in the background, where its browser may throttle or suspend it */
    hidden: Type.Optional(Type.Boolean()),
    /** members whose frames take TCP; absent: none */
    tcpLinks: Type.Optional(Type.Array(MemberIdSchema, { maxItems: MAX_RING_MEMBERS })),
    /** frames of other members that this one refused since its last heartbeat */
    refusals: Type.Optional(
      Type.Array(strict({ code: ErrorCodeSchema, from: MemberIdSchema, count: Count }), { maxItems: MAX_REFUSALS }),
    ),
  }),
  /** answer to `freeze` (R3); the claim is null when the member holds no version */
  state: strict({
    type: literal('state'),
    ...ballot,
    claim: Type.Union([ClaimSchema, Type.Null()]),
    consumed: Type.Optional(ConsumedSchema),
  }),
  /**
   * answer to `freeze` and `async` with numbers below those that the member promised: the coordinator's journal is
   * older than the promise (R3)
   */
  promised: strict({ type: literal('promised'), ...ballot, seen: strict(ballot) }),
  /** answer to `copy-at`: the member keeps a copy for newcomers; its salted digest */
  copied: strict({ type: literal('copied'), ...ballot, version: VersionRefSchema, digest: Sha256Schema }),
  /** after `prefetch`, and as it follows: the volunteer holds this version whole; null: it could not fetch it */
  prefetched: strict({ type: literal('prefetched'), ...ballot, version: Type.Union([VersionRefSchema, Type.Null()]) }),
  /** answer to `prove`: the salted digest, null without this version; members that it linked to (R2) */
  proof: strict({
    type: literal('proof'),
    ...ballot,
    salt: Sha256Schema,
    digest: Type.Union([Sha256Schema, Type.Null()]),
    linked: Type.Array(MemberIdSchema, { maxItems: MAX_DIRECT_MEMBERS }),
  }),
  /** the member holds the target version whole and its links are open (R7, R8) */
  confirm: strict({ type: literal('confirm'), ...ballot, version: VersionRefSchema, digest: Sha256Schema }),
  /** the member applied step `record.v` completely (R10) */
  held: strict({ type: literal('held'), ...ballot, record: StepRecordSchema }),
  /** this generation cannot continue (R2); `links`: members whose links failed, the blamed member first (R17, R18) */
  abort: strict({
    type: literal('abort'),
    ...ballot,
    step: Count,
    blamed: Type.Union([MemberIdSchema, Type.Null()]),
    why: BlameReasonSchema,
    links: Type.Array(MemberIdSchema, { maxItems: MAX_DIRECT_MEMBERS - 1 }),
    code: ErrorCodeSchema,
    message: Text,
  }),
  /** the member's assignment takes longer than planned; other members may take blocks that it has not begun (R12) */
  behind: strict({ type: literal('behind'), ...ballot, step: Count }),
  /**
   * answer to `rebalance`; `open`: it waits for `rebalance-done`; `left`: blocks not begun; `blockMs`: time of one
   * block in ms
   */
  'rebalance-progress': strict({
    type: literal('rebalance-progress'),
    ...ballot,
    step: Count,
    round: Count,
    open: Type.Boolean(),
    left: Count,
    blockMs: Type.Number({ minimum: 0, maximum: 1e9 }),
  }),
  /** answer to `inquire`: stage of the step, number of frames received, ranks whose frames are missing (R17) */
  standing: strict({
    type: literal('standing'),
    ...ballot,
    step: Count,
    stage: Type.Union([Type.Literal('computing'), Type.Literal('reducing'), Type.Literal('held')]),
    received: Count,
    waitsFor: Type.Array(Count, { maxItems: MAX_RING_MEMBERS }),
  }),
  /** answer to `off-ring`: the member accepts these blocks in a manifest from now on (A1) */
  'off-ring-known': strict({ type: literal('off-ring-known'), ...ballot, id: Count }),
  /** answer to `rebalance-release`: blocks that the member has not begun and will not begin (R12) */
  'rebalance-released': strict({
    type: literal('rebalance-released'),
    ...ballot,
    step: Count,
    round: Count,
    blocks: BlockIdsSchema({ maxItems: MAX_STEP_BLOCKS }),
  }),
  /** a direct link opened to a neighbour whose frames the coordinator relays (R18) */
  'link-restored': strict({ type: literal('link-restored'), ...ballot, peer: MemberIdSchema }),
  /** answer to `checkpoint-at` and `upload-request`: digest of the complete state of the version (R15) */
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
    /** what metrics follow from; absent where there are none, and from older volunteers */
    tally: Type.Optional(TallySchema),
  }),
  /** the member returns leases whose data or base version it could not get */
  'gave-back': strict({
    type: literal('gave-back'),
    leases: Type.Array(LeaseTokenSchema, { minItems: 1, maxItems: MAX_STEP_BLOCKS }),
    code: ErrorCodeSchema,
    message: Text,
  }),
  /** the shard of these blocks is missing or corrupt; the coordinator then checks its own copy */
  unreadable: strict({
    type: literal('unreadable'),
    blocks: BlockIdsSchema({ minItems: 1, maxItems: 256 }),
    code: ErrorCodeSchema,
    message: Text,
  }),
  /** async mode: the member is idle and asks for blocks */
  'lease-request': strict({
    type: literal('lease-request'),
    modeEpoch: Count,
    /** sources of the last grant that did not serve its base (G3) */
    unserved: Type.Optional(Type.Array(MemberIdSchema, { maxItems: MAX_VERSION_SOURCES })),
  }),
  /** the volunteer closes on purpose; its leases return at once */
  leave: strict({ type: literal('leave') }),
}

// ---- coordinator → volunteer ----
const toVolunteer = {
  /** first message on a socket; the `hello` of this socket signs the nonce */
  challenge: strict({ type: literal('challenge'), nonce: Hex(NONCE_BYTES) }),
  /** answer to `hello`; job is null while no job runs */
  welcome: strict({
    type: literal('welcome'),
    session: Token,
    fence: Count,
    signallingPath: Type.String({ maxLength: 200 }),
    iceServers: IceServersSchema,
    /** time for a link to open in ms; absent: LINK_OPEN_MS */
    linkOpenMs: Type.Optional(Type.Integer({ minimum: MIN_LINK_OPEN_MS, maximum: MAX_LINK_OPEN_MS })),
    job: Type.Union([JobTermsSchema, Type.Null()]),
  }),
  /** they share its jobs */
  coordinators: strict({
    type: literal('coordinators'),
    urls: Type.Array(CoordinatorUrl, { maxItems: MAX_COORDINATORS }),
  }),
  /** go there */
  moved: strict({ type: literal('moved'), url: CoordinatorUrl, to: Type.Union([JobIdSchema, Type.Null()]) }),
  /** TURN credentials, before the first order to open links and again before they expire */
  'ice-servers': strict({ type: literal('ice-servers'), iceServers: IceServersSchema }),
  /** a job started after `welcome` */
  job: strict({ type: literal('job'), job: JobTermsSchema }),
  /** the coordinator refused a message; `fatal`: it closes the socket, and reconnecting unchanged fails again */
  refused: strict({
    type: literal('refused'),
    code: ErrorCodeSchema,
    message: Type.String({ maxLength: 1000 }),
    fatal: Type.Boolean(),
  }),
  /** new ballot: stop the ring and answer `state` (R2, R3), with records from the version `committed` on */
  freeze: strict({ type: literal('freeze'), ...ballot, committed: Count }),
  /** members of the next ring, the version that each must reach, and the members that can serve it (R5, R7) */
  form: strict({
    type: literal('form'),
    ...ballot,
    members: Type.Array(MemberIdSchema, { minItems: 1, maxItems: MAX_RING_MEMBERS }),
    weights: Weights,
    /** pairs of ranks whose link the coordinator relays (R18) */
    relayed: Type.Array(PairSchema, { maxItems: MAX_PAIRS }),
    /** algorithm of the exchange, with the reason; absent: ring */
    exchange: Type.Optional(strict({ type: ExchangeSchema, reason: Text })),
    /** of this generation, where the run chooses it; absent: the job's */
    encoding: Type.Optional(GradientEncodingSchema),
    committed: VersionRefSchema,
    records: Tail,
    target: VersionRefSchema,
    sources: Type.Array(MemberIdSchema, { maxItems: MAX_RING_MEMBERS }),
    /** sources, neighbours apart, whose link the coordinator relays (R18); absent: none */
    relayedSources: Type.Optional(Type.Array(MemberIdSchema, { maxItems: MAX_RING_MEMBERS })),
    /** true when the coordinator serves the target over HTTP */
    coordinatorHolds: Type.Boolean(),
    /** the state of this member differs from the others': it fetches the target whole */
    anew: Type.Optional(Type.Literal(true)),
    modeEpoch: Count,
    /** what one step is: a global batch, or a local round of inner steps (A7) */
    kind: Type.Union([Type.Literal('ring'), Type.Literal('round')]),
  }),
  /** copy the state at version v for newcomers, and digest it with this salt (R7) */
  'copy-at': strict({ type: literal('copy-at'), ...ballot, v: Count, salt: Sha256Schema }),
  /** to a newcomer: link to these members; at version v digest the state with this salt (R2) */
  prove: strict({
    type: literal('prove'),
    ...ballot,
    v: Count,
    salt: Sha256Schema,
    peers: Type.Array(MemberIdSchema, { maxItems: MAX_DIRECT_MEMBERS }),
  }),
  /** to a newcomer while the ring runs: fetch this version from the members that keep copies (R7) */
  prefetch: strict({
    type: literal('prefetch'),
    ...ballot,
    version: VersionRefSchema,
    sources: Type.Array(MemberIdSchema, { maxItems: MAX_RING_MEMBERS }),
    coordinatorHolds: Type.Boolean(),
    /** what it holds did not pass: it fetches the version whole */
    anew: Type.Optional(Type.Literal(true)),
  }),
  /** to a source, before those that are to fetch from it learn of it: these members may open a link to it (R7) */
  meet: strict({
    type: literal('meet'),
    ...ballot,
    members: Type.Array(MemberIdSchema, { minItems: 1, maxItems: MAX_RING_MEMBERS }),
    /** those of them that the source links to through the coordinator (R18); absent: none */
    relayed: Type.Optional(Type.Array(MemberIdSchema, { maxItems: MAX_RING_MEMBERS })),
  }),
  /** answer to `seek-base`; none: the coordinator has it */
  'base-sources': strict({
    type: literal('base-sources'),
    members: Type.Array(MemberIdSchema, { maxItems: MAX_BASE_SOURCES }),
  }),
  /** may fetch here */
  'share-base': strict({ type: literal('share-base'), member: MemberIdSchema }),
  /** to a newcomer that holds the copy: fetch and apply the reduced gradients of the steps committed since (R7) */
  follow: strict({
    type: literal('follow'),
    ...ballot,
    records: Type.Array(StepRecordSchema, { minItems: 1, maxItems: PLAN_WINDOW }),
    sources: Type.Array(MemberIdSchema, { maxItems: MAX_RING_MEMBERS }),
  }),
  /** all members confirmed: contribute from step `after.v + 1` on (R8, R9) */
  start: strict({ type: literal('start'), ...ballot, after: VersionRefSchema, plan: Plan }),
  /** further steps of the generation (R12, R13); `weights`: a new division, when speeds changed */
  plan: strict({ type: literal('plan'), ...ballot, steps: Plan, weights: Type.Optional(Weights) }),
  /** a member is behind in this step: report progress, and do not contribute before `rebalance-done` (R12) */
  rebalance: strict({ type: literal('rebalance'), ...ballot, step: Count, round: Count }),
  /** the step takes too long: report `standing` and continue (R17) */
  inquire: strict({ type: literal('inquire'), ...ballot, step: Count }),
  /** give up at most `count` blocks that the member has not begun (R12) */
  'rebalance-release': strict({
    type: literal('rebalance-release'),
    ...ballot,
    step: Count,
    round: Count,
    count: Count,
  }),
  /** end of a round of `rebalance`: these blocks changed members; contribute when the assignment is done (R12) */
  'rebalance-done': strict({
    type: literal('rebalance-done'),
    ...ballot,
    step: Count,
    round: Count,
    moves: Type.Array(AssignmentMoveSchema, { maxItems: MAX_STEP_BLOCKS }),
  }),
  /** the member of this rank will contribute these blocks of off-ring members in a later step (A1) */
  'off-ring': strict({
    type: literal('off-ring'),
    ...ballot,
    id: Count,
    rank: Count,
    blocks: BlockIdsSchema({ minItems: 1, maxItems: MAX_STEP_BLOCKS }),
    samples: Count,
    targets: Count,
    lossSum: FiniteNumber,
    correct: Count,
  }),
  /** all members answered `off-ring-known`: fetch this sum of off-ring members and contribute it (A1) */
  'off-ring-take': strict({ type: literal('off-ring-take'), ...ballot, id: Count }),
  /** begin no step after this one: the members change at that border, so no work is lost (R2) */
  'last-step': strict({ type: literal('last-step'), ...ballot, step: Count }),
  /** the chain is committed up to this version (R11) */
  ack: strict({ type: literal('ack'), ...ballot, committed: VersionRefSchema }),
  /** at version v the uploader sends its state over HTTP; other members send `version-digest` (R15) */
  'checkpoint-at': strict({ type: literal('checkpoint-at'), ...ballot, v: Count, uploader: MemberIdSchema }),
  /** the uploader sends its state of this version now; other members send `version-digest` (A5) */
  'upload-request': strict({
    type: literal('upload-request'),
    ...ballot,
    version: VersionRefSchema,
    uploader: MemberIdSchema,
  }),
  /** send the sums of these committed steps over HTTP, for audits and disputes */
  'sums-request': strict({
    type: literal('sums-request'),
    versions: Type.Array(VersionRefSchema, { minItems: 1, maxItems: PLAN_WINDOW }),
  }),
  /** training shards that join those before them */
  appended: strict({
    type: literal('appended'),
    before: Count,
    shards: Type.Array(ShardRefSchema, { minItems: 1, maxItems: MAX_APPENDED_SHARDS }),
  }),
  /** evaluate these validation blocks at this version */
  validate: strict({
    type: literal('validate'),
    version: VersionRefSchema,
    leases: Type.Array(LeaseTokenSchema, { maxItems: 256 }),
  }),
  /** async mode: ask for leases (A5) */
  async: strict({ type: literal('async'), ...ballot, modeEpoch: Count }),
  /**
   * leases for one push, its base; `offRing`: a checkpoint beside a ring (A1)
   */
  grant: strict({
    type: literal('grant'),
    ...ballot,
    modeEpoch: Count,
    base: VersionRefSchema,
    leases: Type.Array(LeaseTokenSchema, { minItems: 1, maxItems: MAX_STEP_BLOCKS }),
    deadlineMs: Count,
    /** in a run of groups: make so many inner steps of these blocks, and push their difference (G1) */
    innerSteps: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_INNER_STEPS })),
    /** global batches in the base, for the learning rate's schedule */
    fromStep: Type.Optional(Count),
    /** factor of the learning rate of these inner steps; absent: 1 */
    rate: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: MOST_RATE })),
    /** of the round, where the run chooses it; absent: the job's */
    encoding: Type.Optional(GradientEncodingSchema),
    offRing: Type.Optional(Type.Boolean()),
    /** members that have the base, or fetch it now (G3); absent: the coordinator has it */
    sources: Type.Optional(Type.Array(MemberIdSchema, { minItems: 1, maxItems: MAX_VERSION_SOURCES })),
  }),
  /** no work at present, with its reason */
  wait: strict({ type: literal('wait'), reason: Text }),
  /** the run ended; sent to members and to volunteers that prepare for it */
  finished: strict({ type: literal('finished'), version: VersionRefSchema, reason: Text }),
}

/** Messages of a connection. Every other message belongs to one job and carries its id on the wire. */
const OF_CONNECTION = [
  'challenge',
  'hello',
  'leave',
  'welcome',
  'coordinators',
  'moved',
  'ice-servers',
  'job',
  'refused',
] as const
type OfConnection = (typeof OF_CONNECTION)[number]
const isOfConnection = (type: string): type is OfConnection => (OF_CONNECTION as readonly string[]).includes(type)

/**
 * A message on the wire. A message of a job carries the job's id, so that no run accepts a message of another run.
 */
export type OnWire<M extends { readonly type: string }> = M extends { readonly type: OfConnection }
  ? M
  : M & { readonly job: JobId }

/**
 * Adds the job's id to a message that belongs to a job. The id comes first: an object that is spread and then added to
 * becomes a table in V8, of ten times the size and the time.
 */
export function named<M extends ToCoordinator | ToVolunteer>(job: JobId, message: M): OnWire<M> {
  return (isOfConnection(message.type) ? message : { job, ...message }) as OnWire<M>
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
export type AssignmentMove = Static<typeof AssignmentMoveSchema>
export type Consumed = Static<typeof ConsumedSchema>
/** One step of a plan: its global batch, to be split over the members. */
export interface PlanStep {
  readonly step: number
  readonly blocks: readonly BlockId[]
  /** by rank: blocks that members keep from an interrupted local round (A7) */
  readonly kept?: readonly (readonly BlockId[])[]
  /** of a job with weak scaling: all members update with this rate, and write it in the record */
  readonly scaling?: StepScaling
}
export type LeaseToken = Static<typeof LeaseTokenSchema>

/** A matrix of which a push carries some rows only; the other rows are zero. */
const SparsePartSchema = strict({ name: Type.String({ minLength: 1, maxLength: 200 }), rows: Count })
export type SparsePart = Static<typeof SparsePartSchema>
export const SparsePartsSchema = Type.Array(SparsePartSchema, { minItems: 1, maxItems: MAX_SPARSE_PARTS })

/** What goes with a push of gradients in async mode (HTTP header `x-starling-push`); the body is the f32 sum (A2). */
export const PushSchema = strict({
  incarnation: MemberIdSchema,
  modeEpoch: Count,
  base: VersionRefSchema,
  /** of the grant, whose blocks these are: all, or the first ones of a round whose member leaves (G1) */
  leaseEpoch: Count,
  /** how many those are */
  blocks: Type.Integer({ minimum: 1, maximum: MAX_STEP_BLOCKS }),
  samples: Count,
  targets: Count,
  lossSum: FiniteNumber,
  correct: Count,
  /** matrices that the body carries by rows (model/src/gradient-body.ts); absent: the body is one dense vector */
  sparse: Type.Optional(SparsePartsSchema),
  /** of a round's difference: its grant's (model/src/encoded-vector.ts); absent: f32 */
  encoding: Type.Optional(GradientEncodingSchema),
})
export type PushHeader = Static<typeof PushSchema>
/** A push whose grant is known: with a token for each of its blocks. */
export interface Push extends Omit<PushHeader, 'leaseEpoch' | 'blocks'> {
  readonly leases: readonly LeaseToken[]
}

/** A member's assignment of one step; it travels with the sums, so that all members build the same record. */
export const ManifestSchema = Type.Unsafe<Manifest>(
  strict({
    blocks: BlockIdsSchema({ maxItems: MAX_STEP_BLOCKS }),
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
 * Request for state between volunteers (R7): for the SHA-256 of every chunk of FETCH_CHUNK_BYTES, or for `length`
 * bytes that start at byte `from`.
 */
export const FetchSchema = strict({
  kind: Type.Union([Type.Literal('state'), Type.Literal('reduced'), Type.Literal('parameters')]),
  ask: Type.Union([Type.Literal('hashes'), Type.Literal('bytes')]),
  version: strict({ v: Count, id: VersionIdSchema }),
  from: Count,
  length: Type.Integer({ minimum: 0, maximum: FETCH_CHUNK_BYTES }),
})
/** Payload of a refusal frame. */
export const FetchRefusalSchema = strict({ code: ErrorCodeSchema, message: Text })
export type FetchRequest = Static<typeof FetchSchema>
