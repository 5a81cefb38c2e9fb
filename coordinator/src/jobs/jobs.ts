// From what an owner submits to all that a run needs: dataset in shards, model checked, terms for volunteers,
// configuration of the decisions. What is stored is enough to make the same again after a restart.
import { randomBytes } from 'node:crypto'
import {
  encodedVectorBytes,
  maxVersionBytes,
  type ModelSpec,
  modelHash,
  outerOptimizer,
  parameterCount,
  parameterLayout,
  parseModelSpec,
  parseOptimizerSpec,
  type VersionForm,
} from '@starling-grid/model'
import {
  blockRanges,
  type BlockRanges,
  type DatasetManifest,
  genesis,
  encodingAtFirst,
  type GradientEncoding,
  type JobId,
  jobId,
  type JobSpec,
  type JobTerms,
  MAX_BLOCKS,
  MOST_EPOCHS,
  type Sha256,
  sha256Name,
  type ShardRef,
} from '@starling-grid/protocol'
import type { Catalog } from '../datasets/catalog.ts'
import { datasetInside } from '../datasets/data-root.ts'
import { importDataset } from '../datasets/import.ts'
import { type DatasetWords, datasetWords } from '../datasets/words.ts'
import type { StoredJob } from '../journal/state-store.ts'
import { keptVersions } from '../parameter-server/memory.ts'
import { asyncPolicy } from '../run/async/async-policy.ts'
import type { RoundBytes } from '../run/policy/encoding-choice.ts'
import type { RunConfig } from '../run/state.ts'
import type { Timing } from '../run/timing.ts'
import { filesOf, type HeldBase, type HeldBlob, modelOf, withBase } from './base.ts'
import { mistaken } from './mistaken.ts'
import { encodingsOf, localSettings } from './rounds.ts'
import { startOf, type StartParts } from './start.ts'
import { requireStateMemory } from './state-memory.ts'
import { withFieldsOfToday } from './stored-spec.ts'

interface JobBlocks {
  readonly training: BlockRanges
  readonly validation: BlockRanges
}

export interface Job extends JobBlocks {
  readonly id: JobId
  readonly spec: JobSpec
  /** as its owner wrote it */
  readonly submitted: JobSpec
  readonly manifest: DatasetManifest
  readonly words: DatasetWords
  /** ms since the epoch */
  readonly submittedAt: number
  /** id of the token that submitted it; absent: the first token */
  readonly ownedBy: string | undefined
  /** blob of the parameters of version 0; undefined: the seed makes them */
  readonly initial: Sha256 | undefined
  /** blobs of the frozen parameters */
  readonly frozen: readonly HeldBlob[]
  readonly form: VersionForm
  readonly terms: JobTerms
  readonly config: RunConfig
}

/** What is kept of a job, as JSON. */
interface Description {
  readonly spec: JobSpec
  readonly manifest: DatasetManifest
  /** absent in jobs of older programs */
  readonly words?: DatasetWords
  readonly submittedAt: number
  readonly ownedBy?: string
  /** of a job that begins with given parameters */
  readonly initial?: { readonly sha256: Sha256 }
  /** of a job that tunes an imported model */
  readonly base?: HeldBase
  /** its schedule runs over the whole training: the file named no number of steps */
  readonly wholeSchedule?: true
}

/** Of weak scaling where the job names none: a ring that changes more often never reaches the full rate. */
const WARMUP_STEPS = 100

const ID_RANDOM_BYTES = 3
/** Characters of a job's name in its id. */
const ID_NAME_LENGTH = 30

export interface ImportParts extends StartParts {
  /** of datasets that jobs name */
  readonly catalog: Catalog
  /** ms since the epoch */
  readonly submittedAt: number
  /** id of the token that submits it; absent: the first token */
  readonly ownedBy?: string | undefined
}

/**
 * Checks the whole job, imports its dataset, and keeps the parameters that it begins with.
 * @throws GridError 'model-invalid', 'job-invalid', 'unsupported', 'dataset-unreadable', 'disk-failed'
 */
