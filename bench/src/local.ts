// Local rounds against the plain ring, on the same digits in the same order, with the same members, seed and optimizer.
// Counts the bytes that members send each other for a sample, and what both have learned from as many samples. Then
// rounds in fragments against whole ones: the most that a member sends in one inner step, and the loss again. And
// rounds whose differences travel sparse, in two bits a number. Last, rounds of groups against one ring over home
// lines.
import { mlp } from '@starling-grid/model'
import type { JobSpec } from '@starling-grid/protocol'
import { CROWD_ROW, crowdRow } from './grouped-crowd.ts'
import { RACK_ROW, rackRow } from './rack-loss.ts'
import { type BenchRow, compared, mean } from './row.ts'
import { type MemberSetting, type TrainedGrid, trainTogether } from './small-grid.ts'
import { isWanted, type SuiteOptions } from './suite.ts'

const MEMBERS = 4
/** H: inner steps of a round, the default of jobs */
const INNER_STEPS = 16
const FRAGMENTS = 4
/** The loss at the end of one run says little: that of several does. */
const SEEDS = [11, 12, 13]
/** Where bytes of a step are counted: a member that fell behind for a moment would send two fragments in one step. */
const PACED: MemberSetting = { sampleMs: 6 }

const BYTES_UNIT = 'bytes/sample between members'
const NAME = `local rounds of ${INNER_STEPS} inner steps, ${MEMBERS} members`

type TrainingWay = 'ring' | 'local' | 'fragments' | 'sparse2'

export async function localSuite(options: SuiteOptions): Promise<BenchRow[]> {
  const { log } = options
  const runs = new LoggedRuns(log)
  return [
    ...(isWanted(options, 'loss') ? await wholeRuns(runs) : []),
    ...(isWanted(options, 'sparse2') ? await sparseRuns(runs) : []),
    ...(isWanted(options, 'peak') ? [await peakRow(log)] : []),
    ...(isWanted(options, RACK_ROW) ? [await rackRow(options)] : []),
    ...(isWanted(options, CROWD_ROW) ? [await crowdRow(options)] : []),
  ]
}

/** Each way once for each seed, however many rows ask for it. */
class LoggedRuns {
  readonly #log: SuiteOptions['log']
  readonly #trained = new Map<TrainingWay, TrainedGrid[]>()

  constructor(log: SuiteOptions['log']) {
    this.#log = log
  }

  async of(way: TrainingWay): Promise<TrainedGrid[]> {
    const known = this.#trained.get(way)
    if (known !== undefined) return known
    const all: TrainedGrid[] = []
    for (const seed of SEEDS) {
      const trained = await trainTogether(
        job(way, seed),
        Array.from({ length: MEMBERS }, () => ({})),
      )
      this.#log(
        `${way}, seed ${seed}: ${Math.round(bytesPerSample(trained))} bytes a sample, ` +
          `loss ${trained.loss.toFixed(4)} after ${trained.samples} samples`,
      )
      all.push(trained)
    }
    this.#trained.set(way, all)
    return all
  }
}

async function wholeRuns(runs: LoggedRuns): Promise<BenchRow[]> {
  const [ring, local, fragments] = [await runs.of('ring'), await runs.of('local'), await runs.of('fragments')]
  const unit = lossUnit([ring, local, fragments])
  return [
    compared(
      {
        name: `${NAME}: bytes`,
        adapter: 'reference',
        unit: BYTES_UNIT,
        better: 'less',
        reach: { peer: 'ring', ratio: 14 },
      },
      local.map(bytesPerSample),
      { ring: ring.map(bytesPerSample) },
    ),
    compared(
      { name: `${NAME}: loss`, adapter: 'reference', unit, better: 'less', reach: { peer: 'ring', ratio: 0.98 } },
      losses(local),
      { ring: losses(ring) },
      mean,
    ),
    compared(
      {
        name: `${NAME}, ${FRAGMENTS} fragments: loss`,
        adapter: 'reference',
        unit,
        better: 'less',
        reach: { peer: 'ring', ratio: 0.98 },
      },
      losses(fragments),
      { '1 fragment': losses(local), ring: losses(ring) },
      mean,
    ),
  ]
}

/** The largest of each difference in two bits a number, against whole gradients of every step. */
async function sparseRuns(runs: LoggedRuns): Promise<BenchRow[]> {
  const [ring, sparse] = [await runs.of('ring'), await runs.of('sparse2')]
  return [
    compared(
      {
        name: `${NAME} in sparse2: bytes`,
        adapter: 'reference',
        unit: BYTES_UNIT,
        better: 'less',
        reach: { peer: 'ring', ratio: 200 },
      },
      sparse.map(bytesPerSample),
      { ring: ring.map(bytesPerSample) },
    ),
    compared(
      {
        name: `${NAME} in sparse2: loss`,
        adapter: 'reference',
        unit: lossUnit([ring, sparse]),
        better: 'less',
        reach: { peer: 'ring', ratio: 0.98 },
      },
      losses(sparse),
      { ring: losses(ring) },
      mean,
    ),
  ]
}

function lossUnit(runs: readonly TrainedGrid[][]): string {
  const samples = new Set(runs.flatMap((all) => all.map((one) => one.samples)))
  if (samples.size !== 1) throw new Error(`runs ended after ${[...samples].join(', ')} samples: nothing to compare`)
  return `nats, validation after ${[...samples].join()} samples`
}

/** Losses need no pace, and bytes of a step need one. */
async function peakRow(log: SuiteOptions['log']): Promise<BenchRow> {
  const peaks: Record<'local' | 'fragments', number[]> = { local: [], fragments: [] }
  for (const seed of SEEDS.slice(0, 2))
    for (const way of ['local', 'fragments'] as const) {
      const { peakBytes } = await trainTogether(
        { ...job(way, seed), stop: { epochs: 1 } },
        Array.from({ length: MEMBERS }, () => PACED),
      )
      log(`${way}, seed ${seed}: ${peakBytes} bytes in a step at most`)
      peaks[way].push(peakBytes)
    }
  return compared(
    {
      name: `${NAME}, ${FRAGMENTS} fragments: peak`,
      adapter: 'reference',
      unit: 'bytes that a member sends in one inner step at most',
      better: 'less',
      reach: { peer: '1 fragment', ratio: 3.5 },
    },
    peaks.fragments,
    { '1 fragment': peaks.local },
  )
}

function losses(all: readonly TrainedGrid[]): number[] {
  return all.map(({ loss }) => loss)
}

function bytesPerSample({ bytesBetweenMembers, samples }: TrainedGrid): number {
  return bytesBetweenMembers / samples
}

function job(way: TrainingWay, seed: number): JobSpec {
  return {
    name: 'Local rounds',
    owner: 'the benchmark',
    purpose: 'Compares what members send each other.',
    model: mlp({ input: [1, 28, 28], hidden: [64], classes: 10 }),
    dataset: { source: 'digits' },
    optimizer: { type: 'sgd', lr: 0.05, momentum: 0.9, schedule: { type: 'linear', to: 0.05 } },
    blockSamples: 8,
    batchBlocks: 8,
    stop: { epochs: 4 },
    seed,
    mode: way === 'ring' ? 'ring' : 'local',
    volunteers: { min: MEMBERS },
    ...(way === 'sparse2' ? { encoding: 'sparse2' } : {}),
    ...(way === 'ring'
      ? {}
      : { local: { innerSteps: INNER_STEPS, ...(way === 'fragments' ? { fragments: FRAGMENTS } : {}) } }),
  }
}
