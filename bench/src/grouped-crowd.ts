// Rounds of replica groups against one ring, in real processes over home lines: samples a second of twelve volunteers,
// whose computing takes its time and no core. Then a third of them dies in the middle of a round, and the history is
// audited.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { Catalog, importNamed } from '@starling-grid/coordinator/datasets'
import { auditChain } from '@starling-grid/e2e/audit'
import { killInRound } from '@starling-grid/e2e/kills'
import { mlp } from '@starling-grid/model'
import { type JobSpec, random32 } from '@starling-grid/protocol'
import { type BenchRow, compared } from './row.ts'
import type { SuiteOptions } from './suite.ts'
import { SAMPLES_PER_SECOND } from './timed-speed.ts'

export const CROWD_ROW = '12 volunteers in groups'
const MEMBERS = 12
const MEMBER = fileURLToPath(new URL('timed-volunteer.ts', import.meta.url))
const SEED = 3
/** An epoch of all takes 40 s, so that rounds are as long as the run finds best, and not as short as an epoch. */
const SAMPLES = 240_000
const FEATURES = 16
const CLASSES = 10
/** part of the samples that validates */
const VALIDATION = 0.02
/** Trained until it is told to end. 62 k parameters and 256 samples a step, as LeNet-5 has in the model of scale. */
const EPOCHS = 1000
const CROWD_JOB = {
  name: 'Groups and a ring',
  owner: 'the benchmark',
  purpose: 'Compares what twelve volunteers train in groups and in one ring.',
  model: mlp({ input: [FEATURES], hidden: [236, 236], classes: CLASSES, inputScale: 1 / 255 }),
  dataset: { name: 'points' },
  optimizer: { type: 'sgd', lr: 1e-6 },
  blockSamples: 8,
  batchBlocks: 32,
  stop: { epochs: EPOCHS },
  evaluate: { everyEpochs: EPOCHS },
  audit: 0,
  volunteers: { min: MEMBERS },
  encoding: 'int8',
  seed: SEED,
} satisfies Omit<JobSpec, 'mode'>

interface CrowdWay {
  readonly job: Pick<JobSpec, 'mode' | 'groups' | 'exchange'>
  /** versions until members work as they will, and those whose samples are then counted */
  readonly warmUp: number
  readonly counted: number
}

/** The first rounds take 20 s, since none is measured yet. */
const GROUPS: CrowdWay = { job: { mode: 'async', groups: {} }, warmUp: 4, counted: 6 }
/** Of all twelve where that is fastest: the run shortens a ring that is faster with fewer (ring-size.ts). */
const RINGS: Readonly<Record<string, CrowdWay>> = {
  ring: { job: { mode: 'ring', exchange: 'ring' }, warmUp: 20, counted: 40 },
  'direct exchange': { job: { mode: 'ring', exchange: 'direct' }, warmUp: 40, counted: 100 },
}

export async function crowdRow({ rounds, log }: SuiteOptions): Promise<BenchRow> {
  const figures: Record<string, number[]> = {}
  let killed = 0
  for (let round = 0; round < rounds; round++) {
    for (const [name, way] of Object.entries({ ...RINGS, ours: GROUPS })) {
      const rate = await inCrowd(way, async (grid, job) => {
        const found = await rateOf(grid, way)
        const inRing = grid.watch.run?.members.filter(({ rank }) => rank !== null) ?? []
        if (way !== GROUPS) log(`${inRing.length} of ${MEMBERS} members are in the ring`)
        if (way === GROUPS) killed += await withoutAThird(grid, job, log)
        return found
      })
      log(`${name === 'ours' ? CROWD_ROW : name}: ${rate.toFixed(0)} samples/s of ${MEMBERS * SAMPLES_PER_SECOND}`)
      ;(figures[name] ??= []).push(rate)
    }
  }
  const { ours = [], ...rings } = figures
  const row = compared(
    {
      name: CROWD_ROW,
      adapter: 'timed, 20 Mbit/s and 20 ms',
      unit: 'samples/s',
      reach: { peer: 'ring', ratio: 3 },
    },
    ours,
    rings,
  )
  return { ...row, counts: { killed, lost: 0, duplicated: 0 } }
}

async function inCrowd<T>({ job }: CrowdWay, measure: (grid: Grid, job: string) => Promise<T>): Promise<T> {
  const dataDir = await mkdtemp(join(tmpdir(), 'starling-bench-'))
  await importPoints(dataDir)
  const grid = await Grid.start({ dataDir })
  try {
    const id = await grid.submit({ ...CROWD_JOB, ...job })
    for (let i = 0; i < MEMBERS; i++) grid.addVolunteer({ entry: MEMBER })
    return await measure(grid, id)
  } finally {
    await grid.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
}

/** Samples a second, from one commit to another. */
async function rateOf({ watch }: Grid, { warmUp, counted }: CrowdWay): Promise<number> {
  await watch.waitFor('the last version that is counted', ({ steps }) => steps.length >= warmUp + counted, 400_000)
  const [from, ...steps] = watch.steps.slice(warmUp - 1, warmUp + counted)
  const samples = steps.reduce((sum, step) => sum + step.samples, 0)
  return (1000 * samples) / ((steps.at(-1)?.at ?? 0) - (from?.at ?? 0))
}

/** @throws Error when a block is lost, or counts twice */
async function withoutAThird(grid: Grid, job: string, log: SuiteOptions['log']): Promise<number> {
  const { names } = await killInRound(grid, random32(SEED))
  await grid.endWithEpoch(job)
  const run = await grid.watch.waitFor('the end', ({ run }) => run?.phase === 'finished' && run, 300_000)
  const { blocksCommitted, blocksExpected, lost, duplicated } = auditChain(
    await grid.records(job),
    run.job.blocksPerEpoch * (run.job.epochs ?? 0),
  )
  log(`${names.length} members died; ${blocksCommitted} of ${blocksExpected} blocks are committed`)
  if (lost + duplicated > 0) throw new Error(`${lost} blocks were lost and ${duplicated} count twice: nothing to time`)
  return names.length
}

/** Samples without sense, in two files of IDX. */
async function importPoints(dataDir: string): Promise<void> {
  const random = random32(SEED)
  const files = { x: idx([SAMPLES, FEATURES], () => random() >>> 24), kind: idx([SAMPLES], (i) => i % CLASSES) }
  const paths: string[] = []
  for (const [name, bytes] of Object.entries(files)) {
    paths.push(join(dataDir, `${name}.idx`))
    await writeFile(join(dataDir, `${name}.idx`), bytes)
  }
  await importNamed(
    {
      name: CROWD_JOB.dataset.name,
      paths,
      validationShare: VALIDATION,
      seed: SEED,
      options: {
        csv: { header: true },
        images: { grey: false },
        tokens: 'characters',
        table: { missing: 'error', target: { kind: 'classes', columns: ['kind'] } },
      },
    },
    new Catalog(dataDir),
    { now: () => new Date(0).toISOString(), onProgress: () => undefined },
  )
}

function idx(shape: readonly number[], value: (i: number) => number): Buffer {
  const header = Buffer.alloc(4 + 4 * shape.length)
  header.writeUInt32BE(0x0800 + shape.length) // unsigned bytes
  for (const [i, length] of shape.entries()) header.writeUInt32BE(length, 4 + 4 * i)
  const values = shape.reduce((product, length) => product * length, 1)
  return Buffer.concat([header, Uint8Array.from({ length: values }, (_, i) => value(i))])
}
