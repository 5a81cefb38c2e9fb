// Asks the model of scale how long a job would take with a crowd: as its file says, and with other batches, encodings
// and exchanges. Which of them is best, and what bounds it. Pure but for the time that the model takes.
import type { Job } from '@starling-grid/coordinator'
import { exchangeMs } from '@starling-grid/coordinator/run'
import { parameterCount } from '@starling-grid/model'
import {
  type Exchange,
  EXCHANGES,
  type GradientEncoding,
  type JobSpec,
  MAX_RING_MEMBERS,
} from '@starling-grid/protocol'
import { trainingFlops } from '@starling-grid/volunteer'
import { forecast, type Setting } from '../scaling/predict.ts'
import type { Crowd, CrowdGroup } from './crowd.ts'

/** The settings of a job that a plan varies. */
export interface PlanChoice {
  readonly blockSamples: number
  readonly batchBlocks: number
  readonly encoding: GradientEncoding
  readonly exchange: 'auto' | Exchange
}

export type Bound = 'compute' | 'line' | 'latency'

export interface PlannedRun extends PlanChoice {
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

export interface Plan {
  readonly own: PlannedRun
  readonly best: PlannedRun
  readonly tried: readonly PlannedRun[]
  readonly samples: number
  /** floating-point operations to train on one sample */
  readonly sampleFlops: number
  /** samples per second of each group of the crowd */
  readonly speeds: readonly number[]
  /** machines that the model ran with; it leaves out more than can take part in one ring and its reserve */
  readonly modelled: number
  readonly innerSteps: number
}

export interface PlanQuestion {
  /** the job with some settings changed (coordinator/src/jobs/dry-run.ts) */
  readonly job: (changes?: Partial<JobSpec>) => Job
  readonly crowd: Crowd
  /** of all volunteers in a minute */
  readonly churnPerMinute: number
  /** steps to plan for, in place of the job's end */
  readonly steps?: number
  readonly seed: number
}

/**
 * ms of a step beside its samples. The 33 dispatches of LeNet-5 take up to 1 ms (`bench/results`, dispatch), and as
 * much is assumed for waiting. A MiB of gradient takes about 1 ms to be read back, 1 ms for the update (compression,
 * kernels) and, assumed, 1 ms to be uploaded.
 */
const STEP_MS = 2
const STEP_MS_PER_MIB = 3
const MIB = 2 ** 20
/** Twice the longest ring: from there on a crowd is only a larger reserve. */
const MOST_MODELLED = 2 * MAX_RING_MEMBERS
/** Virtual seconds that a forecast sees at least: a choice of exchange needs 30 s of a generation. */
const SEEN = { warmUpSeconds: 60, seconds: 60 } as const
const ENCODINGS: readonly GradientEncoding[] = ['f32', 'f16', 'int8']
/** A lossier encoding must be this much faster than a finer one. */
const ENCODING_PAYS = 1.1
/** A batch of twice the size must be this much faster: it learns less from a sample. */
const BATCH_PAYS = 1.25
/** Larger batches than these many of the job's own are another training. */
const BATCH_TIMES = [2, 4]
/** An epoch should have so many steps of a larger batch. */
const LEAST_STEPS_OF_EPOCH = 10
/** As in JobSpec. */
const MOST_BATCH_BLOCKS = 256
const MOST_BLOCK_SAMPLES = 4096
/** Two members measure each validation block; forward alone is a third of training. */
const VALIDATION_WORK = 2 / 3

/** @example planJob({ job: await dryRun(spec, places), crowd: readCrowd('4 laptops'), churnPerMinute: 0, seed: 1 }) */
export function planJob(question: PlanQuestion): Plan {
  const { job, crowd } = question
  const own = job()
  const sampleFlops = trainingFlops(own.form.spec, 1)
  const speeds = crowd.groups.map((group) => speedOf(group, sampleFlops))
  const machines = machinesOf(crowd, speeds, own.spec.mode)
  const samples = samplesOf(own, question.steps)
  const ask = (choice: PlanChoice): PlannedRun => plannedRun({ ...question, machines, samples }, choice)
  const first = ask(choiceOf(own.spec))
  const tried = [first]
  const tryOut = (choice: PlanChoice): PlannedRun => {
    const run = ask(choice)
    tried.push(run)
    return run
  }
  let best = first
  for (const choice of first.exchange === 'auto' ? [] : [{ ...choiceOf(own.spec), exchange: 'auto' as const }])
    best = faster(tryOut(choice), best, 1)
  best = withBestEncoding(best, own.spec, tryOut)
  for (const times of BATCH_TIMES) {
    const larger = largerBatch(choiceOf(own.spec), times, own)
    if (larger === undefined) break
    const run = tryOut({ ...larger, encoding: best.encoding, exchange: best.exchange })
    if (faster(run, best, BATCH_PAYS) === best) break
    best = run
  }
  const innerSteps = batchesOfStep(own)
  return { own: first, best, tried, samples, sampleFlops, speeds, modelled: machines.length, innerSteps }
}

/** Samples per second, by the given speed or by the kind's. */
export function speedOf({ kind, samplesPerSecond, gflops = kind.gflops }: CrowdGroup, sampleFlops: number): number {
  return samplesPerSecond ?? (1e9 * gflops) / sampleFlops
}

function faster(run: PlannedRun, than: PlannedRun, pays: number): PlannedRun {
  return run.seconds * pays < than.seconds ? run : than
}

/** The parameter server gets f32 whatever the job says. */
function withBestEncoding(best: PlannedRun, { mode }: JobSpec, ask: (choice: PlanChoice) => PlannedRun): PlannedRun {
  if (mode === 'async') return best
  const runs = ENCODINGS.map((encoding) => (encoding === best.encoding ? best : ask({ ...onlyChoice(best), encoding })))
  return runs.reduce((finest, run) => faster(run, finest, ENCODING_PAYS))
}

function choiceOf({ blockSamples, batchBlocks, encoding = 'f32', exchange = 'auto' }: JobSpec): PlanChoice {
  return { blockSamples, batchBlocks, encoding, exchange }
}

function onlyChoice({ blockSamples, batchBlocks, encoding, exchange }: PlannedRun): PlanChoice {
  return { blockSamples, batchBlocks, encoding, exchange }
}

/** More blocks, so that more members share them; larger blocks where a job has no more. */
function largerBatch(own: PlanChoice, times: number, { training }: Job): PlanChoice | undefined {
  if (training.length < LEAST_STEPS_OF_EPOCH * times * own.batchBlocks) return undefined
  if (own.batchBlocks * times <= MOST_BATCH_BLOCKS) return { ...own, batchBlocks: own.batchBlocks * times }
  return own.blockSamples * times <= MOST_BLOCK_SAMPLES ? { ...own, blockSamples: own.blockSamples * times } : undefined
}

/** Fastest first. A ring takes the fastest; the parameter server takes all. */
function machinesOf({ groups }: Crowd, speeds: readonly number[], mode: JobSpec['mode']): readonly number[] {
  const all = groups
    .flatMap(({ count }, i) => Array.from({ length: count }, () => speeds[i] ?? 1))
    .sort((a, b) => b - a)
  return mode === 'async' ? all : all.slice(0, MOST_MODELLED)
}

/** Of the whole training. A step at the end of an epoch may be smaller than others. */
function samplesOf({ spec, config, training }: Job, steps = spec.stop.steps ?? Number.POSITIVE_INFINITY): number {
  const epoch = [...training].reduce((sum, { samples }) => sum + samples, 0)
  const stepsOfEpoch = Math.ceil(training.length / (config.batchBlocks * batchesOfStep({ spec, config })))
  return Math.ceil(Math.min(steps / stepsOfEpoch, config.epochs) * epoch)
}

/** In local rounds a step is a round. */
function batchesOfStep({ spec, config }: Pick<Job, 'spec' | 'config'>): number {
  return spec.mode === 'local' ? config.roundSteps : 1
}

interface RunQuestion extends PlanQuestion {
  readonly machines: readonly number[]
  readonly samples: number
}

function plannedRun(question: RunQuestion, choice: PlanChoice): PlannedRun {
  const { job: jobWith, samples, machines, steps: wanted } = question
  const job = jobWith(choice)
  const setting = settingOf(question, job)
  const seen = forecast(setting, samples)
  const steps = samples / (choice.blockSamples * choice.batchBlocks * batchesOfStep(job))
  const members = Math.max(1, Math.round(seen.ringSize))
  const validating = validationSeconds(job, steps, machines.slice(0, members))
  // minutes end a training, unless the caller names its steps
  const minutes = wanted === undefined ? (job.spec.stop.minutes ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY
  const seconds = Math.min(seen.seconds, 60 * minutes)
  const part = seconds / seen.seconds
  const exchangeTaken = seen.directShare > 0.5 ? 'direct' : 'ring'
  const stepMs = stepTimes(setting, machines.slice(0, members), seen.mode === 'async' ? undefined : exchangeTaken)
  return {
    ...choice,
    seconds: seconds + part * validating,
    secondsAfterFirst: part * seen.secondsAfterFirst,
    steps: Math.ceil(part * steps),
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

function settingOf({ crowd, churnPerMinute, machines, seed }: RunQuestion, { config, form }: Job): Setting {
  const gradientBytes = Float32Array.BYTES_PER_ELEMENT * parameterCount(form.spec)
  return {
    volunteers: machines.length,
    links: crowd.links,
    machines: { name: 'crowd', samplesPerSecond: machines },
    churnPerMinute,
    mode: config.mode,
    exchange: config.exchange.asked,
    roundSteps: config.roundSteps,
    minVolunteers: Math.min(config.minVolunteers, machines.length),
    async: config.async,
    gradientBytes,
    exchangeBytes: config.exchange.bytes,
    stateBytes: config.versionBytes,
    batchBlocks: config.batchBlocks,
    blockSamples: config.blockSamples,
    stepMs: STEP_MS + (STEP_MS_PER_MIB * gradientBytes) / MIB,
    ...SEEN,
    seed,
  }
}

/** What a step is made of, by the formulas of the model. `exchange`: undefined in async mode, of one push. */
function stepTimes(setting: Setting, machines: readonly number[], exchange?: Exchange): Record<Bound, number> {
  const { links, exchangeBytes, gradientBytes, blockSamples, batchBlocks, stepMs } = setting
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
function validationSeconds({ spec, validation, config }: Job, steps: number, machines: readonly number[]): number {
  const { everySteps, everyEpochs = 1 } = spec.evaluate ?? {}
  const stepsOfEpoch = Math.ceil(config.blocks / (config.batchBlocks * batchesOfStep({ spec, config })))
  const times = Math.max(1, steps / (everySteps ?? everyEpochs * stepsOfEpoch))
  const samples = [...validation].reduce((sum, block) => sum + block.samples, 0)
  return (times * samples * VALIDATION_WORK) / machines.reduce((sum, speed) => sum + speed, 0)
}

/** A member meets blocks of nearly every shard: at most all of the dataset, once. */
function dataBytes({ manifest: { train, validation } }: Job): number {
  return [...train, ...validation].reduce((sum, { bytes }) => sum + bytes, 0)
}
