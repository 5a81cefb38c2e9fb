import * as Type from 'typebox'
import type { Static, TSchema } from 'typebox'
import { type StepScaling, StepScalingSchema } from './chain.ts'
import { ExchangeSchema } from './exchange.ts'
import { GradientEncodingSchema, ModeSchema, RequiresSchema } from './job-terms.ts'
import { EvaluateSchema, StopSchema, WeakScalingSchema } from './job.ts'
import { Count, FiniteNumber, JobIdSchema, MemberIdSchema, type ReadonlyOf, VersionIdSchema } from './schema.ts'
// What people and programs see of a run: GET of a job, the list of jobs, and the dashboard's stream. Readers of another
// version may meet fields that they do not know, so the objects are open.
import { MetricSchema, NamedMetricSchema } from './tally.ts'

const Text = Type.String()
const orNull = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()])
/** ms since the epoch of the clock */
const Moment = FiniteNumber

/** Where a run is: waiting for volunteers, agreeing on a version, training, or over. */
const PhaseSchema = Type.Union([
  Type.Literal('waiting'),
  Type.Literal('freeze'),
  Type.Literal('forming'),
  Type.Literal('ring'),
  Type.Literal('handover'),
  Type.Literal('async'),
  Type.Literal('validating'),
  Type.Literal('lost'),
  Type.Literal('finished'),
])
export type Phase = Static<typeof PhaseSchema>

const AdapterSchema = Type.Object({
  name: Text,
  vendor: Text,
  software: Type.Boolean(),
  executor: Type.Union([Type.Literal('reference'), Type.Literal('wasm'), Type.Literal('webgpu')]),
  f16: Type.Optional(Type.Literal(true)),
})

/** What a member does now, and its part in each step. */
const MEMBER_WORK = {
  /** joining: plans the model; learning: fetches state; training; idle: admitted, waits */
  state: Type.Union([
    Type.Literal('joining'),
    Type.Literal('learning'),
    Type.Literal('training'),
    Type.Literal('idle'),
  ]),
  /** reported by the member itself: "computing", "exchanging", … */
  activity: Text,
  samplesPerSecond: FiniteNumber,
  /** position in the running ring, or null */
  rank: orNull(Count),
  /** of each step that the ring makes now: the part that is planned for it, 0…1; null outside the ring */
  fraction: orNull(FiniteNumber),
  /** ms that a lease lasts that it gets now */
  leaseMs: FiniteNumber,
} as const

/** What it exchanges with others. */
const MEMBER_TRAFFIC = {
  /**
   * its link to the next member of the ring, or in a direct exchange to any behind it, goes through the coordinator
   * (R18)
   */
  relayed: Type.Boolean(),
  /** members of its ring that it reaches over TCP; the others over WebRTC, or through the coordinator */
  tcpLinks: Type.Array(MemberIdSchema),
  bytesSent: FiniteNumber,
  bytesReceived: FiniteNumber,
} as const

const MemberViewSchema = Type.Object({
  ...MEMBER_WORK,
  ...MEMBER_TRAFFIC,
  id: MemberIdSchema,
  name: Text,
  client: Type.Union([Type.Literal('node'), Type.Literal('tab')]),
  adapter: orNull(AdapterSchema),
  /** a tab in the background: half the share, twice the lease */
  hidden: Type.Boolean(),
  joinedAt: Moment,
})
export type MemberView = ReadonlyOf<typeof MemberViewSchema>

/** What carries the links of a member, as far as it is not WebRTC: "relayed", "TCP to 2, 4". Empty: nothing else. */
export function linksInWords({ id, relayed, tcpLinks }: MemberView, members: readonly MemberView[]): string {
  const others = members.filter(({ id: other, rank }) => rank !== null && other !== id)
  const ranks = others.flatMap(({ id: other, rank }) => (rank !== null && tcpLinks.includes(other) ? [rank + 1] : []))
  const over = ranks.length === others.length ? 'TCP' : `TCP to ${ranks.sort((a, b) => a - b).join(', ')}`
  return [...(relayed ? ['relayed'] : []), ...(ranks.length > 0 ? [over] : [])].join(', ')
}

