// What a job owner submits, and what a volunteer is told of it at join.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { DatasetManifestSchema, JobDatasetSchema } from './dataset.ts'
import { ExchangeSchema } from './exchange.ts'
import { type Mistake, mistakesOf, type Renamed } from './mistakes.ts'
import { JobIdSchema, parse, Sha256Schema, strict } from './schema.ts'

export const MODES = ['ring', 'local', 'async'] as const
export type Mode = (typeof MODES)[number]
export const ModeSchema = Type.Union([Type.Literal('ring'), Type.Literal('local'), Type.Literal('async')])

/** How gradients travel in the ring: whole, in half precision, or in eight bits with a scale for each 256. */
const GradientEncodingSchema = Type.Union([Type.Literal('f32'), Type.Literal('f16'), Type.Literal('int8')])
export type GradientEncoding = Static<typeof GradientEncodingSchema>

/**
 * How values between kernels are stored while a member computes: 'f16' takes half the memory. Arithmetic, sums,
 * parameters and gradients are f32 either way.
 */
const PrecisionSchema = Type.Union([Type.Literal('f32'), Type.Literal('f16')])
export type Precision = Static<typeof PrecisionSchema>

const Positive = Type.Number({ exclusiveMinimum: 0, maximum: 1e6 })
const Fraction = Type.Number({ minimum: 0, exclusiveMaximum: 1 })

/**
 * Rises from 0 over `warmup` steps, then falls to lr × `to` until step `steps`: a straight line or half a cosine wave.
 * A submitted job may leave out `steps`: then it is the whole run.
 */
const ScheduleSchema = strict({
  type: Type.Union([Type.Literal('linear'), Type.Literal('cosine')]),
  to: Type.Number({ minimum: 0, maximum: 1 }),
  warmup: Type.Optional(Type.Integer({ minimum: 0, maximum: 100_000_000 })),
  steps: Type.Optional(Type.Integer({ minimum: 1, maximum: 100_000_000 })),
})

/** What weight decay holds for: every parameter, or only matrices and filters. */
const DecaySchema = Type.Union([Type.Literal('all'), Type.Literal('matrices')])

/** PyTorch's names and semantics; the arithmetic is `@starling-grid/shaders` optimizers'. */
export const OptimizerSchema = Type.Union([
  strict({
    type: Type.Literal('sgd'),
    lr: Positive,
    momentum: Type.Optional(Fraction),
    nesterov: Type.Optional(Type.Boolean()),
    weightDecay: Type.Optional(Fraction),
    decay: Type.Optional(DecaySchema),
    schedule: Type.Optional(ScheduleSchema),
  }),
  strict({
    type: Type.Union([Type.Literal('adam'), Type.Literal('adamw')]),
    lr: Positive,
    betas: Type.Optional(Type.Tuple([Fraction, Fraction])),
    eps: Type.Optional(Positive),
    weightDecay: Type.Optional(Fraction),
    decay: Type.Optional(DecaySchema),
    schedule: Type.Optional(ScheduleSchema),
  }),
])

/** More make pieces too small for the ring to be worth a turn. */
const MAX_FRAGMENTS = 64

/**
 * Local rounds (DiLoCo): every volunteer makes `innerSteps` with the job's optimizer, then the mean of their
 * differences one outer step.
 */
const LOCAL = {
  innerSteps: Type.Integer({ minimum: 1, maximum: 1000 }),
  /** of the outer SGD with Nesterov's momentum */
  outerLr: Positive,
  outerMomentum: Fraction,
} as const
const FRAGMENTS = {
  /**
   * F: pieces of the model that are averaged one after the other within a round, at most one for each inner step;
   * absent: 1
   */
  fragments: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_FRAGMENTS })),
}
const LocalSchema = strict({ ...LOCAL, ...FRAGMENTS })
/** In a job file the coordinator has defaults. */
const LocalFieldsSchema = strict({
  innerSteps: Type.Optional(LOCAL.innerSteps),
  outerLr: Type.Optional(LOCAL.outerLr),
  outerMomentum: Type.Optional(LOCAL.outerMomentum),
  ...FRAGMENTS,
})
export type LocalSettings = Static<typeof LocalSchema>

/**
 * Async mode (A2, A3): when the parameter server makes a version of what was pushed, and what becomes of late pushes.
 * Defaults and what goes together: coordinator/src/run/async/async-policy.ts.
 */
