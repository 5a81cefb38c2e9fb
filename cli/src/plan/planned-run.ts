// One forecast of a plan: a job with some settings, by the model of scale, and what a step of it is made of.
import type { Job } from '@starling-grid/coordinator'
import { batchOfMembers, exchangeMs } from '@starling-grid/coordinator/run'
import { parameterCount } from '@starling-grid/model'
import { type Exchange, EXCHANGES, type GradientEncoding, type JobSpec } from '@starling-grid/protocol'
import { forecast, type Setting } from '../scaling/predict.ts'
import type { LinkProfile } from '../scaling/profiles.ts'

/** The settings of a job that a plan varies. */
export interface PlanChoice {
  readonly blockSamples: number
  readonly batchBlocks: number
  readonly encoding: GradientEncoding
  readonly exchange: 'auto' | Exchange
  /** that take part at most: the fastest */
  readonly volunteers: number
}

export type Bound = 'compute' | 'line' | 'latency'

/** What a ring of so many members makes of the batch and rate of the job. */
export interface PlannedBatch {
  /** of a step, by all members: with weak scaling more than `batchBlocks` of them */
  readonly batchSamples: number
  /** of a schedule's height; with weak scaling it grows with the batch, and is reached after the warm-up */
  readonly learningRate: number
}

export interface PlannedRun extends PlanChoice, PlannedBatch {
  /** from the first computation to the end, validations included */
  readonly seconds: number
  /** from the first commit to the last, without validations */
  readonly secondsAfterFirst: number
  readonly steps: number
  readonly samplesPerSecond: number
  /** in the ring or direct exchange, on the average; the others wait as a reserve */
  readonly members: number
  readonly exchangeTaken: Exchange
  readonly mode: string
  /** of the home that sends most, and of the one that receives most */
  readonly bytesUp: number
  readonly bytesDown: number
  /** ms of a step: computing, bytes on the line, hops */
  readonly stepMs: Readonly<Record<Bound, number>>
  readonly bound: Bound
}

/**
 * ms of a step beside its samples. The 33 dispatches of LeNet-5 take up to 1 ms (`bench/results`, dispatch), and as
 * much is assumed for waiting. A MiB of gradient takes about 1 ms to be read back and 1 ms for the update (compression,
 * kernels). Another 1 ms is assumed for uploading it.
 */
const STEP_MS = 2
const STEP_MS_PER_MIB = 3
const MIB = 2 ** 20
/** Virtual seconds that a forecast sees at least: a choice of exchange needs 30 s of a generation. */
const SEEN = { warmUpSeconds: 60, seconds: 60 } as const
/** Two members measure each validation block; forward alone is a third of training. */
const VALIDATION_WORK = 2 / 3

/** Samples of the whole training. `members`: of its ring, which the batch follows with weak scaling. */
export function samplesOf(job: Job, steps = job.spec.stop.steps ?? Number.POSITIVE_INFINITY, members = 1): number {
  const epoch = epochOf(job, members)
  return Math.ceil(Math.min(steps / epoch.steps, job.config.epochs) * epoch.samples)
}

/** The last step of an epoch may be smaller than others. */
function epochOf(
  { spec, config, training }: Job,
  members: number,
): { readonly samples: number; readonly steps: number } {
  return {
    samples: [...training].reduce((sum, { samples }) => sum + samples, 0),
    steps: Math.ceil(config.blocks / (batchOfMembers(config, members) * batchesOfStep({ spec, config }))),
  }
}

/** In local rounds a step is a round. */
export function batchesOfStep({ spec, config }: Pick<Job, 'spec' | 'config'>): number {
  return spec.mode === 'local' ? config.roundSteps : 1
}

export interface RunQuestion {
  /** the job with some settings changed (coordinator/src/jobs/dry-run.ts) */
  readonly job: (changes?: Partial<JobSpec>) => Job
  readonly links: LinkProfile
  /** of all volunteers in a minute */
  readonly churnPerMinute: number
  /** named by the caller, in place of the job's end */
  readonly steps?: number
  readonly seed: number
  /** samples per second, fastest first */
  readonly machines: readonly number[]
  readonly samples: number
}