const DepartureViewSchema = Type.Object({
  id: MemberIdSchema,
  name: Text,
  at: Moment,
  reason: Text,
  expected: Type.Boolean(),
})
export type DepartureView = ReadonlyOf<typeof DepartureViewSchema>

/** How gradients travel now, and why. */
const PHASE = {
  phase: PhaseSchema,
  /** why the phase is what it is, in words */
  reason: Text,
  /** by its owner: it stands still until it is resumed */
  paused: Type.Boolean(),
  mode: ModeSchema,
  modeReason: Text,
  /**
   * which way gradients travel in the running ring, and why. Also predicted ms of a step's exchange either way, where
   * both can be predicted. null: no ring
   */
  exchange: orNull(
    Type.Object({
      type: ExchangeSchema,
      reason: Text,
      costs: orNull(Type.Object({ ring: FiniteNumber, direct: FiniteNumber })),
    }),
  ),
  /** of a job whose encoding is `auto`: how sums travel now, and why; absent: as the job says */
  encoding: Type.Optional(Type.Object({ type: GradientEncodingSchema, reason: Text })),
  /**
   * more volunteers are here than shorten the training: so many would train as fast; absent: all are of use, or it is
   * not known
   */
  crowd: Type.Optional(
    Type.Object({
      enough: Count,
      /** samples of a version beyond which more of them save few versions (gradient noise scale) */
      noiseScale: FiniteNumber,
    }),
  ),
  modeEpoch: Count,
  generation: Count,
} as const

/** One committed step. */
export const StepPointSchema = Type.Object({
  v: Count,
  loss: FiniteNumber,
  /** share of training samples of this step that were classified right, before its update */
  accuracy: FiniteNumber,
  samples: Count,
  mode: ModeSchema,
  at: Moment,
})
export type StepPoint = ReadonlyOf<typeof StepPointSchema>

export const ValidationPointSchema = Type.Object({
  v: Count,
  epoch: Count,
  accuracy: FiniteNumber,
  loss: FiniteNumber,
  samples: Count,
  /** by the kind of the targets; absent where blocks have no sums for them */
  metrics: Type.Optional(Type.Array(NamedMetricSchema)),
  /** of each block two members measured the same */
  confirmed: Type.Boolean(),
  at: Moment,
})
export type ValidationPoint = ReadonlyOf<typeof ValidationPointSchema>

export const RunEventSchema = Type.Object({
  at: Moment,
  kind: Type.Union([
    Type.Literal('mode'),
    Type.Literal('generation'),
    Type.Literal('member'),
    Type.Literal('checkpoint'),
    Type.Literal('rewind'),
    Type.Literal('validation'),
    Type.Literal('refusal'),
    Type.Literal('run'),
    Type.Literal('audit'),
  ]),
  text: Text,
})
export type RunEvent = ReadonlyOf<typeof RunEventSchema>

/** What the members of now are expected to do, by their speeds and what an exchange costs; made when they changed. */
const ForecastSchema = Type.Object({
  members: Count,
  samplesPerSecond: FiniteNumber,
  etaSeconds: orNull(FiniteNumber),
  /** of a step */
  computeMs: FiniteNumber,
  /** null: not known yet, and left out */
  exchangeMs: orNull(FiniteNumber),
})
export type ForecastView = ReadonlyOf<typeof ForecastSchema>

/** "forecast for 3 members: 430 samples/s, 12 ms computing and 5 ms exchange a step" */
export function forecastText({ members, samplesPerSecond, computeMs, exchangeMs }: ForecastView): string {
  const shown = (value: number): string => (value >= 10 ? Math.round(value).toLocaleString('en') : value.toFixed(1))
  const exchange = exchangeMs === null ? 'an exchange not yet measured' : `${shown(exchangeMs)} ms exchange`
  const who = members === 1 ? 'one member' : `${members} members`
  const step = `${shown(computeMs)} ms computing and ${exchange} a step`
  return `forecast for ${who}: ${shown(samplesPerSecond)} samples/s, ${step}`
}

/** "sums travel as int8: 3.1 times as fast as f32 …" */
export function encodingText({ type, reason }: NonNullable<RunView['encoding']>): string {
  return `sums travel as ${type}${reason === '' ? '' : `: ${reason}`}`
}

