// Two coordinators share a database and blobs. The one that has the job is killed in the midst of a training, and the
// other one ends it with the same volunteers.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { demoJob, Grid } from '@starling-grid/cli'
import { mlp } from '@starling-grid/model'
import { startPostgres } from './postgres.ts'

const STEPS = 120
/** times that a test need not wait out */
const QUICK = { admitMs: 300, rejoinMs: 6000, quietMs: 3000 }
const JOB = {
  ...demoJob({ stop: { steps: STEPS }, seed: 7, mode: 'ring', minVolunteers: 2 }),
  model: mlp({ input: [1, 28, 28], hidden: [32], classes: 10 }),
  blockSamples: 8,
  batchBlocks: 6,
}
const TOKEN = 'the-owner-of-both-coordinators'

const postgres = await startPostgres()
const folder = await mkdtemp(join(tmpdir(), 'starling-two-'))
after(async () => {
  await postgres?.stop()
  await rm(folder, { recursive: true, force: true })
})
const skip = postgres === undefined && 'PostgreSQL is not here'

test(
  'another coordinator goes on with the job of one that was killed, and no step is lost or counted twice',
  { skip, timeout: 300_000 },
  async () => {
    const env = {
      STARLING_STATE: postgres?.database('killed') ?? '',
      STARLING_BLOBS: pathToFileURL(join(folder, 'blobs')).href,
    }
    const start = (name: string): Promise<Grid> =>
      Grid.start({ dataDir: join(folder, name), token: TOKEN, timing: QUICK, env })
    const first = await start('first')
    const second = await start('second')
    try {
      const job = await first.submit(JOB)
      first.addVolunteer({ executor: 'reference' })
      second.addVolunteer({ executor: 'reference' })
      await first.watch.waitFor('steps', ({ run }) => (run?.version.v ?? 0) >= 10 && run)
      const before = await first.records(job)
      await first.killCoordinator()
      const run = await second.watch.waitFor('the end', ({ run }) => run?.phase === 'finished' && run, 240_000)
      const records = await second.records(job)
      assert.deepEqual(records.slice(0, before.length), before, 'what was committed is there')
      assert.deepEqual(
        records.map(({ v }) => v),
        Array.from({ length: STEPS }, (_, i) => i + 1),
        'no step is missing',
      )
      const blocks = records.flatMap((record) => record.blocks)
      assert.equal(new Set(blocks).size, blocks.length, 'no block counts twice')
      assert.equal(run.checkpoint?.agreeing, run.checkpoint?.members, 'every replica is bit-identical')
      assert.deepEqual(
        second.watch.events.filter((event) => event.kind === 'rewind'),
        [],
      )
      for (const child of [...first.volunteers, ...second.volunteers]) assert.ok(child.alive(), child.lines.join(' | '))
    } finally {
      await first.stop()
      await second.stop()
    }
  },
)
