// The job of a simulated grid: a model with a parameter for each block, whose gradient counts how often the block is in
// it. So the parameters of a version say which blocks it holds.
import type { StoredJob } from '@starling-grid/coordinator/shell'
import { modelHash, outerOptimizer, parseModelSpec, parameterLayout, type VersionForm } from '@starling-grid/model'
import {
  type DatasetManifest,
  genesis,
  jobId,
  type JobSpec,
  type LocalSettings,
  type Sha256,
  sha256Name,
  digest,
  trainingBlock,
  writeSafetensors,
} from '@starling-grid/protocol'
import type { Executor } from '@starling-grid/volunteer'
import type { Batch, BatchSums } from '@starling-grid/volunteer/testing'
import { computesNoNumber, hangs } from './defects.ts'
import type { VolunteerProcess } from './volunteer-process.ts'
import type { World } from './world.ts'

/** bytes of a sample: the number of its block, and one that is always 0 */
const SAMPLE_BYTES = 2
/** A smaller model for the usual run, and a larger one for a long epoch. */
const CLASSES = [32, 64] as const
/** The first sample that no training block has. */
const VALIDATION = SAMPLE_BYTES * CLASSES[1]
const VALIDATION_BLOCKS = 3
/** ms between looks at whether a member is still in the ring that it does nothing for */
const LOOK_MS = 200
const LEARNING_RATE = 1

/** With a parameter for each block. */
function modelFor(blocks: number): { readonly classes: number; readonly model: object } {
  const classes = CLASSES.find((count) => blocks <= SAMPLE_BYTES * count)
  if (classes === undefined) throw new Error(`internal: no model has parameters for ${blocks} blocks`)
  const layers = [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: classes }]
  return { classes, model: { name: 'counter', input: [1, 1, SAMPLE_BYTES], layers } }
}

export interface WorldJob {
  /** of an epoch, before data is appended */
  readonly blocks: number
  /** of an epoch, with all that is appended */
  readonly mostBlocks: number
  readonly epochs: number
  readonly stored: StoredJob
  readonly spec: JobSpec
  readonly form: VersionForm
  readonly lr: number
  /** its dataset, by name */
  readonly manifest: DatasetManifest
  readonly shards: ReadonlyMap<Sha256, Uint8Array>
  /** the dataset once an owner has appended to it; undefined: no owner does */
  readonly grown: { readonly manifest: DatasetManifest; readonly shards: ReadonlyMap<Sha256, Uint8Array> } | undefined
}

export type JobShape = Pick<
  JobSpec,
  | 'seed'
  | 'batchBlocks'
  | 'mode'
  | 'volunteers'
  | 'priority'
  | 'exchange'
  | 'async'
  | 'groups'
  | 'encoding'
  | 'local'
  | 'keep'
  | 'weakScaling'
> & {
  readonly epochs: number
  readonly blocks: number
  /** blocks of each epoch after the one in which an owner appends them to the dataset */
  readonly appended?: number
}

export function gridJob({ blocks, epochs, appended = 0, ...shape }: JobShape, id = 'simulated'): WorldJob {
  const mostBlocks = blocks + appended
  const { classes, model: described } = modelFor(mostBlocks)
  const spec: JobSpec = {
    name: 'counts',
    owner: 'simulation',
    purpose: '',
    model: described,
    dataset: appended > 0 ? { name: id } : { source: 'digits' },
    optimizer: { type: 'sgd', lr: LEARNING_RATE },
    blockSamples: 1,
    stop: { epochs },
    audit: 0, // draws by itself, and computes in a thread
    ...shape,
  }
  const shards = new Map<Sha256, Uint8Array>()
  const shard = (first: number, samples: number, among = shards) => {
    const bytes = shardOf(first, samples)
    const sha256 = sha256Name(digest(bytes))
    among.set(sha256, bytes)
    return { sha256, bytes: bytes.byteLength, samples }
  }
  const half = Math.ceil(blocks / 2)
  const manifest: DatasetManifest = {
    name: 'counts',
    source: 'made up',
    inputShape: [1, 1, SAMPLE_BYTES],
    classes,
    inputScale: 1,
    train: [shard(0, half), shard(half, blocks - half)],
    validation: [shard(VALIDATION, VALIDATION_BLOCKS)],
  }
  const model = parseModelSpec(described)
  const outer = shape.local === undefined ? undefined : outerOptimizer(shape.local as LocalSettings)
  const later = new Map<Sha256, Uint8Array>()
  const longer = () => ({ ...manifest, train: [...manifest.train, shard(blocks, appended, later)] })
  return {
    blocks,
    mostBlocks,
    epochs,
    stored: { id: jobId(id), description: JSON.stringify({ spec, manifest, submittedAt: 0 }) },
    spec,
    form: { spec: model, layout: parameterLayout(model), optimizer: spec.optimizer, ...(outer ? { outer } : {}) },
    lr: LEARNING_RATE,
    manifest,
    shards,
    grown: appended > 0 ? { manifest: longer(), shards: later } : undefined,
  }
}

export const genesisOf = ({ stored, form, spec }: WorldJob) => genesis(stored.id, modelHash(form.spec), spec.seed)

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
    const isBroken = computesNoNumber(this.#volunteer, this.#world)
    into.fill(isBroken ? Number.NaN : 0)
    for (let i = 0; i < samples; i++) {
      const block = x[i * SAMPLE_BYTES] ?? 0
      into[block] =
        (into[block] ?? 0) +
        (this.#world.faults.isPoisoned(trainingBlock(this.#volunteer.epoch, block)) ? Number.NaN : 1)
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
    while (hangs(this.#volunteer, this.#world)) await clock.sleep(LOOK_MS)
    while (clock.now() < this.#volunteer.stuckUntil) await clock.sleep(this.#volunteer.stuckUntil - clock.now())
  }
}
