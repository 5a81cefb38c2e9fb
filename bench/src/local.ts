// Local rounds against the plain ring, on the same digits in the same order, with the same members, seed and optimizer.
// Counts the bytes that members send each other for a sample, and what both have learned from as many samples. Then
// rounds in fragments against whole ones: the most that a member sends in one inner step, and the loss again.
import { mlp } from '@starling-grid/model'
import type { JobSpec } from '@starling-grid/protocol'
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

const NAME = `local rounds of ${INNER_STEPS} inner steps, ${MEMBERS} members`

type TrainingWay = 'ring' | 'local' | 'fragments'

export async function localSuite(options: SuiteOptions): Promise<BenchRow[]> {
  const { log } = options
  return [
    ...(isWanted(options, 'loss') ? await wholeRuns(log) : []),
    ...(isWanted(options, 'peak') ? [await peakRow(log)] : []),
  ]
}

async function wholeRuns(log: SuiteOptions['log']): Promise<BenchRow[]> {
  const runs: Record<TrainingWay, TrainedGrid[]> = { ring: [], local: [], fragments: [] }
  for (const seed of SEEDS)
    for (const way of ['ring', 'local', 'fragments'] as const) {
      const trained = await trainTogether(
        job(way, seed),
        Array.from({ length: MEMBERS }, () => ({})),
      )
      log(
        `${way}, seed ${seed}: ${Math.round(bytesPerSample(trained))} bytes a sample, ` +
          `loss ${trained.loss.toFixed(4)} after ${trained.samples} samples`,
      )
      runs[way].push(trained)
    }
  const samples = new Set(Object.values(runs).flatMap((all) => all.map((one) => one.samples)))
  if (samples.size !== 1) throw new Error(`runs ended after ${[...samples].join(', ')} samples: nothing to compare`)
  const unit = `nats, validation after ${[...samples].join()} samples`
  return [
    compared(
      {
        name: `${NAME}: bytes`,
        adapter: 'reference',
        unit: 'bytes/sample between members',
        better: 'less',
        reach: { peer: 'ring', ratio: 14 },
      },
      runs.local.map(bytesPerSample),
      { ring: runs.ring.map(bytesPerSample) },
    ),
    compared(
      { name: `${NAME}: loss`, adapter: 'reference', unit, better: 'less', reach: { peer: 'ring', ratio: 0.98 } },
      losses(runs.local),
      { ring: losses(runs.ring) },
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
      losses(runs.fragments),
      { '1 fragment': losses(runs.local), ring: losses(runs.ring) },
      mean,
    ),
  ]
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
    ...(way === 'ring'
      ? {}
      : { local: { innerSteps: INNER_STEPS, ...(way === 'fragments' ? { fragments: FRAGMENTS } : {}) } }),
  }
}