const AsyncSchema = strict({
  /** of every push; of those of a proportion of the members; of one of each member (synchronous) */
  update: Type.Optional(Type.Union([Type.Literal('each'), Type.Literal('proportion'), Type.Literal('all')])),
  /** for `proportion`: up to 1 a share of the members that push, above it a number of pushes */
  proportion: Type.Optional(
    Type.Union([Type.Number({ exclusiveMinimum: 0, maximum: 1 }), Type.Integer({ minimum: 2, maximum: 256 })]),
  ),
  /** versions that a push may be behind */
  maxStaleness: Type.Optional(Type.Integer({ minimum: 0, maximum: 1000 })),
  /** what keeps to it: a later push is dropped, or members wait for the slowest before they take more work */
  whenStale: Type.Optional(Type.Union([Type.Literal('drop'), Type.Literal('wait')])),
  /** a push that is s versions late counts 1/(1+s), or whole */
  damping: Type.Optional(Type.Union([Type.Literal('none'), Type.Literal('inverse')])),
  /** λ of DC-ASGD: late gradients are corrected for how far the parameters moved since */
  delayCompensation: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 100 })),
})
export type AsyncSettings = Static<typeof AsyncSchema>

/** What a machine must have to take part; volunteers without it leave the job to others. */
const RequiresSchema = strict({
  /** GB (10⁹ bytes) that its owner allows one job */
  memory: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 10_000 })),
  /** an adapter with a GPU behind it, no software and no reference executor */
  realGpu: Type.Optional(Type.Boolean()),
})
export type Requirements = Static<typeof RequiresSchema>

/** More than any coordinator takes (limits.ts) is no mistake: other coordinators may take more. */
const MAX_WANTED = 5000
const Wanted = Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_WANTED }))

/** One more weighs twice as much: beyond this a job of the least priority would never count. */
const MAX_PRIORITY = 100

/** How many volunteers a job takes (coordinator/src/jobs/schedule.ts). */
const VolunteersSchema = strict({
  /** training starts when so many are ready, and other jobs leave it so many; absent: 1 */
  min: Wanted,
  /** absent: as many as there are */
  max: Wanted,
})

/** Epochs of a job that names none: other fields end it. */
export const MOST_EPOCHS = 10_000

/** What judges a version: the mean loss of its validation, or the part of its targets that were right. */
export const MetricSchema = Type.Union([Type.Literal('loss'), Type.Literal('accuracy')])
export type Metric = Static<typeof MetricSchema>

/**
 * When a run ends: with the first of these that is reached, at the end of a step. One of `steps`, `epochs` and
 * `minutes` at least is named (`parseJob`), since a target may never be reached.
 */
export const StopSchema = strict({
  steps: Type.Optional(Type.Integer({ minimum: 1, maximum: 100_000_000 })),
  epochs: Type.Optional(Type.Integer({ minimum: 1, maximum: MOST_EPOCHS })),
  /** of training: time in which the run waits for volunteers or is paused does not count */
  minutes: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000 })),
  /** what `target`, `patience` and the best version go by; absent: loss. Accuracy rises, loss falls */
  metric: Type.Optional(MetricSchema),
  /** a confirmed validation that reaches it ends the run */
  target: Type.Optional(Type.Number({ minimum: 0, maximum: 1e6 })),
  /** so many confirmed validations in a row without a better one end the run */
  patience: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000 })),
})
export type StopRule = Static<typeof StopSchema>

/** When versions are validated: one of the two; the last version always is. */
export const EvaluateSchema = strict({
  /** in the midst of an epoch, too: training rests at the version while it is validated */
  everySteps: Type.Optional(Type.Integer({ minimum: 1, maximum: 100_000_000 })),
  everyEpochs: Type.Optional(Type.Integer({ minimum: 1, maximum: MOST_EPOCHS })),
})
export type EvaluateRule = Static<typeof EvaluateSchema>