/** One forecast, and what it is made of. */
export function plannedRun(question: RunQuestion, { volunteers, ...choice }: PlanChoice): PlannedRun {
  const { job: jobWith, samples, steps: wanted } = question
  const machines = question.machines.slice(0, volunteers)
  const job = jobWith(choice)
  const setting = settingOf({ ...question, machines }, job)
  const seen = forecast(setting, samples)
  const members = Math.max(1, Math.round(seen.ringSize))
  const epoch = epochOf(job, members)
  const steps = (samples / epoch.samples) * epoch.steps
  const validating = validationSeconds(job, { steps, epochSteps: epoch.steps }, machines.slice(0, members))
  const batchBlocks = batchOfMembers(job.config, members)
  // minutes end a training, unless the caller names its steps
  const minutes = wanted === undefined ? (job.spec.stop.minutes ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY
  const seconds = Math.min(seen.seconds, 60 * minutes)
  const part = seconds / seen.seconds
  const exchangeTaken = seen.directShare > 0.5 ? 'direct' : 'ring'
  const stepMs = stepTimes(setting, machines.slice(0, members), seen.mode === 'async' ? undefined : exchangeTaken)
  return {
    ...choice,
    batchSamples: batchBlocks * choice.blockSamples,
    learningRate: (job.spec.optimizer.lr * batchBlocks) / job.config.batchBlocks,
    volunteers,
    seconds: seconds + part * validating,
    secondsAfterFirst: part * seen.secondsAfterFirst,
    steps: Math.round(part * steps),
    samplesPerSecond: seen.samplesPerSecond,
    members,
    exchangeTaken,
    mode: seen.mode,
    bytesUp: part * seen.bytesUp,
    bytesDown: part * seen.bytesDown + dataBytes(job),
    stepMs,
    bound: (['compute', 'line', 'latency'] as const).reduce((most, one) => (stepMs[one] > stepMs[most] ? one : most)),
  }
}

function settingOf({ links, churnPerMinute, machines, seed }: RunQuestion, { config, form }: Job): Setting {
  const gradientBytes = Float32Array.BYTES_PER_ELEMENT * parameterCount(form.spec)
  return {
    volunteers: machines.length,
    links,
    machines: { name: 'crowd', samplesPerSecond: machines },
    churnPerMinute,
    mode: config.mode,
    exchange: config.exchange.asked,
    roundSteps: config.roundSteps,
    minVolunteers: config.minVolunteers,
    async: config.async,
    gradientBytes,
    exchangeBytes: config.exchange.bytes,
    ...(config.async.groups === undefined
      ? {}
      : { pushBytes: config.roundBytes.push, pullBytes: config.roundBytes.pull }),
    stateBytes: config.versionBytes,
    batchBlocks: config.batchBlocks,
    ...(config.weak === undefined ? {} : { weak: config.weak }),
    blockSamples: config.blockSamples,
    stepMs: STEP_MS + (STEP_MS_PER_MIB * gradientBytes) / MIB,
    ...SEEN,
    seed,
  }
}

/** The number of the fastest machines that trains fastest, by the formulas alone; of `min` at least. */
export function fastestSize(question: RunQuestion, { volunteers, ...choice }: PlanChoice, min: number): number {
  const machines = question.machines.slice(0, volunteers)
  const setting = settingOf(question, question.job(choice))
  // a batch that follows the ring is larger with more members: what counts is the time of a block
  const blockMs = (size: number): number => {
    const ways = (['ring', 'direct'] as const).filter(
      (way) => (choice.exchange === 'auto' || choice.exchange === way) && size <= EXCHANGES[way].mostMembers,
    )
    const stepMs = ways.map((way) => {
      const { compute, line, latency } = stepTimes(setting, machines.slice(0, size), way)
      return compute + line + latency
    })
    return Math.min(...stepMs) / batchOfMembers(setting, size)
  }
  // as many as there are blocks share a step
  const sizes = machines.map((_, i) => i + 1).filter((size) => size >= min && size <= batchOfMembers(setting, size))
  return sizes.reduce((best, size) => (blockMs(size) < blockMs(best) ? size : best), sizes[0] ?? machines.length)
}

/** What a step is made of, by the formulas of the model. `exchange`: undefined in async mode, of one push. */
function stepTimes(setting: Setting, machines: readonly number[], exchange?: Exchange): Record<Bound, number> {
  const { links, exchangeBytes, gradientBytes, blockSamples, stepMs } = setting
  const batchBlocks = batchOfMembers(setting, machines.length)
  const roundSteps = setting.mode === 'local' ? setting.roundSteps : 1
  const sum = machines.reduce((total, speed) => total + speed, 0)
  const compute = stepMs + (1000 * blockSamples * batchBlocks * roundSteps) / sum
  if (exchange === undefined)
    return {
      compute,
      line: 1000 * (gradientBytes / links.up + gradientBytes / links.down),
      latency: 3 * links.latencyMs,
    }
  const n = machines.length
  const latency = n < 2 ? 0 : EXCHANGES[exchange].hops(n) * links.latencyMs
  const bytesPerMs = Math.min(links.up, links.down) / 1000
  const line = n < 2 ? 0 : exchangeMs(exchange, { members: n, bytes: exchangeBytes, latencyMs: 0, bytesPerMs })
  return { compute, line, latency }
}

/** Training rests while a version is validated. */
function validationSeconds(
  job: Job,
  { steps, epochSteps }: { readonly steps: number; readonly epochSteps: number },
  machines: readonly number[],
): number {
  const { everySteps, everyEpochs = 1 } = job.spec.evaluate ?? {}
  const times = Math.max(1, steps / (everySteps ?? everyEpochs * epochSteps))
  const samples = [...job.validation].reduce((sum, block) => sum + block.samples, 0)
  return (times * samples * VALIDATION_WORK) / machines.reduce((sum, speed) => sum + speed, 0)
}

/** A member meets blocks of nearly every shard: at most all of the dataset, once. */
function dataBytes({ manifest: { train, validation } }: Job): number {
  return [...train, ...validation].reduce((sum, { bytes }) => sum + bytes, 0)
}
