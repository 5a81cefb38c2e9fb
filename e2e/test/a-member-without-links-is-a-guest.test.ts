import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { auditChain } from '../src/audit.ts'
import { Grid } from '../src/grid.ts'
import { QUICK, smallJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
const STEPS = 12
const BATCH_BLOCKS = 36
/** A member that was left out stays out for the whole test. */
const TIMING = { ...QUICK, excludeMs: 600_000 }

test('a volunteer that no link and no relay reaches works beside the ring, and what it computed is in it once', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: TIMING })
  try {
    const job = await grid.submit({ ...smallJob({ maxSteps: STEPS, minVolunteers: 3 }), batchBlocks: BATCH_BLOCKS })
    for (const [name, fault] of [['one', 'slow-samples:6'], ['two', 'slow-samples:6'], ['hermit', 'no-links:1']])
      grid.addVolunteer({ name: name ?? '', executor: 'reference', entry: FAULTY, env: { STARLING_FAULT: fault } })
    const run = await grid.watch.waitFor('the end of the training', ({ run }) => run?.phase === 'finished' && run, 250_000)
    const records = await grid.records(job)
    const audit = auditChain(records, new Set(records.flatMap(({ blocks }) => blocks)).size)
    assert.deepEqual([records.length, audit.duplicated], [STEPS, 0])
    assert.ok(records.every(({ kind }) => kind === 'ring'), 'the ring is the one writer')
    const lent = records.filter(({ blocks }) => blocks.length > BATCH_BLOCKS)
    assert.ok(lent.length > 0, grid.watch.events.map(({ text }) => text).join('\n'))
    assert.deepEqual([run.checkpoint?.agreeing, run.checkpoint?.members], [2, 2], 'both replicas are bit-identical')
  } finally {
    await grid.stop()
  }
})
