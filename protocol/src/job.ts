// What a job owner submits.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { JobDatasetSchema } from './dataset.ts'
import { ExchangeSchema } from './exchange.ts'
import {
  FRAGMENTS,
  JobEncodingSchema,
  LOCAL,
  ModeSchema,
  MOST_EPOCHS,
  OptimizerSchema,
  Positive,
  PrecisionSchema,
  RequiresSchema,
} from './job-terms.ts'
import { type Mistake, mistakesOf, type Renamed } from './mistakes.ts'
import { parse, strict } from './schema.ts'
import { MetricSchema } from './tally.ts'

/** In a job file the coordinator has defaults. */
const LocalFieldsSchema = strict({
  innerSteps: Type.Optional(LOCAL.innerSteps),
  outerLr: Type.Optional(LOCAL.outerLr),
  outerMomentum: Type.Optional(LOCAL.outerMomentum),
  ...FRAGMENTS,
})

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

/**
 * Replica groups, in async mode: what a group learns in a round goes to the parameter server as one difference (G1).
 */
const GroupsSchema = strict({
  /** H: inner steps of a round; absent: auto, as many as make its exchange cheap and its loss bearable */
  innerSteps: Type.Optional(Type.Union([LOCAL.innerSteps, Type.Literal('auto')])),
  /** the inner learning rate rises with the root of the number of members, up to the noise scale; absent: it stays */
  crowdRate: Type.Optional(Type.Literal('sqrt')),
})
export type GroupSettings = Static<typeof GroupsSchema>

/** More than any coordinator takes (limits.ts) is no mistake: other coordinators may take more. */
const MAX_WANTED = 5000
const Wanted = Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_WANTED }))

/** One more weighs twice as much: beyond this a job of the least priority would never count. */
const MAX_PRIORITY = 100

/** How many volunteers a job takes (coordinator/src/jobs/schedule.ts). */
const VolunteersSchema = strict({
  /** training starts when this many are ready, and other jobs leave it this many; absent: 1 */
  min: Wanted,
  /** absent: as many as there are */
  max: Wanted,
})

/**
 * When a run ends: with the first of these that is reached, at the end of a step. One of `steps`, `epochs` and
 * `minutes` at least is named (`parseJob`), since a target may never be reached.
 */
export const StopSchema = strict({
  steps: Type.Optional(Type.Integer({ minimum: 1, maximum: 100_000_000 })),
  epochs: Type.Optional(Type.Integer({ minimum: 1, maximum: MOST_EPOCHS })),
  /** of training: time in which the run waits for volunteers or is paused does not count */
  minutes: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000 })),
  /** what `target`, `patience` and the best version go by; absent: loss */
  metric: Type.Optional(MetricSchema),
  /** a confirmed validation that reaches it ends the run */
  target: Type.Optional(Type.Number({ minimum: 0, maximum: 1e6 })),
  /** this many confirmed validations in a row without a better one end the run */
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

/** Blocks of one step. */
export const MOST_BATCH_BLOCKS = 256

/** Newest checkpoints that are kept where the job says nothing of it. */
export const LAST_CHECKPOINTS = 3
/** Most that each rule keeps: a whole state has up to a gigabyte. */
export const MOST_LAST_CHECKPOINTS = 20
export const MOST_BEST_CHECKPOINTS = 10

/** Which checkpoints stay; each that one of the rules keeps. */
export const KeepSchema = strict({
  /** those of the best confirmed validations by the job's metric; absent: none */
  best: Type.Optional(Type.Integer({ minimum: 1, maximum: MOST_BEST_CHECKPOINTS })),
  /** the newest; of two, one serves where the other is damaged */
  last: Type.Optional(Type.Integer({ minimum: 2, maximum: MOST_LAST_CHECKPOINTS })),
  /** the first in each interval of this many steps; absent: none */
  every: Type.Optional(Type.Integer({ minimum: 1, maximum: 100_000_000 })),
})
export type KeepRule = Static<typeof KeepSchema>

/** Names of tensors; each stands for itself, or for all below it: `fc3` for `fc3.weight` and `fc3.bias`. */
const MAX_NAMED_TENSORS = 1000
const LONGEST_TENSOR_NAME = 200

