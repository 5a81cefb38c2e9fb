import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { auditChain } from '../src/audit.ts'
import { QUICK, tinyJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
const STEPS = 12
/** Slow steps: some seconds of absence are few of them. */
const SLOW = 'slow-samples:12'

test(
  'a volunteer that was away for some steps goes on from the state that it kept, and all end bit-identical',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const job = await grid.submit({ ...tinyJob({ stop: { steps: STEPS }, minVolunteers: 3 }), batchBlocks: 36 })
      const start = (name: string) =>
        grid.addVolunteer({
          name,
          executor: 'reference',
          entry: FAULTY,
          env: { STARLING_FAULT: SLOW, STARLING_CACHE: join(grid.dataDir, 'cache', name) },
        })
      const [, , visitor] = ['one', 'two', 'visitor'].map(start)
      await grid.watch.waitFor('some steps of three', ({ run }) => (run?.version.v ?? 0) >= 2)
      visitor?.kill('SIGTERM')
      assert.equal(await visitor?.ended, 0)
      start('visitor')
      const run = await grid.watch.waitFor(
        'the end of the training',
        ({ run }) => run?.phase === 'finished' && run,
        200_000,
      )
      const records = await grid.records(job)
      assert.deepEqual(
        [records.length, auditChain(records, new Set(records.flatMap(({ blocks }) => blocks)).size).duplicated],
        [STEPS, 0],
      )
      assert.equal(run.checkpoint?.agreeing, run.checkpoint?.members, 'every replica is bit-identical')
      const events = grid.watch.events.map(({ text }) => text).join('\n')
      assert.match(events, /^visitor goes on from version \d+, which it kept$/m)
      assert.equal(run.checkpoint?.members, 3, events)
    } finally {
      await grid.stop()
    }
  },
)
