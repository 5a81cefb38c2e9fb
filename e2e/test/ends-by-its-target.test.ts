// The production grid, in processes of its own. A run ends long before its bound, when a validation that two volunteers
// agree on reaches the target.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { QUICK, tinyJob } from './small-job.ts'

const TARGET = 0.6
const EVERY = 15
/** Far more than the target takes. */
const BOUND = 2000

test('a run ends by its target, with its model written and the reason shown', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: QUICK })
  try {
    const id = await grid.submit({
      ...tinyJob({ stop: { steps: BOUND, metric: 'accuracy', target: TARGET }, minVolunteers: 2 }),
      evaluate: { everySteps: EVERY },
    })
    for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'reference' })
    const run = await grid.watch.waitFor('the end', ({ run }) => run?.phase === 'finished' && run, 240_000)
    assert.match(run.reason, /^ended after [\d.]+ epochs?: accuracy 0\.\d+ reached the target 0\.6$/)
    assert.ok(run.version.v < BOUND && run.version.v % EVERY === 0, `version ${run.version.v}`)
    assert.deepEqual([run.best?.v, run.checkpoint?.v], [run.version.v, run.version.v])
    assert.ok((run.best?.accuracy ?? 0) >= TARGET)
    assert.equal(run.samplesExpected, run.samplesCommitted)
    const before = grid.watch.validations.slice(0, -1)
    assert.ok(
      before.every(({ accuracy, confirmed }) => !confirmed || accuracy < TARGET),
      'no validation before reached it',
    )
    assert.equal((await grid.run(id)).reason, run.reason)
  } finally {
    await grid.stop()
  }
})