/**
 * Where the parameters of version 0 come from, in place of the seed: a file or another job. One of the two is named
 * (`parseJob`).
 */
const StartSchema = strict({
  /** safetensors, inside the data root */
  file: Type.Optional(Type.String({ minLength: 1, maxLength: 4096 })),
  /** of the same owner on the same coordinator */
  job: Type.Optional(Type.String({ pattern: '^[0-9a-z-]{1,40}$', title: 'the id of a job' })),
  /** a kept checkpoint of that job; absent: latest */
  version: Type.Optional(
    Type.Union([Type.Literal('latest'), Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })]),
  ),
  /** tensors that are not taken: those of the model begin at their seeded values */
  except: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: LONGEST_TENSOR_NAME }), {
      minItems: 1,
      maxItems: MAX_NAMED_TENSORS,
    }),
  ),
})
export type StartRule = Static<typeof StartSchema>

/** The batch grows with the ring (coordinator/src/run/ring/weak-scaling.ts). */
export const WeakScalingSchema = strict({
  /** steps in which the learning rate rises to that of a larger batch; absent: 100 */
  warmup: Type.Optional(Type.Integer({ minimum: 0, maximum: 100_000_000 })),
})

/** A job as submitted. The model is checked by `@starling-grid/model`, not here. */
export const JobSpecSchema = strict({
  name: Type.String({ minLength: 1, maxLength: 80 }),
  /** the beneficiary, shown to volunteers before they start */
  owner: Type.String({ minLength: 1, maxLength: 80 }),
  /** what is computed and why, one or two sentences */
  purpose: Type.String({ maxLength: 400 }),
  /** of the program that submits it: the same submission again is the same job */
  reference: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
  /** anybody may see its members, its data and its model; absent: only its owner and its volunteers */
  public: Type.Optional(Type.Boolean()),
  model: Type.Unknown(),
  /** absent: the seed makes the parameters of version 0 */
  from: Type.Optional(StartSchema),
  dataset: JobDatasetSchema,
  optimizer: OptimizerSchema,
  /** global norm of the mean gradient is clipped to this */
  clipNorm: Type.Optional(Positive),
  /** samples in a block, the unit of leasing */
  blockSamples: Type.Integer({ minimum: 1, maximum: 4096 }),
  /** blocks in a global batch: one step */
  batchBlocks: Type.Integer({ minimum: 1, maximum: MOST_BATCH_BLOCKS }),
  /** so many times `batchBlocks` make a step; `parseJob` writes the product there, and drops this field */
  gradientAccumulation: Type.Optional(Type.Integer({ minimum: 1, maximum: MOST_BATCH_BLOCKS })),
  /** `batchBlocks` are of each member, and the learning rate follows; absent: they are of all together */
  weakScaling: Type.Optional(WeakScalingSchema),
  stop: StopSchema,
  /** absent: after each epoch */
  evaluate: Type.Optional(EvaluateSchema),
  /** absent: the newest three checkpoints */
  keep: Type.Optional(KeepSchema),
  /** about one committed step of this many is computed again by the coordinator; 0: none; absent: 200 */
  audit: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000 })),
  /** who gets volunteers first when there are not enough: higher first; absent: 0 */
  priority: Type.Optional(Type.Integer({ minimum: -MAX_PRIORITY, maximum: MAX_PRIORITY })),
  volunteers: Type.Optional(VolunteersSchema),
  seed: Type.Integer({ minimum: 0, maximum: 0xffffffff }),
  mode: Type.Union([Type.Literal('auto'), ModeSchema]),
  /** settings of the parameter server, for the modes that use it */
  async: Type.Optional(AsyncSchema),
  /** mode `async` in rounds of replica groups, of which each member makes several steps before it pushes */
  groups: Type.Optional(GroupsSchema),
  /** of gradients in the ring and of the differences of local rounds; absent: f32 */
  encoding: Type.Optional(JobEncodingSchema),
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

  gradient_accumulation_steps: 'gradientAccumulation',
  accumulate_grad_batches: 'gradientAccumulation',
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
