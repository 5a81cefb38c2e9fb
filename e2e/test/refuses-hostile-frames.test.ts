import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, QUICK, tinyJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
const STEPS = 30

for (const fault of ['send-nan:8', 'send-garbage:8'])
  test(
    `a member that answers with ${fault.split(':')[0]?.slice(5)} costs one ballot, and the run goes on unharmed`,
    { timeout: 300_000 },
    async () => {
      const grid = await Grid.start({ timing: QUICK })
      try {
        const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
        grid.addVolunteer({ executor: 'reference' })
        grid.addVolunteer({ name: 'hostile', executor: 'reference', entry: FAULTY, env: { STARLING_FAULT: fault } })
        const run = await finishesWhole(grid, job, STEPS)
        assert.ok(
          grid.watch.events.some((event) => event.text.includes('gave up')),
          'the event names what happened',
        )
        const code = fault.startsWith('send-nan') ? 'gradient-not-finite' : 'message-malformed'
        assert.ok((run.refusals[code] ?? 0) > 0, `the refusal is counted: ${JSON.stringify(run.refusals)}`)
        const records = await grid.records(job)
        assert.ok(records.every((record) => Number.isFinite(record.lossSum)))
      } finally {
        await grid.stop()
      }
    },
  )
