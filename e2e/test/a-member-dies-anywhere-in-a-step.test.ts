// A few cells of the ring death matrix (ring-death-matrix.test.ts has all of them, simulated) with real processes and
// SIGKILL.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { auditChain } from '../src/audit.ts'
import { QUICK, slowMember, tinyJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
/** More than any machine trains until the last has died: the run need not end. */
const STEPS = 100_000
/** the first frames or messages of the third in a ring of three */
const DEATHS = ['die-at-partial:5', 'die-at-reduced:5', 'die-before-held:3', 'die-after-held:3', 'die-before-confirm:1']

test(
  'members killed inside a step, around HELD and before CONFIRM cost no sample, and the others stay bit-identical',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    const { watch } = grid
    try {
      const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
      // their steps take time, and none of a core, while the victims start
      for (let i = 0; i < 2; i++) grid.addVolunteer(slowMember(5))
      await watch.waitFor('some steps of two', ({ run }) => (run?.version.v ?? 0) >= 5)
      for (const fault of DEATHS) {
        const victim = grid.addVolunteer({
          name: fault,
          executor: 'reference',
          entry: FAULTY,
          env: { STARLING_FAULT: fault },
        })
        assert.equal(await victim.ended, 'SIGKILL', fault)
        await watch.waitFor(`${fault} to be missed`, ({ run }) => run?.departed.some(({ name }) => name === fault))
        const { v } = watch.run?.version ?? { v: 0 }
        await watch.waitFor(`a step after ${fault}`, ({ run }) => run?.phase === 'ring' && run.version.v > v)
      }
      const last = watch.run?.version.v ?? 0
      const run = await watch.waitFor(
        'a checkpoint of those that are left',
        ({ run }) => (run?.checkpoint?.v ?? 0) > last && run,
      )
      assert.deepEqual([run.checkpoint?.agreeing, run.checkpoint?.members], [2, 2], 'both replicas are bit-identical')
      const records = await grid.records(job)
      assert.deepEqual(
        records.map(({ v }) => v),
        records.map((_, i) => i + 1),
        'versions follow each other',
      )
      assert.equal(auditChain(records, 0).duplicated, 0)
      assert.equal(watch.events.filter(({ kind }) => kind === 'rewind').length, 0, 'no step was repeated')
    } finally {
      await grid.stop()
    }
  },
)