export async function importJob(written: JobSpec, parts: ImportParts): Promise<StoredJob> {
  const { dataRoot, submittedAt, ownedBy, blobs } = parts
  requireStateMemory(written, await modelOf(written, parts.catalog))
  const { spec, base } = await withBase(written, parts)
  const model = parseModelSpec(spec.model)
  parseOptimizerSpec(spec.optimizer)
  asyncPolicy(spec.async, keptVersions(parameterCount(model)), spec.groups)
  localSettings(spec)
  requireRoom(spec)
  const start = base?.start ?? (await startOf(spec, model, parts))
  const manifest = await importDataset(await datasetInside(spec.dataset, dataRoot), model, parts)
  if (blockRanges(manifest.train, spec.blockSamples).length > MAX_BLOCKS)
    throw mistaken(['blockSamples'], {
      expected: `at most ${MAX_BLOCKS} blocks of an epoch`,
      found: `more with blocks of ${spec.blockSamples} samples`,
      hint: 'use larger blocks',
    })
  const words = await datasetWords(spec.dataset, parts.catalog)
  const description: Description = {
    spec: { ...withScheduledSteps(spec, manifest), ...(start?.from ? { from: start.from } : {}) },
    manifest,
    words,
    submittedAt,
    ...(ownedBy === undefined ? {} : { ownedBy }),
    ...(start ? { initial: { sha256: await blobs.put(start.parameters) } } : {}),
    ...(base ? { base: base.held } : {}),
    ...(spec.optimizer.schedule?.steps === undefined ? { wholeSchedule: true } : {}),
  }
  return { id: newJobId(spec.name), description: JSON.stringify(description) }
}

/** @throws GridError 'job-invalid' */
function requireRoom({ volunteers: { min = 1, max } = {} }: JobSpec): void {
  if (max !== undefined && max < min)
    throw mistaken(['volunteers', 'max'], {
      expected: `at least the minimum of ${min}`,
      found: String(max),
      hint: 'raise `max`, or lower `min`',
    })
}

