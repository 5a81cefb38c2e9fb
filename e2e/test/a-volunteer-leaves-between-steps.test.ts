import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, QUICK, smallJob } from './small-job.ts'

const STEPS = 50

test('Ctrl-C leaves between two steps: exit code 0, and the others give up nothing', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: QUICK })
  try {
    const job = await grid.submit(smallJob({ stop: { steps: STEPS }, minVolunteers: 3 }))
    grid.addVolunteer({ executor: 'reference' })
    grid.addVolunteer({ executor: 'reference' })
    const leaver = grid.addVolunteer({ name: 'leaver', executor: 'reference' })
    await grid.watch.waitFor('some steps of three', ({ run }) => (run?.version.v ?? 0) >= 6)
    leaver.kill('SIGINT')
    assert.equal(await leaver.ended, 0)
    const run = await finishesWhole(grid, job, STEPS)
    assert.equal(run.departed[0]?.name, 'leaver')
    assert.equal(run.departed[0]?.expected, true)
    assert.equal(run.checkpoint?.members, 2)
    assert.deepEqual(
      grid.watch.events.filter((event) => event.text.includes('gave up')).map((event) => event.text),
      [],
      'no member gave up a step',
    )
  } finally {
    await grid.stop()
  }
})
