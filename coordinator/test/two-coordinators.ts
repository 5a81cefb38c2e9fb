// Two coordinators of one database and one folder of blobs, in processes of their own, with a job that real volunteers
// train.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { pathToFileURL } from 'node:url'
import { demoJob, Grid } from '@starling-grid/cli'
import { mlp } from '@starling-grid/model'
import type { StepRecord } from '@starling-grid/protocol'
import { startPostgres } from './postgres.ts'

const STEPS = 200
/** times that a test need not wait out */
const QUICK = { admitMs: 300, rejoinMs: 6000, quietMs: 3000 }
export const JOB = {
  ...demoJob({ stop: { steps: STEPS }, seed: 7, mode: 'ring', minVolunteers: 2 }),
  model: mlp({ input: [1, 28, 28], hidden: [32], classes: 10 }),
  blockSamples: 8,
  batchBlocks: 6,
}
export const TOKEN = 'the-owner-of-both-coordinators'

export const postgres = await startPostgres()
const folder = await mkdtemp(join(tmpdir(), 'starling-two-'))
after(async () => {
  await postgres?.stop()
  await rm(folder, { recursive: true, force: true })
})
export const skip = postgres === undefined && 'PostgreSQL is not here'

let grids = 0

export interface TwoOptions {
  /** how the first reaches the database */
  readonly throughLine?: (url: string) => string
  /** folder of the built pages */
  readonly webRoot?: string
}

/** Two coordinators of one database and one folder of blobs. */
export async function two({ throughLine = (url) => url, webRoot }: TwoOptions = {}): Promise<readonly [Grid, Grid]> {
  const number = ++grids
  const database = postgres?.database(`grid_${number}`) ?? ''
  const blobs = pathToFileURL(join(folder, `blobs-${number}`)).href
  const start = (name: string, state: string): Promise<Grid> =>
    Grid.start({
      dataDir: join(folder, `${name}-${number}`),
      token: TOKEN,
      timing: QUICK,
      ...(webRoot === undefined ? {} : { webRoot }),
      env: { STARLING_STATE: state, STARLING_BLOBS: blobs },
    })
  return [await start('first', throughLine(database)), await start('second', database)]
}

/** A job at the first coordinator, trained by a volunteer of each. */
export async function training([first, second]: readonly [Grid, Grid]): Promise<string> {
  const job = await first.submit(JOB)
  first.addVolunteer({ executor: 'reference' })
  second.addVolunteer({ executor: 'reference' })
  await first.watch.waitFor('steps', ({ run }) => (run?.version.v ?? 0) >= 10 && run)
  return job
}

/** The whole training is there, each step and each block once, and the same volunteers made it. */
export async function endsWhole(
  { first, second, job }: { readonly first: Grid; readonly second: Grid; readonly job: string },
  before: readonly StepRecord[],
  steps = STEPS,
): Promise<void> {
  const run = await second.watch.waitFor('the end', (watch) => watch.run?.phase === 'finished' && watch.run, 240_000)
  const records = await second.records(job)
  assert.deepEqual(records.slice(0, before.length), before, 'what was committed is there')
  assert.deepEqual(
    records.map(({ v }) => v),
    Array.from({ length: steps }, (_, i) => i + 1),
    'no step is missing',
  )
  const blocks = records.flatMap((record) => record.blocks)
  assert.equal(new Set(blocks).size, blocks.length, 'no block counts twice')
  assert.equal(run.checkpoint?.agreeing, run.checkpoint?.members, 'every replica is bit-identical')
  const rewinds = second.watch.events.filter((event) => event.kind === 'rewind')
  assert.deepEqual(rewinds, [])
  for (const child of [...first.volunteers, ...second.volunteers]) assert.ok(child.alive(), child.lines.join(' | '))
}

export async function stopAll(...all: readonly Grid[]): Promise<void> {
  for (const grid of all) await grid.stop()
}
