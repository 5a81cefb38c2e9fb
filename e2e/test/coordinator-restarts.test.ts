import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, PACED, QUICK, tinyJob } from './small-job.ts'

const STEPS = 50

test(
  'a coordinator killed with SIGKILL resumes, and the volunteers reconnect by themselves',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
      const volunteers = [grid.addVolunteer(PACED), grid.addVolunteer(PACED)]
      const before = await grid.watch.waitFor('some steps', ({ run }) => (run?.version.v ?? 0) >= 8 && run?.version)
      const history = await grid.records(job)
      await grid.killCoordinator()
      await grid.restartCoordinator()
      await finishesWhole(grid, job, STEPS)
      assert.ok(volunteers.every((child) => child.process.pid !== undefined))
      const after = await grid.records(job)
      assert.deepEqual(
        after.slice(0, history.length),
        history,
        'what was committed before the kill is still there, unchanged',
      )
      assert.ok(after.length > (before === undefined ? 0 : history.length))
      assert.equal(grid.watch.events.filter((event) => event.kind === 'rewind').length, 0, 'no step was repeated')
    } finally {
      await grid.stop()
    }
  },
)
