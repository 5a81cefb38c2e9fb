// Several jobs in a row on real volunteers: no volunteer is restarted, and no job loses a step to another.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { type JobSpec, pathTo, ROUTES, type RunView } from '@starling-grid/protocol'
import { auditChain } from '../src/audit.ts'
import { PACED, QUICK, tinyJob } from './small-job.ts'

const STEPS = 60

async function until(grid: Grid, id: string, what: string, state: (run: RunView) => boolean): Promise<RunView> {
  for (
    const deadline = Date.now() + 200_000;
    Date.now() < deadline;
    await new Promise((resolve) => setTimeout(resolve, 100))
  ) {
    const run = (await (await fetch(`${grid.url}${pathTo(ROUTES.job, { id })}`)).json()) as RunView
    if (state(run)) return run
  }
  throw new Error(`gave up waiting for ${what}; the run is ${grid.watch.describe()}`)
}

const isFinished = ({ phase }: RunView): boolean => phase === 'finished'

test(
  'volunteers go to another job when theirs is paused, return to it, and wait; with --once one ends with its run',
  { timeout: 400_000 },
  async () => {
    const grid = await Grid.start({ timing: { ...QUICK, checkpointMs: 3_600_000 } })
    const job = (change: Partial<JobSpec>): JobSpec => ({
      ...tinyJob({ stop: { steps: STEPS }, minVolunteers: 2 }),
      ...change,
    })
    try {
      const older = await grid.submit(job({ name: 'older' }))
      const volunteers = [grid.addVolunteer(PACED), grid.addVolunteer(PACED)]
      await until(grid, older, 'some steps', ({ version }) => version.v >= 12)
      const newer = await grid.submit(job({ name: 'newer', stop: { steps: 8 }, seed: 8 }))
      await grid.api.setPaused(older, true)
      const once = grid.addVolunteer({ executor: 'reference', once: true })
      await until(grid, newer, 'the end of the newer job', isFinished)
      const paused = await until(grid, older, 'the older job', () => true)
      assert.ok(
        paused.checkpoint !== null && paused.checkpoint.v >= 12,
        'its head was saved before the volunteers went',
      )
      await grid.api.setPaused(older, false)
      assert.equal(await once.ended, 0, once.lines.join(' | '))
      await until(grid, older, 'the end of the older job', isFinished)
      const records = await grid.records(older)
      assert.equal(records.length, STEPS)
      assert.equal(auditChain(records, 0).duplicated, 0)
      assert.deepEqual(
        grid.watch.events.filter(({ kind }) => kind === 'rewind'),
        [],
        'no step was repeated',
      )
      const third = await grid.submit(job({ name: 'third', stop: { steps: 4 }, seed: 9 }))
      await until(grid, third, 'the end of the third job', isFinished)
      for (const child of volunteers) assert.ok(child.alive(), child.lines.join(' | '))
    } finally {
      await grid.stop()
    }
  },
)
