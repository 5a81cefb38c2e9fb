// The job of a simulated grid: a model with a parameter for each block, whose gradient counts how often the block is in
// it. So the parameters of a version say which blocks it holds.
import type { StoredJob } from '@starling-grid/coordinator/shell'
import { modelHash, outerOptimizer, parseModelSpec, parameterLayout, type VersionForm } from '@starling-grid/model'
import {
  genesis,
  jobId,
  type JobSpec,
  type LocalSettings,
  type Sha256,
  sha256Name,
  digest,
  writeSafetensors,
} from '@starling-grid/protocol'
import type { Executor } from '@starling-grid/volunteer'
import type { Batch, BatchSums } from '@starling-grid/volunteer/testing'
import type { VolunteerProcess } from './volunteer-process.ts'
import type { World } from './world.ts'

/** bytes of a sample: the number of its block, and one that is always 0 */
const SAMPLE_BYTES = 2
const CLASSES = 32
/** Blocks that the model has a parameter for. */
const MOST_BLOCKS = SAMPLE_BYTES * CLASSES
const VALIDATION_BLOCKS = 3
const LEARNING_RATE = 1

const MODEL = {
  name: 'counter',
  input: [1, 1, SAMPLE_BYTES],
  layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: CLASSES }],
}

export interface GridJob {
  /** of an epoch */
  readonly blocks: number
  readonly stored: StoredJob
  readonly spec: JobSpec
  readonly form: VersionForm
  readonly lr: number
  /** its dataset, by name */
  readonly shards: ReadonlyMap<Sha256, Uint8Array>
}

export type JobShape = Pick<
  JobSpec,
  'seed' | 'epochs' | 'batchBlocks' | 'mode' | 'minVolunteers' | 'exchange' | 'async' | 'encoding' | 'local'
> & {
  readonly blocks: number
}

export function gridJob({ blocks, ...shape }: JobShape, id = 'simulated'): GridJob {
  if (blocks > MOST_BLOCKS) throw new Error(`internal: the model has parameters for ${MOST_BLOCKS} blocks`)
  const spec: JobSpec = {
    name: 'counts',
    owner: 'simulation',
    purpose: '',
    model: MODEL,
    dataset: { source: 'digits' },
    optimizer: { type: 'sgd', lr: LEARNING_RATE },
    blockSamples: 1,
    validateEvery: 1,
    audit: 0, // draws by itself, and computes in a thread
    ...shape,
  }
  const shards = new Map<Sha256, Uint8Array>()
  const shard = (first: number, samples: number) => {
    const bytes = shardOf(first, samples)
    const sha256 = sha256Name(digest(bytes))
    shards.set(sha256, bytes)
    return { sha256, bytes: bytes.byteLength, samples }
  }
  const half = Math.ceil(blocks / 2)
  const manifest = {
    name: 'counts',
    source: 'made up',
    inputShape: [1, 1, SAMPLE_BYTES],
    classes: CLASSES,
    inputScale: 1,
    train: [shard(0, half), shard(half, blocks - half)],
    validation: [shard(MOST_BLOCKS, VALIDATION_BLOCKS)],
  }
  const model = parseModelSpec(MODEL)
  const outer = shape.local === undefined ? undefined : outerOptimizer(shape.local as LocalSettings)
  return {
    blocks,
    stored: { id: jobId(id), description: JSON.stringify({ spec, manifest, submittedAt: 0 }) },
    spec,
    form: { spec: model, layout: parameterLayout(model), optimizer: spec.optimizer, ...(outer ? { outer } : {}) },
    lr: LEARNING_RATE,
    shards,
  }
}

export const genesisOf = ({ stored, form, spec }: GridJob) => genesis(stored.id, modelHash(form.spec), spec.seed)

function shardOf(first: number, samples: number): Uint8Array {
  const x = new Uint8Array(samples * SAMPLE_BYTES)
  for (let i = 0; i < samples; i++) x[i * SAMPLE_BYTES] = first + i
  return writeSafetensors(
    new Map([
      ['x', { dtype: 'U8', shape: [samples, 1, 1, SAMPLE_BYTES], data: x }],
      ['y', { dtype: 'I32', shape: [samples], data: new Uint8Array(4 * samples) }],
    ]),
  )
}

interface Counting {
  readonly volunteer: VolunteerProcess
  readonly world: World
}

/** Adds one to the parameter of each sample's block; sometimes late, and sometimes what is no number. */
export class CountingExecutor implements Executor {
  readonly adapter = { name: 'counts blocks', vendor: 'starling', software: true, executor: 'reference' } as const
  readonly #volunteer: VolunteerProcess
  readonly #world: World

  constructor({ volunteer, world }: Counting) {
    this.#volunteer = volunteer
    this.#world = world
  }

  loadParameters(): void {}

  async gradient({ samples, x }: Batch, into: Float32Array): Promise<BatchSums> {
    await this.#computes()
    into.fill(0)
    for (let i = 0; i < samples; i++) {
      const block = x[i * SAMPLE_BYTES] ?? 0
      into[block] = (into[block] ?? 0) + (this.#world.faults.isPoisoned(block) ? Number.NaN : 1)
    }
    this.#world.onMoment?.(this.#volunteer, { at: 'computed' })
    return { lossSum: samples, targets: samples, correct: 0 }
  }

  async evaluate({ samples }: Batch): Promise<BatchSums> {
    await this.#computes()
    return { lossSum: samples, targets: samples, correct: 0 }
  }

  predict(): Promise<Float32Array> {
    throw new Error('internal: nothing is predicted here')
  }

  destroy(): void {}

  async #computes(): Promise<void> {
    const { clock } = this.#volunteer
    const { dice, scenario } = this.#world
    const slowness = clock.now() < this.#volunteer.slowUntil ? scenario.members.slowness : 1
    await clock.sleep(slowness * dice.between(1, scenario.computeMs))
    while (clock.now() < this.#volunteer.stuckUntil) await clock.sleep(this.#volunteer.stuckUntil - clock.now())
  }
}
