// Jobs whose loss compares values: their targets are made of classes by every member alike.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, QUICK, smallJob } from './small-job.ts'

const STEPS = 40

for (const loss of ['mse', 'bce_with_logits'])
  test(
    `a job with the loss ${loss} trains two members, whose replicas end bit-identical`,
    { timeout: 300_000 },
    async () => {
      const grid = await Grid.start({ timing: QUICK })
      try {
        const layers = [{ type: 'flatten' }, { type: 'linear', name: 'head', out: 10 }]
        const job = await grid.submit({
          ...smallJob({ stop: { steps: STEPS }, minVolunteers: 2 }),
          model: { name: 'values', input: [1, 28, 28], layers, loss },
        })
        grid.addVolunteer({ executor: 'reference' })
        grid.addVolunteer({ executor: 'reference' })
        const run = await finishesWhole(grid, job, STEPS)
        assert.equal(run.checkpoint?.members, 2)
      } finally {
        await grid.stop()
      }
    },
  )
