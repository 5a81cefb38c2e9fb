import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { auditChain } from '../src/audit.ts'
import { QUICK_LINKS, tinyJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
/** More than any machine trains until an off-ring member's blocks are in a checkpoint: the run need not end. */
const STEPS = 100_000
const BATCH_BLOCKS = 36
const BLOCK_SAMPLES = 8
/** A member that was left out stays out for the whole test. */
const TIMING = { ...QUICK_LINKS, excludeMs: 600_000, checkpointMs: 2000 }

test(
  'a volunteer that no link and no relay reaches works beside the ring, and what it computed is in it once',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: TIMING })
    try {
      const job = await grid.submit({
        ...tinyJob({ stop: { steps: STEPS }, minVolunteers: 3 }),
        batchBlocks: BATCH_BLOCKS,
      })
      for (const [name, fault] of [
        ['one', 'slow-samples:6'],
        ['two', 'slow-samples:6'],
        ['hermit', 'no-links:1'],
      ])
        grid.addVolunteer({ name: name ?? '', executor: 'reference', entry: FAULTY, env: { STARLING_FAULT: fault } })
      const lentIn = await grid.watch.waitFor(
        'a step with blocks of the off-ring member',
        ({ steps }) => steps.find(({ samples }) => samples > BATCH_BLOCKS * BLOCK_SAMPLES)?.v,
        250_000,
      )
      const run = await grid.watch.waitFor(
        'a checkpoint that has it',
        ({ run }) => (run?.checkpoint?.v ?? 0) >= lentIn && run,
      )
      const records = await grid.records(job)
      assert.equal(auditChain(records, 0).duplicated, 0)
      assert.ok(
        records.every(({ kind }) => kind === 'ring'),
        'the ring is the one writer',
      )
      const lent = records.filter(({ blocks }) => blocks.length > BATCH_BLOCKS)
      const story = grid.watch.events.map(({ text }) => text).join('\n')
      assert.ok(lent.length > 0, story)
      assert.deepEqual(
        [run.checkpoint?.agreeing, run.checkpoint?.members],
        [2, 2],
        `both replicas are bit-identical\n${story}`,
      )
    } finally {
      await grid.stop()
    }
  },
)
