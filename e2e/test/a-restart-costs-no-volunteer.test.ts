// A coordinator that is killed while volunteers prepare, train, pull and validate: every one of their processes lives
// through it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid, type Watch } from '@starling-grid/cli'
import { auditChain } from '../src/audit.ts'
import { QUICK, smallJob } from './small-job.ts'

const STEPS = 30

/** when the coordinator is killed */
const MOMENTS: readonly (readonly [string, (watch: Watch) => boolean])[] = [
  // The first to be seen prepares, as a rule; the watch may miss that moment on a quick machine.
  ['a volunteer', ({ run }) => (run?.members.length ?? 0) > 0],
  ['some steps', ({ run }) => (run?.version.v ?? 0) >= 5],
  ['the validation', ({ run }) => run?.phase === 'validating' && run.version.v === STEPS],
]

for (const mode of ['ring', 'async'] as const)
  test(
    `mode ${mode}: a coordinator killed while volunteers prepare, train and validate costs none of their processes`,
    { timeout: 400_000 },
    async () => {
      const grid = await Grid.start({ timing: QUICK })
      try {
        const job = await grid.submit({
          ...smallJob({ stop: { steps: STEPS }, minVolunteers: 2, mode }),
          evaluate: { everyEpochs: 1 },
        })
        const volunteers = [grid.addVolunteer({ executor: 'reference' }), grid.addVolunteer({ executor: 'reference' })]
        for (const [what, isNow] of MOMENTS) {
          await grid.watch.waitFor(what, isNow)
          await grid.killCoordinator()
          await grid.restartCoordinator()
        }
        await grid.watch.waitFor('the end of the training', ({ run }) => run?.phase === 'finished', 300_000)
        for (const child of volunteers)
          assert.ok(child.alive(), `${child.name} ended: ${child.lines.slice(-5).join(' | ')}`)
        const records = await grid.records(job)
        assert.equal(records.length, STEPS)
        assert.equal(auditChain(records, 0).duplicated, 0)
      } finally {
        await grid.stop()
      }
    },
  )