/** "16 volunteers would train as fast as these 64 …" */
export function crowdText({ enough, noiseScale }: NonNullable<RunView['crowd']>, members: number): string {
  const volunteers = enough === 1 ? '1 volunteer' : `${enough} volunteers`
  return (
    `${volunteers} would train as fast as these ${members}: ` +
    `beyond ${Math.round(noiseScale)} samples a version, more of them teach little`
  )
}

/** How far the training is. */
const PROGRESS = {
  version: Type.Object({ v: Count, id: VersionIdSchema }),
  epoch: Count,
  queue: Type.Object({ todo: Count, pending: Count, done: Count, quarantined: Count }),
  validationQueue: Type.Object({ todo: Count, pending: Count, done: Count }),
  samplesCommitted: Count,
  samplesExpected: Count,
  samplesPerSecond: FiniteNumber,
  etaSeconds: orNull(FiniteNumber),
  /** absent: speeds of members are not known */
  forecast: Type.Optional(ForecastSchema),
  /** of the newest committed step, where the batch follows the ring; absent: the job's own */
  scaling: Type.Optional(StepScalingSchema),
  /** the newest committed step, and the newest version that was validated */
  lastStep: orNull(StepPointSchema),
  lastValidation: orNull(ValidationPointSchema),
  /** the best confirmed validation by the job's metric; null: none was confirmed yet */
  best: orNull(
    Type.Object({
      v: Count,
      id: VersionIdSchema,
      metric: MetricSchema,
      /** of this metric */
      value: FiniteNumber,
      loss: FiniteNumber,
      accuracy: FiniteNumber,
    }),
  ),
  startedAt: Moment,
  finishedAt: orNull(Moment),
} as const

/** A job that has fewer volunteers than it needs to start, and where the others are. */
const WaitSchema = Type.Object({
  missing: Count,
  /** volunteers that are here and lack what it requires, and what that is, in words; absent: none */
  unfit: Type.Optional(Type.Object({ volunteers: Count, requires: Text })),
  elsewhere: Type.Array(
    Type.Object({
      /** of another job; null: its name is not for this reader */
      job: orNull(Text),
      priority: Type.Integer(),
      volunteers: Count,
    }),
  ),
})
export type WaitView = ReadonlyOf<typeof WaitSchema>

/** Who takes part. */
const MEMBERSHIP = {
  /**
   * `whole`: all of it. `totals`: no names, no reasons and no member by itself, for readers without a token of a job
   * that is not public
   */
  detail: Type.Union([Type.Literal('whole'), Type.Literal('totals')]),
  memberCount: Count,
  /** those of the ring first, then those who came first; 256 at most, where memberCount says how many there are */
  members: Type.Array(MemberViewSchema),
  departed: Type.Array(DepartureViewSchema),
  /**
   * links whose frames go through the coordinator: open now, bytes carried for this run since the coordinator started,
   * and lately
   */
  relay: Type.Object({ links: Count, bytes: FiniteNumber, bytesPerSecond: FiniteNumber }),
  /** why a job waits for volunteers; null: it has enough to train, or is over or paused */
  wait: orNull(WaitSchema),
  /** refusals by code (protocol errors table) */
  refusals: Type.Record(Type.String(), Count),
} as const

/** What the job is, for people. */
const JobViewSchema = Type.Object({
  id: JobIdSchema,
  name: Text,
  owner: Text,
  purpose: Text,
  /** as its owner's program named it; shown to the owner alone */
  reference: Type.Optional(Text),
  model: Text,
  parameters: Count,
  /** bytes of the values that training on one sample keeps */
  activationBytes: FiniteNumber,
  dataset: Text,
  trainSamples: Count,
  validationSamples: Count,
  downloadBytes: FiniteNumber,
  /** of these the imported model that it tunes; absent: it tunes none */
  baseBytes: Type.Optional(FiniteNumber),
  /** its model goes on with a text, or answers in a chat; absent: it answers samples */
  writes: Type.Optional(Type.Union([Type.Literal('text'), Type.Literal('chat')])),
  /** null: something else ends the run */
  epochs: orNull(Count),
  /** what validations measure of it; absent in runs of older coordinators */
  metrics: Type.Optional(Type.Array(MetricSchema)),
  /** what ends the run, and when it is validated, as its file says */
  stop: Type.Object(StopSchema.properties),
  evaluate: Type.Object(EvaluateSchema.properties),
  /** training blocks of one epoch */
  blocksPerEpoch: Count,
  blockSamples: Count,
  batchBlocks: Count,
  /** `batchBlocks` are of each member, and the learning rate follows */
  weakScaling: Type.Optional(Type.Object(WeakScalingSchema.properties)),
  priority: Type.Integer(),
  /** what a machine must have to take part; absent in runs of older coordinators */
  requires: Type.Optional(Type.Object(RequiresSchema.properties)),
  /** that it needs to start, and takes at most; max null: as many as there are */
  volunteers: Type.Object({ min: Count, max: orNull(Count) }),
})

