// Asks the model of scale how long a job would take with a crowd: as its file says, and with other batches, encodings
// and exchanges. Which of them is best, and what bounds it. Pure but for the time that the model takes.
import { encodingsOf, type Job } from '@starling-grid/coordinator'
import { batchOfMembers } from '@starling-grid/coordinator/run'
import {
  encodingAtFirst,
  GridError,
  type JobSpec,
  MAX_RING_MEMBERS,
  MOST_BATCH_BLOCKS,
  requirementsOf,
  requiresText,
} from '@starling-grid/protocol'
import { trainingFlops } from '@starling-grid/volunteer'
import type { Crowd, CrowdGroup } from './crowd.ts'
import {
  batchesOfStep,
  fastestSize,
  type PlanChoice,
  type PlannedRun,
  plannedRun,
  type RunQuestion,
  samplesOf,
} from './planned-run.ts'

export interface JobPlan {
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
  /** steps in which the learning rate follows a larger ring; absent: it does not */
  readonly warmupSteps?: number
  /** groups of the crowd that the job leaves to others, and what they lack */
  readonly unfit: readonly UnfitMachines[]
}

export interface UnfitMachines {
  /** place in the crowd */
  readonly group: number
  readonly count: number
  readonly kind: string
  /** of what the job requires */
  readonly lacks: string
}

export interface PlanQuestion extends Pick<RunQuestion, 'job' | 'churnPerMinute' | 'steps' | 'seed'> {
  readonly crowd: Crowd
}

/** Twice the longest ring: from there on a crowd is only a larger reserve. */
const MOST_MODELLED = 2 * MAX_RING_MEMBERS
/** A lossier encoding must be this much faster than a finer one. */
const ENCODING_PAYS = 1.1
/** Fewer volunteers must be this much faster: those left out would have taken part. */
const SIZE_PAYS = 1.1
/** A batch of twice the size must be this much faster: it learns less from a sample. */
const BATCH_PAYS = 1.25
/** Larger batches than these many of the job's own are another training. */
const BATCH_TIMES = [2, 4]
/** An epoch should have so many steps of a larger batch. */
const LEAST_STEPS_OF_EPOCH = 10
/** As in JobSpec. */
const MOST_BLOCK_SAMPLES = 4096
/**
 * @throws GridError 'usage' when the job does not take these machines
 * @example planJob({ job: await dryRun(spec, places), crowd: readCrowd('4 laptops'), churnPerMinute: 0, seed: 1 })
 */
export function planJob({ crowd, ...asked }: PlanQuestion): JobPlan {
  const own = asked.job()
  const sampleFlops = trainingFlops(own.form.spec, 1)
  const speeds = crowd.groups.map((group) => speedOf(group, sampleFlops))
  const machines = machinesOf(crowd, speeds, own.spec)
  const question = { ...asked, links: crowd.links, machines }
  const tries = new PlanSearch({ ...question, samples: samplesToEnd(question, own) }, own)
  tries.exchanges()
  tries.encodings()
  tries.sizes()
  tries.batches()
  const innerSteps = batchesOfStep(own)
  const { first, best, tried, samples } = tries
  const unfit = unfitOf(crowd, own.spec)
  const figures = { samples, sampleFlops, speeds, modelled: machines.length, innerSteps, unfit }
  const { weak } = own.config
  return { own: first, best, tried, ...figures, ...(weak === undefined ? {} : { warmupSteps: weak.warmup }) }
}

/** As its file says it. */
function ownChoice({ spec }: Job, volunteers: number): PlanChoice {
  const { blockSamples, batchBlocks, exchange = 'auto' } = spec
  return { blockSamples, batchBlocks, encoding: encodingAtFirst(spec), exchange, volunteers }
}

/**
 * Samples of the whole training. With weak scaling a job that ends after steps trains on more of them with more
 * members: how many there are, a first look at the model says.
 */
function samplesToEnd(question: Omit<RunQuestion, 'samples'>, job: Job): number {
  const endsBySteps = (question.steps ?? job.spec.stop.steps) !== undefined
  if (job.config.weak === undefined || !endsBySteps) return samplesOf(job, question.steps)
  const volunteers = question.machines.length
  const most = samplesOf(job, question.steps, volunteers)
  const { members } = plannedRun({ ...question, samples: most }, ownChoice(job, volunteers))
  return samplesOf(job, question.steps, members)
}

/** One setting after the other is varied, from the best so far. */
class PlanSearch {
  readonly first: PlannedRun
  readonly tried: PlannedRun[]
  best: PlannedRun
  readonly #question: RunQuestion
  readonly #job: Job

  constructor(question: RunQuestion, job: Job) {
    this.#question = question
    this.#job = job
    this.first = plannedRun(question, ownChoice(job, question.machines.length))
    this.tried = [this.first]
    this.best = this.first
  }

  get samples(): number {
    return this.#question.samples
  }

  exchanges(): void {
    if (this.best.exchange !== 'auto') this.#try({ exchange: 'auto' }, 1)
  }

