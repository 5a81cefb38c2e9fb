import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '../src/grid.ts'
import { finishesWhole, QUICK, smallJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
const STEPS = 40

test('a volunteer killed in the middle of a reduce costs no sample, and the others end bit-identical', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: QUICK })
  try {
    const job = await grid.submit(smallJob({ maxSteps: STEPS, minVolunteers: 3 }))
    grid.addVolunteer({ executor: 'reference' })
    grid.addVolunteer({ executor: 'reference' })
    // Three chunks of partial sums leave a member in a step of a ring of three: the 20th is inside the reduce of step 7 or so.
    const victim = grid.addVolunteer({ name: 'victim', executor: 'reference', entry: FAULTY, env: { STARLING_FAULT: 'die-at-partial:20' } })
    assert.equal(await victim.ended, 'SIGKILL')
    const killedAt = grid.watch.run?.version.v ?? 0
    assert.ok(killedAt < STEPS, 'the kill came before the end')
    const run = await finishesWhole(grid, job, STEPS)
    assert.equal(run.checkpoint?.members, 2)
    assert.ok(run.departed.some((member) => member.name === 'victim'), 'the dashboard says who left')
  } finally {
    await grid.stop()
  }
})
