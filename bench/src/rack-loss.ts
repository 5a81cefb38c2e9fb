// What groups of several machines learn: eight racks of four machines in outer rounds against one ring of all 32, a
// small GPT on Tiny Shakespeare, after as many samples. A rack is one member whose inner steps have the batch of four:
// it computes what one machine computes (client-node/test/rack.test.ts). A ring's step does not depend on how many
// members share its batch, so that four stand for the 32 here.
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { GridError, type JobSpec } from '@starling-grid/protocol'
import { type BenchRow, compared, mean } from './row.ts'
import { trainTogether } from './small-grid.ts'
import type { SuiteOptions } from './suite.ts'

export const RACK_ROW = '8 racks of 4 machines in groups: loss'
const DATA = fileURLToPath(new URL('../../../shared/data/tinyshakespeare', import.meta.url))
const RACKS = 8
const MACHINES = 4
const RING_MEMBERS = 4
/** H, of each rack */
const INNER_STEPS = 8
/** windows of a block: what one machine computes of a step */
const BLOCK_WINDOWS = 2
const WINDOWS = 4096
const EPOCHS = 6
const SEEDS = [11, 12]
const RUN_LIMIT_MS = 900_000

type RackWay = 'ring of 32' | 'ours'

const WAYS: Readonly<Record<RackWay, { readonly members: number; readonly job: Partial<JobSpec> }>> = {
  'ring of 32': { members: RING_MEMBERS, job: { mode: 'ring', batchBlocks: RACKS * MACHINES } },
  ours: {
    members: RACKS,
    job: { mode: 'async', batchBlocks: MACHINES, groups: { innerSteps: INNER_STEPS }, async: { update: 'all' } },
  },
}

export async function rackRow({ log }: SuiteOptions): Promise<BenchRow> {
  if (!existsSync(DATA))
    throw new GridError('usage', `expected Tiny Shakespeare in ${DATA}, got none; see bench/results/README.md`)
  const losses: Record<RackWay, number[]> = { 'ring of 32': [], ours: [] }
  const samples = new Set<number>()
  for (const seed of SEEDS)
    for (const [way, { members, job }] of Object.entries(WAYS) as [RackWay, (typeof WAYS)[RackWay]][]) {
      const machines = Array.from({ length: members }, () => ({ executor: 'wasm' }) as const)
      const options = { dataRoot: DATA, limitMs: RUN_LIMIT_MS }
      const trained = await trainTogether({ ...jobOf(seed, members), ...job }, machines, options)
      log(`${way}, seed ${seed}: loss ${trained.loss.toFixed(4)} after ${trained.samples} samples`)
      losses[way].push(trained.loss)
      samples.add(trained.samples)
    }
  if (samples.size !== 1) throw new Error(`runs ended after ${[...samples].join(', ')} samples: nothing to compare`)
  const unit = `nats a window of 32 characters, validation after ${[...samples].join()} windows`
  const { ours, ...ring } = losses
  return compared(
    { name: RACK_ROW, adapter: 'wasm', unit, better: 'less', reach: { peer: 'ring of 32', ratio: 0.98 } },
    ours,
    ring,
    mean,
  )
}

function jobOf(seed: number, members: number): JobSpec {
  return {
    name: 'Racks',
    owner: 'the benchmark',
    purpose: 'Compares what groups of racks and one ring learn.',
    model: {
      name: 'small_gpt',
      input: [32],
      layers: [
        {
          type: 'gpt',
          blocks: 2,
          heads: 2,
          channels: 32,
          context: 32,
          vocab: 65,
          activation: 'gelu',
          norm: 'layernorm',
        },
      ],
      loss: 'cross_entropy',
    },
    dataset: { source: 'text', path: 'input.txt', tokens: 'characters', windowsPerEpoch: WINDOWS },
    optimizer: { type: 'adamw', lr: 0.003, betas: [0.9, 0.99], weightDecay: 0.1 },
    clipNorm: 1,
    blockSamples: BLOCK_WINDOWS,
    batchBlocks: MACHINES,
    stop: { epochs: EPOCHS },
    seed,
    mode: 'ring',
    volunteers: { min: members },
  }
}