  /** The parameter server gets gradients as f32 whatever the job says. From the finest on. */
  encodings(): void {
    const { spec, config } = this.#job
    if (spec.mode === 'async' && config.async.groups === undefined) return
    const all = encodingsOf(spec)
    for (const encoding of all.slice(all.indexOf(this.best.encoding) + 1)) this.#try({ encoding }, ENCODING_PAYS)
  }

  /** Fewer machines, as the formulas advise. One alone sends no gradients. */
  sizes(): void {
    const size = this.#size(this.best)
    if (size === undefined) return
    this.#try(size === 1 ? { volunteers: 1, encoding: this.first.encoding } : { volunteers: size }, SIZE_PAYS)
  }

  /** Each with as many machines as are best for it. */
  batches(): void {
    const { encoding, exchange } = this.tried.reduce((least, run) => faster(run, least, 1))
    for (const times of BATCH_TIMES) {
      const larger = largerBatch(this.first, times, this.#job)
      if (larger === undefined) return
      const volunteers = this.#size({ ...this.first, ...larger, encoding, exchange }) ?? this.first.volunteers
      if (!this.#try({ ...larger, encoding, exchange, volunteers }, BATCH_PAYS)) return
    }
  }

  /** Undefined where fewer than all are not better. */
  #size(choice: PlanChoice): number | undefined {
    const { mode, volunteers: { min = 1 } = {} } = this.#job.spec
    if (mode === 'async') return undefined
    const size = fastestSize(this.#question, choice, min)
    return size < this.first.volunteers ? size : undefined
  }

  /** Whether it is better by enough. */
  #try(changes: Partial<PlanChoice>, pays: number): boolean {
    const { blockSamples, batchBlocks, encoding, exchange, volunteers } = { ...this.best, ...changes }
    const run = plannedRun(this.#question, { blockSamples, batchBlocks, encoding, exchange, volunteers })
    this.tried.push(run)
    this.best = faster(run, this.best, pays)
    return this.best === run
  }
}

/** Samples per second, by the given speed or by the kind's. */
export function speedOf({ kind, samplesPerSecond, gflops = kind.gflops }: CrowdGroup, sampleFlops: number): number {
  return samplesPerSecond ?? (1e9 * gflops) / sampleFlops
}

function faster(run: PlannedRun, than: PlannedRun, pays: number): PlannedRun {
  return run.seconds * pays < than.seconds ? run : than
}

/** More blocks, so that more members share them; larger blocks where a job has no more. */
type BatchShape = Pick<PlanChoice, 'blockSamples' | 'batchBlocks'>

function largerBatch(
  { blockSamples, batchBlocks, members }: PlannedRun,
  times: number,
  { training, config }: Job,
): BatchShape | undefined {
  const ofStep = batchOfMembers({ ...config, batchBlocks: times * batchBlocks }, members)
  if (training.length < LEAST_STEPS_OF_EPOCH * ofStep) return undefined
  if (ofStep <= MOST_BATCH_BLOCKS && batchBlocks * times <= MOST_BATCH_BLOCKS)
    return { blockSamples, batchBlocks: batchBlocks * times }
  return blockSamples * times <= MOST_BLOCK_SAMPLES ? { blockSamples: blockSamples * times, batchBlocks } : undefined
}

/** What these machines lack of what the job requires; memory is their owners' to say. */
function lacksOf({ kind, f16 }: CrowdGroup, spec: JobSpec): string | undefined {
  const { realGpu, f16: needsHalves } = requirementsOf(spec)
  return requiresText({ realGpu: realGpu === true && kind.isSoftware === true, f16: needsHalves === true && !f16 })
}

function unfitOf({ groups }: Crowd, spec: JobSpec): UnfitMachines[] {
  return groups.flatMap((group, i) => {
    const lacks = lacksOf(group, spec)
    const { count, kind } = group
    return lacks === undefined ? [] : [{ group: i, count, kind: count === 1 ? kind.name : kind.plural, lacks }]
  })
}

/** Fastest first, those that the job takes. A ring takes the fastest; the parameter server takes all. */
function machinesOf(crowd: Crowd, speeds: readonly number[], spec: JobSpec): readonly number[] {
  const { mode, volunteers: { min = 1, max = Number.POSITIVE_INFINITY } = {} } = spec
  const all = crowd.groups
    .flatMap((group, i) =>
      lacksOf(group, spec) === undefined ? Array.from({ length: group.count }, () => speeds[i] ?? 1) : [],
    )
    .sort((a, b) => b - a)
  if (all.length < min || all.length === 0) {
    const unfit = unfitOf(crowd, spec).map(({ count, kind, lacks }) => ` (${count} ${kind} without ${lacks} left out)`)
    const required = requiresText(requirementsOf(spec))
    throw new GridError(
      'usage',
      `expected at least ${min} machines${required === undefined ? '' : ` with ${required}`}, as the job asks, ` +
        `got ${all.length}${unfit.join('')}; plan with more, or change the job`,
    )
  }
  return all.slice(0, mode === 'async' ? max : Math.min(max, Math.max(MOST_MODELLED, min)))
}
