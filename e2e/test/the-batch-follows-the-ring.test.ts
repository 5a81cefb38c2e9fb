// The production grid, in processes of its own, with weak scaling. The rate rises to the batch of three members. One
// leaves, and both fall. What the records say, computed again by itself, leads to the same model, bit by bit.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { auditSteps } from '@starling-grid/cli/audit-steps'
import { finishesWhole, PACED, QUICK, tinyJob } from './small-job.ts'

const STEPS = 60
const OWN_BLOCKS = 2
const WARMUP = 8
const LR = 0.02

test('the batch and the rate follow the ring, as every record says', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: QUICK, audited: true })
  try {
    const id = await grid.submit({
      ...tinyJob({ stop: { steps: STEPS }, minVolunteers: 3, optimizer: { type: 'sgd', lr: LR, momentum: 0.9 } }),
      batchBlocks: OWN_BLOCKS,
      weakScaling: { warmup: WARMUP },
    })
    const [third] = Array.from({ length: 3 }, () => grid.addVolunteer(PACED))
    await grid.watch.waitFor('the whole rate', ({ run }) => (run?.version.v ?? 0) > WARMUP)
    third?.kill('SIGKILL')
    await finishesWhole(grid, id, STEPS)

    const records = await grid.records(id)
    const batches = new Set(records.map(({ scaling }) => scaling?.batch))
    assert.deepEqual([...batches], [3 * OWN_BLOCKS, 2 * OWN_BLOCKS], 'the ring of three, then of two')
    let before = 1
    for (const { v, scaling, blocks } of records) {
      const { batch, scale, lr } = scaling ?? assert.fail(`record ${v} says nothing of it`)
      const times = batch / OWN_BLOCKS
      assert.equal(scale, Math.min(times, before + times / WARMUP), `step ${v}`)
      assert.equal(lr, scale * LR)
      assert.ok(blocks.length <= batch)
      before = scale
    }
    assert.equal(before, 2)
    const audit = await auditSteps(grid, id, { executor: 'reference', say: console.error })
    assert.deepEqual([audit.audited, audit.auditFailed, audit.auditReached], [STEPS, 0, true])
  } finally {
    await grid.stop()
  }
})