/** A schedule that names no number of steps runs over the whole training. */
function withScheduledSteps(spec: JobSpec, manifest: DatasetManifest): JobSpec {
  const { optimizer, stop, batchBlocks, blockSamples, weakScaling } = spec
  if (optimizer.schedule === undefined || optimizer.schedule.steps !== undefined) return spec
  const stepsPerEpoch = Math.ceil(blockRanges(manifest.train, blockSamples).length / batchBlocks)
  // with weak scaling it counts batches of one member, of which a step has several
  const mostSteps = weakScaling === undefined ? (stop.steps ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY
  const steps = Math.min(mostSteps, (stop.epochs ?? MOST_EPOCHS) * stepsPerEpoch)
  return { ...spec, optimizer: { ...optimizer, schedule: { ...optimizer.schedule, steps } } }
}

function withoutScheduledSteps(spec: JobSpec): JobSpec {
  const { schedule, ...optimizer } = spec.optimizer
  if (schedule === undefined) return spec
  const { steps: _, ...whole } = schedule
  return { ...spec, optimizer: { ...optimizer, schedule: whole } }
}

/** A job as it was stored by importJob, which checked it. */
export function readJob({ id, description }: StoredJob, timing: Timing): Job {
  const { spec: stored, manifest, words = {}, submittedAt, ownedBy, ...kept } = JSON.parse(description) as Description
  const initial = kept.initial?.sha256
  const spec = withFieldsOfToday(withVolunteers(stored))
  const model = parseModelSpec(spec.model)
  const local = localSettings(spec)
  const form: VersionForm = {
    spec: model,
    layout: parameterLayout(model),
    optimizer: spec.optimizer,
    ...(local ? { outer: outerOptimizer(local) } : {}),
  }
  const training = blockRanges(manifest.train, spec.blockSamples)
  const validation = blockRanges(manifest.validation, spec.blockSamples)
  const config = configOf({
    id,
    spec,
    model,
    timing,
    blocks: training.length,
    shardBlocks: Math.ceil(training.length / Math.max(1, manifest.train.length)),
    validationBlocks: validation.length,
    versionBytes: maxVersionBytes(form),
    initial,
  })
  return {
    id,
    spec,
    submitted: kept.wholeSchedule === true ? withoutScheduledSteps(spec) : spec,
    manifest,
    words,
    submittedAt,
    ownedBy,
    initial,
    frozen: kept.base === undefined || model.base === undefined ? [] : filesOf(kept.base),
    form,
    terms: { ...termsOf(id, spec, model, manifest), ...(initial ? { initial } : {}) },
    config,
    training,
    validation,
  }
}

/** Data was appended to its dataset: all that hold this job see the shards. */
export function appendShards(job: Job, shards: readonly ShardRef[]): void {
  const manifest = { ...job.manifest, train: [...job.manifest.train, ...shards] }
  const training = blockRanges(manifest.train, job.spec.blockSamples)
  Object.assign(job, { manifest, training, terms: { ...job.terms, dataset: manifest } } satisfies Partial<Job>)
}

/** Jobs were stored with `minVolunteers` before they had `volunteers`. */
function withVolunteers({ minVolunteers, ...spec }: JobSpec & { readonly minVolunteers?: number }): JobSpec {
  return minVolunteers === undefined ? spec : { ...spec, volunteers: { min: minVolunteers, ...spec.volunteers } }
}

interface ConfigParts {
  readonly id: JobId
  readonly spec: JobSpec
  readonly model: ModelSpec
  readonly timing: Timing
  readonly blocks: number
  readonly shardBlocks: number
  readonly validationBlocks: number
  readonly versionBytes: number
  readonly initial: Sha256 | undefined
}

function configOf({ id, spec, model, timing, initial, ...sizes }: ConfigParts): RunConfig {
  const { seed, batchBlocks, blockSamples, stop, evaluate = {}, keep = {}, volunteers, mode, weakScaling } = spec
  const warmup = weakScaling?.warmup ?? WARMUP_STEPS
  const encoding = encodingAtFirst(spec)
  return {
    job: id,
    genesis: genesis(id, modelHash(model), seed, initial),
    seed,
    ...(initial ? { initial } : {}),
    ...sizes,
    batchBlocks,
    ...(weakScaling === undefined ? {} : { weak: { warmup, optimizer: spec.optimizer } }),
    blockSamples,
    epochs: stop.epochs ?? MOST_EPOCHS,
    stop,
    evaluate,
    keep,
    minVolunteers: volunteers?.min ?? 1,
    mode,
    exchange: { asked: spec.exchange ?? 'auto', bytes: bytesIn(encoding, model) },
    roundBytes: roundBytesOf(encoding, model),
    ...(spec.encoding === 'auto' ? { encodings: rungsOf(spec, model) } : {}),
    timing,
    async: asyncPolicy(spec.async, keptVersions(parameterCount(model)), spec.groups),
    roundSteps: localSettings(spec)?.innerSteps ?? 1,
  }
}

function rungsOf(spec: JobSpec, model: ModelSpec): NonNullable<RunConfig['encodings']> {
  return encodingsOf(spec).map((encoding) => ({
    encoding,
    bytes: bytesIn(encoding, model),
    roundBytes: roundBytesOf(encoding, model),
  }))
}

/** A push in an encoding, and a version before it: as halves where the push is encoded. */
function roundBytesOf(encoding: GradientEncoding, model: ModelSpec): RoundBytes {
  return { push: bytesIn(encoding, model), pull: bytesIn(encoding === 'f32' ? 'f32' : 'f16', model) }
}

function bytesIn(encoding: GradientEncoding, model: ModelSpec): number {
  const count = parameterCount(model)
  return encoding === 'f32' ? count * Float32Array.BYTES_PER_ELEMENT : encodedVectorBytes(count, encoding)
}

/** The job without the folders of our disk. */
function termsOf(id: JobId, spec: JobSpec, model: ModelSpec, dataset: DatasetManifest): JobTerms {
  const { name, owner, purpose, optimizer, clipNorm, blockSamples, batchBlocks, stop, seed, encoding, precision } = spec
  const local = localSettings(spec)
  const clipping = clipNorm === undefined ? {} : { clipNorm }
  return {
    id,
    name,
    owner,
    purpose,
    model: spec.model,
    modelHash: sha256Name(modelHash(model)),
    dataset,
    optimizer,
    ...clipping,
    blockSamples,
    batchBlocks,
    epochs: stop.epochs ?? MOST_EPOCHS,
    seed,
    ...(encoding ? { encoding } : {}),
    ...(precision ? { precision } : {}),
    ...(local ? { local } : {}),
    ...(spec.requires ? { requires: spec.requires } : {}),
  }
}

/** Readable, and not to be guessed from another. */
function newJobId(name: string): JobId {
  const readable = name
    .toLowerCase()
    .replaceAll(/[^0-9a-z]+/g, '-')
    .slice(0, ID_NAME_LENGTH)
    .replaceAll(/^-|-$/g, '')
  return jobId(`${readable === '' ? 'job' : readable}-${randomBytes(ID_RANDOM_BYTES).toString('hex')}`)
}
