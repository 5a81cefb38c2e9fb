// Samples per second of a grid with one slow member: asynchronous pushes against a synchronous parameter server. Both
// have the same coordinator, volunteers, job and number of samples. Shows also what both have learned at the end, over
// several seeds. Computing takes the members as long as is said here, so that a small machine can hold several.
import type { AsyncSettings, JobSpec } from '@starling-grid/protocol'
import { type BenchRow, compared, mean } from './row.ts'
import { type TrainedGrid, type TrainOptions, trainTogether } from './small-grid.ts'
import type { SuiteOptions } from './suite.ts'

const MEMBERS = 6
/** Times that the slow member takes longer. */
const SLOWDOWN = 4
/** ms that a sample takes the others: a step then takes longer than its messages */
const SAMPLE_MS = 3
/** The loss at the end of one run says little: that of several does. */
const SEEDS = [11, 12, 13]

const SYNCHRONOUS: AsyncSettings = { update: 'all' }
/**
 * Most of the time would go to a synchronous run that waits for its slow member. What it learns does not depend on how
 * long computing takes, because none of its pushes is late. Once its rate is counted, over 37 steps, it need not wait
 * any more. The others keep their pace to the end.
 */
const SYNCHRONOUS_TIMES: TrainOptions = { counted: [0.1, 0.2], pacedWhileCounted: true }
/** Of the policies without waiting; late pushes count whole, as those of the synchronous run do. */
const ASYNCHRONOUS: Readonly<Record<string, AsyncSettings>> = {
  each: { update: 'each', damping: 'none', maxStaleness: 64 },
  'two of six': { update: 'proportion', proportion: 2, damping: 'none', maxStaleness: 64 },
}

export async function asyncSuite({ log }: Pick<SuiteOptions, 'log'>): Promise<BenchRow[]> {
  const policies = { synchronous: SYNCHRONOUS, ...ASYNCHRONOUS }
  const outcomes: Record<string, TrainedGrid[]> = {}
  for (const seed of SEEDS)
    for (const [name, settings] of Object.entries(policies)) {
      const members = Array.from({ length: MEMBERS }, (_, i) => ({
        sampleMs: i === 0 ? SLOWDOWN * SAMPLE_MS : SAMPLE_MS,
      }))
      const outcome = await trainTogether(
        job(settings, seed),
        members,
        settings === SYNCHRONOUS ? SYNCHRONOUS_TIMES : {},
      )
      log(
        `${name}, seed ${seed}: ${outcome.samplesPerSecond.toFixed(0)} samples/s, ` +
          `loss ${outcome.loss.toFixed(4)} after ${outcome.samples} samples`,
      )
      ;(outcomes[name] ??= []).push(outcome)
    }
  const { synchronous = [], ...others } = outcomes
  return Object.entries(others).flatMap(([name, ours]) => rows(name, ours, synchronous))
}

function rows(name: string, ours: readonly TrainedGrid[], synchronous: readonly TrainedGrid[]): BenchRow[] {
  const samples = new Set([...ours, ...synchronous].map((one) => one.samples))
  if (samples.size !== 1) throw new Error(`runs ended after ${[...samples].join(', ')} samples: nothing to compare`)
  const members = `${MEMBERS} members, one ${SLOWDOWN}× slower`
  const rates = (all: readonly TrainedGrid[]): number[] => all.map(({ samplesPerSecond }) => samplesPerSecond)
  const losses = (all: readonly TrainedGrid[]): number[] => all.map(({ loss }) => loss)
  return [
    compared(
      {
        name: `async ${name}`,
        adapter: 'reference',
        unit: `samples/s (${members})`,
        reach: { peer: 'synchronous', ratio: 3 },
      },
      rates(ours),
      { synchronous: rates(synchronous) },
    ),
    compared(
      {
        name: `async ${name} loss`,
        adapter: 'reference',
        unit: `nats, validation after ${[...samples].join()} samples`,
        better: 'less',
        reach: { peer: 'synchronous', ratio: 0.99 },
      },
      losses(ours),
      { synchronous: losses(synchronous) },
      mean,
    ),
  ]
}

function job(settings: AsyncSettings, seed: number): JobSpec {
  return {
    name: 'One slow member',
    owner: 'the benchmark',
    purpose: 'Compares ways to wait.',
    model: {
      name: 'linear',
      input: [1, 28, 28],
      layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }],
    },
    dataset: { source: 'digits' },
    optimizer: { type: 'sgd', lr: 0.05, schedule: { type: 'linear', to: 0.05 } },
    blockSamples: 8,
    batchBlocks: MEMBERS,
    stop: { epochs: 2 },
    seed,
    mode: 'async',
    async: settings,
    volunteers: { min: MEMBERS },
  }
}
