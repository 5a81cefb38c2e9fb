import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { auditChain } from '../src/audit.ts'
import { cutLink, PARTITIONED } from '../src/chaos/cut-link.ts'
import { QUICK_LINKS, smallJob } from './small-job.ts'

/** More than any machine trains until the link is restored: the run need not end. */
const STEPS = 100_000

test(
  'a link that is cut is relayed, restored it is direct again, and no sample is counted twice',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: { ...QUICK_LINKS, checkpointMs: 2000 } })
    try {
      const job = await grid.submit(smallJob({ stop: { steps: STEPS }, minVolunteers: 2, mode: 'ring' }))
      for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'reference', ...PARTITIONED })
      await grid.watch.waitFor('some steps', ({ run }) => (run?.version.v ?? 0) >= 5)
      await cutLink(grid, { random: () => 0 })
      const texts = grid.watch.events.map(({ text }) => text)
      for (const expected of [
        'silent for 5 s',
        'the coordinator relays their frames',
        'reach each other again',
        'a relayed link is direct again',
      ])
        assert.ok(
          texts.some((text) => text.includes(expected)),
          expected,
        )
      const restored = grid.watch.run?.version.v ?? 0
      const run = await grid.watch.waitFor(
        'a checkpoint of the direct ring',
        ({ run }) => (run?.checkpoint?.v ?? 0) > restored && run,
      )
      assert.deepEqual([run.checkpoint?.agreeing, run.checkpoint?.members], [2, 2], 'both replicas are bit-identical')
      const records = await grid.records(job)
      assert.deepEqual(
        records.map(({ v }) => v),
        records.map((_, i) => i + 1),
        'versions follow each other',
      )
      assert.equal(auditChain(records, 0).duplicated, 0)
      assert.equal(run.departed.length, 0, 'nobody was lost to it')
    } finally {
      await grid.stop()
    }
  },
)
