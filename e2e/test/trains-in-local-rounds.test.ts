import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, QUICK, lightJob } from './small-job.ts'

const ROUNDS = 8
const INNER_STEPS = 8

for (const [fragments, encoding] of [
  [1, 'f32'],
  [4, 'sparse2'],
] as const)
  test(
    `in local rounds with fragments ${fragments} in ${encoding} a death costs one round, and others end bit-identical`,
    { timeout: 300_000 },
    async () => {
      const grid = await Grid.start({ timing: QUICK })
      try {
        const job = await grid.submit({
          ...lightJob({ stop: { steps: ROUNDS }, mode: 'local', minVolunteers: 3 }),
          local: { innerSteps: INNER_STEPS, fragments },
          encoding,
        })
        grid.addVolunteer({ executor: 'reference' })
        grid.addVolunteer({ executor: 'reference' })
        const victim = grid.addVolunteer({ name: 'victim', executor: 'reference' })
        await grid.watch.waitFor('the third round', ({ run }) => (run?.version.v ?? 0) >= 3)
        victim.kill('SIGKILL')
        const run = await finishesWhole(grid, job, ROUNDS)
        assert.equal(run.mode, 'local')
        const records = await grid.records(job)
        assert.ok(records.every(({ kind }) => kind === 'round'))
        assert.equal(records[0]?.blocks.length, 6 * INNER_STEPS)
        assert.equal(run.checkpoint?.members, 2)
      } finally {
        await grid.stop()
      }
    },
  )
