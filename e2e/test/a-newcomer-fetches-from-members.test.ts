import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, PACED, QUICK, tinyJob } from './small-job.ts'

const STEPS = 150
/** The coordinator stores no version before the end: a state can come from members only. */
const NO_CHECKPOINTS = { ...QUICK, checkpointSteps: 1e9, checkpointMs: 1e15 }

test(
  'a newcomer gets its state from the members, joins their ring, and ends bit-identical',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: NO_CHECKPOINTS })
    try {
      const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
      for (let i = 0; i < 2; i++) grid.addVolunteer(PACED)
      await grid.watch.waitFor('some steps of two', ({ run }) => (run?.version.v ?? 0) >= 5)
      grid.addVolunteer({ name: 'newcomer', executor: 'reference' })
      const joined = await grid.watch.waitFor(
        'a ring of three',
        ({ run }) => run?.phase === 'ring' && run.members.filter(({ rank }) => rank !== null).length === 3 && run,
      )
      assert.ok(joined.version.v < STEPS)
      assert.equal(joined.checkpoint, null, 'the coordinator has nothing to give')
      const run = await finishesWhole(grid, job, STEPS)
      assert.equal(run.checkpoint?.members, 3)
    } finally {
      await grid.stop()
    }
  },
)
