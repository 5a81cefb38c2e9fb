import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, QUICK, tinyJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
const STEPS = 30

// In a ring of three a member sends two final sums in a step: one that it completed, and one that it passes on.
for (const [what, n] of [
  ['completed', 9],
  ['passed on', 10],
] as const)
  test(
    `one wrong bit in a final sum that a member ${what} is found by digest in the same step, and the member is named`,
    { timeout: 300_000 },
    async () => {
      const grid = await Grid.start({ timing: QUICK })
      try {
        const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 3 }))
        for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'reference' })
        grid.addVolunteer({
          name: 'liar',
          executor: 'reference',
          entry: FAULTY,
          env: { STARLING_FAULT: `send-wrong-sum:${n}` },
        })
        const run = await finishesWhole(grid, job, STEPS)
        assert.ok((run.refusals['digest-mismatch'] ?? 0) > 0, JSON.stringify(run.refusals))
        const found = grid.watch.events.filter(
          ({ kind, text }) => kind === 'refusal' && text.includes('bytes for step'),
        )
        assert.equal(found.length, 1, 'once, in the step in which it happened')
        assert.ok(found[0]?.text.includes('liar'), found[0]?.text)
      } finally {
        await grid.stop()
      }
    },
  )
