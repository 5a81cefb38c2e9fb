import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { QUICK, smallJob } from './small-job.ts'

/** More than any machine trains meanwhile: the run need not end. */
const STEPS = 100_000
/** Time between a newcomer's proof and its ballot, in which it is stopped. */
const TIMING = { ...QUICK, admitMs: 5000 }

test(
  'a newcomer that is stopped before it proved itself costs the ring no ballot, and joins when it goes on',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: TIMING })
    try {
      await grid.submit(smallJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
      for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'reference' })
      const before = await grid.watch.waitFor('steps of two', ({ run }) => (run?.version.v ?? 0) >= 5 && run)
      const newcomer = grid.addVolunteer({ name: 'stopped', executor: 'reference' })
      await grid.watch.waitFor('the newcomer', ({ events }) =>
        events.some(({ text }) => text.startsWith('stopped joined')),
      )
      newcomer.kill('SIGSTOP')
      await grid.watch.waitFor('its silence', ({ events }) =>
        events.some(({ text }) => text.startsWith('stopped left')),
      )
      const after = await grid.watch.waitFor(
        'steps after that',
        ({ run }) => run && run.version.v > before.version.v + 5 && run,
      )
      assert.equal(after.generation, before.generation)
      newcomer.kill('SIGCONT')
      const joined = await grid.watch.waitFor(
        'a ring of three',
        ({ run }) => run?.phase === 'ring' && run.members.filter(({ rank }) => rank !== null).length === 3 && run,
      )
      assert.ok(joined.generation > before.generation)
    } finally {
      await grid.stop()
    }
  },
)
