// Local rounds against the plain ring, on the same digits in the same order, with the same members, seed and optimizer: the bytes
// that members send each other for a sample, and what both have learned from as many samples.
import { mlp } from '@starling-grid/model'
import type { JobSpec } from '@starling-grid/protocol'
import { type BenchRow, compared, mean } from './row.ts'
import { type Trained, trainTogether } from './small-grid.ts'
import type { SuiteOptions } from './suite.ts'

const MEMBERS = 4
/** H: inner steps of a round, the default of jobs */
const INNER_STEPS = 16
/** The loss at the end of one run says little: that of several does. */
const SEEDS = [11, 12, 13]

export async function localSuite({ log }: Pick<SuiteOptions, 'log'>): Promise<BenchRow[]> {
  const runs: Record<'ring' | 'local', Trained[]> = { ring: [], local: [] }
  for (const seed of SEEDS)
    for (const mode of ['ring', 'local'] as const) {
      const trained = await trainTogether(job(mode, seed), Array.from({ length: MEMBERS }, () => ({})))
      log(`${mode}, seed ${seed}: ${Math.round(bytesPerSample(trained))} bytes a sample, loss ${trained.loss.toFixed(4)} after ${trained.samples} samples`)
      runs[mode].push(trained)
    }
  const samples = new Set([...runs.ring, ...runs.local].map((one) => one.samples))
  if (samples.size !== 1) throw new Error(`runs ended after ${[...samples].join(', ')} samples: nothing to compare`)
  const name = `local rounds of ${INNER_STEPS} inner steps, ${MEMBERS} members`
  const losses = (all: readonly Trained[]): number[] => all.map(({ loss }) => loss)
  return [
    compared({ name: `${name}: bytes`, adapter: 'reference', unit: 'bytes/sample between members', better: 'less', reach: { peer: 'ring', ratio: 14 } }, runs.local.map(bytesPerSample), { ring: runs.ring.map(bytesPerSample) }),
    compared({ name: `${name}: loss`, adapter: 'reference', unit: `nats, validation after ${[...samples].join()} samples`, better: 'less', reach: { peer: 'ring', ratio: 0.98 } }, losses(runs.local), { ring: losses(runs.ring) }, mean),
  ]
}

function bytesPerSample({ bytesBetweenMembers, samples }: Trained): number {
  return bytesBetweenMembers / samples
}

function job(mode: 'ring' | 'local', seed: number): JobSpec {
  return {
    name: 'Local rounds', owner: 'the benchmark', purpose: 'Compares what members send each other.',
    model: mlp({ input: [1, 28, 28], hidden: [64], classes: 10 }),
    dataset: { source: 'digits' }, optimizer: { type: 'sgd', lr: 0.05, momentum: 0.9, schedule: { type: 'linear', to: 0.05 } },
    blockSamples: 8, batchBlocks: 8, epochs: 4, seed, mode, minVolunteers: MEMBERS, ...(mode === 'local' ? { local: { innerSteps: INNER_STEPS } } : {}),
  }
}
