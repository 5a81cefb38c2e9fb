// A run goes on elsewhere. It moves from a data folder into PostgreSQL and a bucket while volunteers wait, and from
// there into a backup while it trains. From the backup it goes on in the data folder of another machine.
import assert from 'node:assert/strict'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { demoJob, Grid, startChild } from '@starling-grid/cli'
import { startPostgres } from '../../coordinator/test/postgres.ts'
import { startS3 } from '../../coordinator/test/s3.ts'

const STEPS = 120
/** times that a test need not wait out */
const QUICK = { admitMs: 300, rejoinMs: 6000, quietMs: 3000 }
const JOB = {
  ...demoJob({ stop: { epochs: 1, steps: STEPS }, seed: 7, mode: 'ring', minVolunteers: 2 }),
  blockSamples: 4,
  batchBlocks: 6,
}
const postgres = await startPostgres()
const s3 = await startS3()
const folder = await mkdtemp(join(tmpdir(), 'starling-moves-'))
const grids: Grid[] = []
after(async () => {
  // what they write to goes last
  for (const grid of grids) await grid.stop()
  await postgres?.stop()
  await s3?.stop()
  await rm(folder, { recursive: true, force: true })
})

const skip = (postgres === undefined || s3 === undefined) && 'PostgreSQL or an S3 server is not here'

test(
  'a run moves from SQLite to PostgreSQL and a bucket, and from a backup to another machine; it loses no step',
  { skip, timeout: 600_000 },
  async () => {
    const [here, there] = [join(folder, 'here'), join(folder, 'there')]
    const env = { ...s3?.environment, STARLING_STATE: postgres?.database('grid') ?? '', STARLING_BLOBS: s3?.url ?? '' }
    const first = await started({ dataDir: here, timing: QUICK })
    const port = Number(new URL(first.direct).port)
    const job = await first.submit(JOB)
    for (let i = 0; i < 2; i++) first.addVolunteer({ executor: 'reference' })
    await reaches(first, 10)

    await assert.rejects(command('migrate', [], { ...env, dataDir: here }), /another coordinator|belongs to process/)
    await stopped(first)
    const before = (await command('migrate', [], { ...env, dataDir: here })) as { steps: number; jobs: number }
    assert.equal(before.jobs, 1)
    assert.ok(before.steps >= 10)
    const files = await readdir(here)
    assert.deepEqual([files.includes('state.db'), files.includes('state.db.migrated')], [false, true])
    const second = await started({ dataDir: here, timing: QUICK, port, env })
    await reaches(second, before.steps + 10)

    const backup = join(folder, 'backup')
    const kept = (await command('backup', [backup], { ...env, dataDir: here })) as { steps: number }
    assert.ok(kept.steps >= before.steps + 10)
    await assert.rejects(command('backup', [backup], { ...env, dataDir: here }), /expected an empty folder/)
    await stopped(second)

    await command('restore', [backup], { dataDir: there })
    const third = await started({ dataDir: there, timing: QUICK, port })
    const run = await third.watch.waitFor('the end', ({ run }) => run?.phase === 'finished' && run)
    const records = await third.records(job)
    assert.deepEqual(
      records.map(({ v }) => v),
      Array.from({ length: STEPS }, (_, i) => i + 1),
    )
    const blocks = records.flatMap((record) => record.blocks)
    assert.equal(new Set(blocks).size, blocks.length, 'a block is in the history twice')
    assert.deepEqual([run.checkpoint?.v, run.checkpoint?.agreeing], [STEPS, run.checkpoint?.members])
  },
)

async function started(options: Parameters<typeof Grid.start>[0]): Promise<Grid> {
  const grid = await Grid.start(options)
  grids.unshift(grid)
  return grid
}

function reaches(grid: Grid, v: number): Promise<unknown> {
  return grid.watch.waitFor(`version ${v}`, ({ run }) => (run?.version.v ?? 0) >= v && run)
}

/** The coordinator alone: volunteers look for it until the next one is there. */
async function stopped({ coordinator, watch }: Grid): Promise<void> {
  watch.stop() // the next coordinator would take its token for a guess
  coordinator.kill('SIGTERM')
  await coordinator.ended
}

/** What it printed as JSON. */
async function command(
  name: string,
  args: readonly string[],
  { dataDir, ...env }: NodeJS.ProcessEnv & { readonly dataDir: string },
): Promise<unknown> {
  const child = startChild({ name, args: [name, ...args, '--data-dir', dataDir, '--json'], env })
  const code = await child.ended
  if (code !== 0) throw new Error(`${name} ended with ${code}: ${child.lines.join(' | ')}`)
  return JSON.parse(child.lines.find((line) => line.startsWith('{')) ?? 'null')
}