/** Committed steps that the coordinator computed again, and what came of it. */
const AuditViewSchema = Type.Object({
  /** about one step of this many */
  every: Count,
  agreed: Count,
  differed: Count,
  notComputed: Count,
  /** why steps of this job are not audited; null: they are */
  off: orNull(Text),
  last: orNull(
    Type.Object({
      v: Count,
      at: Moment,
      result: Type.Union([Type.Literal('agreed'), Type.Literal('differed'), Type.Literal('not computed')]),
      text: Text,
    }),
  ),
})
export type AuditView = ReadonlyOf<typeof AuditViewSchema>

export const RunViewSchema = Type.Object({
  ...PHASE,
  ...PROGRESS,
  ...MEMBERSHIP,
  job: JobViewSchema,
  /**
   * newest durable version; `agreeing` of the `members` of its ring are known to hold exactly these bytes, its uploader
   * included
   */
  checkpoint: orNull(
    Type.Object({
      v: Count,
      id: VersionIdSchema,
      bytes: Count,
      at: Moment,
      witnessed: Type.Boolean(),
      agreeing: Count,
      members: Count,
    }),
  ),
  /** committed steps that the coordinator computed again since it started */
  audit: AuditViewSchema,
  /** path of the exported model, or null before the first checkpoint */
  exportPath: orNull(Text),
  /** where several coordinators share their jobs: addresses of the one that has this run, and of the others */
  coordinators: Type.Optional(Type.Object({ owner: Text, others: Type.Array(Text) })),
})
export type RunView = ReadonlyOf<typeof RunViewSchema>

/** "waits for 2 more volunteers; 3 work for `digits` (priority 5)", as pages and commands say it. */
export function waitText({ missing, unfit, elsewhere }: WaitView): string {
  const others = elsewhere.map(
    ({ job, priority, volunteers }) =>
      `${volunteers} ${volunteers === 1 ? 'works' : 'work'} for ` +
      `${job === null ? 'another job' : `\`${job}\``} (priority ${priority})`,
  )
  const lacking =
    unfit === undefined
      ? []
      : [`${unfit.volunteers} ${unfit.volunteers === 1 ? 'lacks' : 'lack'} what it requires: ${unfit.requires}`]
  return [`waits for ${missing} more volunteer${missing === 1 ? '' : 's'}`, ...lacking, ...others].join('; ')
}

/** "2 of 1–3", or "2 of at least 1": members, and what the job takes. */
export function membersText({ memberCount, job: { volunteers } }: Pick<RunView, 'memberCount' | 'job'>): string {
  const { min, max } = volunteers
  return `${memberCount} of ${max === null ? `at least ${min}` : `${min}–${max}`}`
}

/** "6 blocks (2 of each of 3 members), learning rate 0.06 (3 times that of one)": a batch that follows the ring. */
export function scalingText(
  { batch, scale, lr }: StepScaling,
  { batchBlocks }: { readonly batchBlocks: number },
): string {
  const times = batch / batchBlocks
  const shown = (value: number): string => String(Number(value.toPrecision(3)))
  const members = Number.isInteger(times) ? `${batchBlocks} of each of ${times} members` : 'the most of a step'
  return `${batch} blocks (${members}), learning rate ${shown(lr)} (${shown(scale)} times that of one)`
}

/** Which epoch a run is in: "3 of 8", or "3" where epochs do not end it. */
export function epochText({ epoch, job }: Pick<RunView, 'epoch' | 'job'>): string {
  return job.epochs === null ? String(epoch + 1) : `${Math.min(epoch + 1, job.epochs)} of ${job.epochs}`
}
