// A third of the replica groups dies at once in the middle of a round, in real processes.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { auditChain } from '../src/audit.ts'
import { GROUPED, killGroup } from '../src/chaos/kills.ts'
import { QUICK, tinyJob } from './small-job.ts'

const MEMBERS = 6
/** More than are trained until the groups are dead: the run is told to end with its epoch. */
const EPOCHS = 1000
/** before the kill */
const VERSIONS = 3

test(
  'groups that die in the middle of a round lose no block, and no block counts twice',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const job = await grid.submit({ ...tinyJob({ stop: { epochs: EPOCHS }, minVolunteers: MEMBERS }), ...GROUPED })
      for (let i = 0; i < MEMBERS; i++) grid.addVolunteer({ executor: 'reference' })
      await grid.watch.waitFor('some outer versions', ({ run }) => (run?.version.v ?? 0) >= VERSIONS)
      const said: string[] = []
      const blow = {
        number: 0,
        executor: 'reference',
        random: () => 1,
        say: (text: string) => said.push(text),
      } as const
      await killGroup(grid, blow)
      assert.match(said.join(), /died in the round after version/)
      await grid.endWithEpoch(job)
      const run = await grid.watch.waitFor('the end', ({ run }) => run?.phase === 'finished' && run)
      const { lost, duplicated } = auditChain(await grid.records(job), run.job.blocksPerEpoch * (run.job.epochs ?? 0))
      assert.deepEqual({ lost, duplicated }, { lost: 0, duplicated: 0 })
      assert.ok(run.departed.length > 0, 'members were lost')
    } finally {
      await grid.stop()
    }
  },
)
