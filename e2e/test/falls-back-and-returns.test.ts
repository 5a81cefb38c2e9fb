import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, slowMember, tinyJob, QUICK } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
/** more than the quick member makes alone in the calm, so that some are left for the ring */
const STEPS = 400
/** ms of calm after which the ring is tried again: a busy machine brings no push within a second */
const CALM_SOON = { ...QUICK, quietMs: 2500 }

test(
  'repeated aborts lead to the parameter server, and calm leads back to the ring',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: CALM_SOON })
    try {
      const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 2, mode: 'auto' }))
      // its steps outlast the calm at no cost of a core
      grid.addVolunteer({ ...slowMember(2), name: 'steady' })
      // a reduce of two members begins with three frames of partial sums: ten are more than three reduces
      grid.addVolunteer({
        name: 'shaky',
        executor: 'reference',
        entry: FAULTY,
        env: { STARLING_FAULT: 'break-links:10' },
      })
      await grid.watch.waitFor('the parameter server', ({ run }) => run?.mode === 'async')
      await grid.watch.waitFor(
        'the ring again',
        ({ run, steps }) =>
          run?.mode === 'ring' && steps.some((step) => step.mode === 'async') && run.phase !== 'waiting',
      )
      await finishesWhole(grid, job, STEPS)
      const kinds = (await grid.records(job)).map((record) => record.kind)
      assert.ok(kinds.includes('async'), 'the run went on while the ring was down')
      assert.equal(kinds.at(-1), 'ring')
      const switches = grid.watch.events.filter((event) => event.kind === 'mode')
      assert.ok(
        switches.length >= 2 && switches.every((event) => event.text.length > 10),
        'each switch says its reason',
      )
    } finally {
      await grid.stop()
    }
  },
)
