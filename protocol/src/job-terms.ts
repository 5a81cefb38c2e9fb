// What a volunteer is told of a job at join, and the parts of it that a job file has, too.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { DatasetManifestSchema } from './dataset.ts'
import { JobIdSchema, Sha256Schema, strict } from './schema.ts'

export const MODES = ['ring', 'local', 'async'] as const
export type Mode = (typeof MODES)[number]
export const ModeSchema = Type.Union([Type.Literal('ring'), Type.Literal('local'), Type.Literal('async')])

/**
 * How gradients and differences of rounds travel: whole, in half precision, in eight bits with a scale for each 256,
 * or, differences only, the largest of each chunk in two bits.
 */
export const GradientEncodingSchema = Type.Union([
  Type.Literal('f32'),
  Type.Literal('f16'),
  Type.Literal('int8'),
  Type.Literal('sparse2'),
])
export type GradientEncoding = Static<typeof GradientEncodingSchema>
/** Of a job: one, or the one that the run finds best now, which FORM and grants name. */
export const JobEncodingSchema = Type.Union([GradientEncodingSchema, Type.Literal('auto')])
export type JobEncoding = Static<typeof JobEncodingSchema>

/** Where FORM or a grant names none: of `auto` the one that loses nothing. */
export function encodingAtFirst({ encoding = 'f32' }: { readonly encoding?: JobEncoding }): GradientEncoding {
  return encoding === 'auto' ? 'f32' : encoding
}

/**
 * How values between kernels are stored while a member computes: 'f16' takes half the memory. Arithmetic, sums,
 * parameters and gradients are f32 either way.
 */
export const PrecisionSchema = Type.Union([Type.Literal('f32'), Type.Literal('f16')])
export type Precision = Static<typeof PrecisionSchema>

export const Positive = Type.Number({ exclusiveMinimum: 0, maximum: 1e6 })
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

/** H at most: DiLoCo has 500 */
export const MAX_INNER_STEPS = 1000

/**
 * Local rounds (DiLoCo): every volunteer makes `innerSteps` with the job's optimizer, then the mean of their
 * differences one outer step.
 */
export const LOCAL = {
  innerSteps: Type.Integer({ minimum: 1, maximum: MAX_INNER_STEPS }),
  /** of the outer SGD with Nesterov's momentum */
  outerLr: Positive,
  outerMomentum: Fraction,
} as const
export const FRAGMENTS = {
  /**
   * F: pieces of the model that are averaged one after the other within a round, at most one for each inner step;
   * absent: 1
   */
  fragments: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_FRAGMENTS })),
}
const LocalSchema = strict({ ...LOCAL, ...FRAGMENTS })
export type LocalSettings = Static<typeof LocalSchema>

/** What a machine must have to take part; volunteers without it leave the job to others. */
export const RequiresSchema = strict({
  /** GB (10⁹ bytes) that its owner allows one job */
  memory: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 10_000 })),
  /** an adapter with a GPU behind it, no software and no reference executor */
  realGpu: Type.Optional(Type.Boolean()),
  /** an adapter with the WebGPU feature shader-f16; a job in f16 needs it anyway */
  f16: Type.Optional(Type.Boolean()),
})
export type Requirements = Static<typeof RequiresSchema>

/** "a GPU, shader-f16, 8 GB of memory"; undefined: nothing beyond what the model needs. */
export function requiresText({ realGpu, f16, memory }: Requirements): string | undefined {
  const all = [
    ...(realGpu === true ? ['a GPU'] : []),
    ...(f16 === true ? ['shader-f16'] : []),
    ...(memory === undefined ? [] : [`${memory} GB of memory`]),
  ]
  return all.length === 0 ? undefined : all.join(', ')
}

/** What a job asks of adapters: values in f16 need the feature, too. */
export function requirementsOf({
  requires = {},
  precision,
}: {
  readonly requires?: Requirements
  readonly precision?: Precision
}): Requirements {
  return precision === 'f16' ? { ...requires, f16: true } : requires
}

/** Epochs of a job that names none: other fields end it. */
export const MOST_EPOCHS = 10_000

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
  /** SHA-256 of the parameters of version 0 (f32, little-endian), which members fetch; absent: the seed makes them */
  initial: Type.Optional(Sha256Schema),
  /** absent: f32 */
  encoding: Type.Optional(JobEncodingSchema),
  /** absent: f32 */
  precision: Type.Optional(PrecisionSchema),
  /** the run may train in local rounds */
  local: Type.Optional(LocalSchema),
  /** a volunteer that lacks it leaves the job, and says why */
  requires: Type.Optional(RequiresSchema),
})
export type JobTerms = Static<typeof JobTermsSchema>