/** A job as submitted. The model is checked by `@starling-grid/model`, not here. */
export const JobSpecSchema = strict({
  name: Type.String({ minLength: 1, maxLength: 80 }),
  /** the beneficiary, shown to volunteers before they start */
  owner: Type.String({ minLength: 1, maxLength: 80 }),
  /** what is computed and why, one or two sentences */
  purpose: Type.String({ maxLength: 400 }),
  /** anybody may see its members, its data and its model; absent: only its owner and its volunteers */
  public: Type.Optional(Type.Boolean()),
  model: Type.Unknown(),
  dataset: JobDatasetSchema,
  optimizer: OptimizerSchema,
  /** global norm of the mean gradient is clipped to this */
  clipNorm: Type.Optional(Positive),
  /** samples in a block, the unit of leasing */
  blockSamples: Type.Integer({ minimum: 1, maximum: 4096 }),
  /** blocks in a global batch: one step */
  batchBlocks: Type.Integer({ minimum: 1, maximum: 256 }),
  stop: StopSchema,
  /** absent: after each epoch */
  evaluate: Type.Optional(EvaluateSchema),
  /** about one committed step of so many is computed again by the coordinator; 0: none; absent: 200 */
  audit: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000 })),
  /** who gets volunteers first when there are not enough: higher first; absent: 0 */
  priority: Type.Optional(Type.Integer({ minimum: -MAX_PRIORITY, maximum: MAX_PRIORITY })),
  volunteers: Type.Optional(VolunteersSchema),
  seed: Type.Integer({ minimum: 0, maximum: 0xffffffff }),
  mode: Type.Union([Type.Literal('auto'), ModeSchema]),
  /** settings of the parameter server, for the modes that use it */
  async: Type.Optional(AsyncSchema),
  /** of gradients in the ring and of the differences of local rounds; absent: f32 */
  encoding: Type.Optional(GradientEncodingSchema),
  /** 'f16': only adapters with the feature shader-f16 take part; absent: f32 */
  precision: Type.Optional(PrecisionSchema),
  /** which way gradients take while a ring is at work; absent: auto, by what each way was measured to cost */
  exchange: Type.Optional(Type.Union([Type.Literal('auto'), ExchangeSchema])),
  /** settings of local rounds; mode `local` has defaults */
  local: Type.Optional(LocalFieldsSchema),
  requires: Type.Optional(RequiresSchema),
})
export type JobSpec = Static<typeof JobSpecSchema>

/** Names of other programs, and our own older ones → what to write. */
const RENAMED: Renamed = {
  'optimizer.learningRate': 'lr',
  'optimizer.learning_rate': 'lr',
  lr: 'optimizer.lr',
  learningRate: 'optimizer.lr',
  learning_rate: 'optimizer.lr',
  batchSize: 'blockSamples` and `batchBlocks',
  batch_size: 'blockSamples` and `batchBlocks',
  loss: 'model.loss',
  minVolunteers: 'volunteers.min',
  maxVolunteers: 'volunteers.max',
  epochs: 'stop.epochs',
  maxSteps: 'stop.steps',
  max_steps: 'stop.steps',
  steps: 'stop.steps',
  patience: 'stop.patience',
  validateEvery: 'evaluate.everyEpochs',
}

/**
 * All that is wrong with the fields of a job. The model is not looked into: `parseJob` of `@starling-grid/model` checks
 * the whole job.
 */
export function jobMistakes(value: unknown): Mistake[] {
  return mistakesOf(JobSpecSchema, value, RENAMED)
}

/**
 * A job without mistakes as its type.
 * @throws GridError 'job-invalid'
 */
export function asJobSpec(value: unknown): JobSpec {
  return parse(JobSpecSchema, value, 'the job', 'job-invalid')
}

/** What a volunteer needs to take part: the job without the folders of the coordinator's disk. */
export const JobTermsSchema = strict({
  id: JobIdSchema,
  name: Type.String({ maxLength: 80 }),
  owner: Type.String({ maxLength: 80 }),
  purpose: Type.String({ maxLength: 400 }),
  model: Type.Unknown(),
  /** hash of the model as the coordinator reads it; a volunteer that computes another refuses */
  modelHash: Sha256Schema,
  dataset: DatasetManifestSchema,
  optimizer: OptimizerSchema,
  clipNorm: Type.Optional(Positive),
  blockSamples: Type.Integer({ minimum: 1, maximum: 4096 }),
  batchBlocks: Type.Integer({ minimum: 1, maximum: 256 }),
  /** at most: the run may end sooner */
  epochs: Type.Integer({ minimum: 1, maximum: MOST_EPOCHS }),
  seed: Type.Integer({ minimum: 0, maximum: 0xffffffff }),
  /** absent: f32 */
  encoding: Type.Optional(GradientEncodingSchema),
  /** absent: f32 */
  precision: Type.Optional(PrecisionSchema),
  /** the run may train in local rounds */
  local: Type.Optional(LocalSchema),
  /** a volunteer that lacks it leaves the job, and says why */
  requires: Type.Optional(RequiresSchema),
})
export type JobTerms = Static<typeof JobTermsSchema>
