import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, QUICK_LINKS, tinyJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
const STEPS = 30

test('a pair that cannot link is relayed and the run goes on in ring mode', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: QUICK_LINKS })
  try {
    const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 3, mode: 'auto' }))
    grid.addVolunteer({ name: 'first', executor: 'reference' })
    grid.addVolunteer({ name: 'second', executor: 'reference' })
    grid.addVolunteer({ name: 'shut in', executor: 'reference', entry: FAULTY, env: { STARLING_FAULT: 'no-ice:1' } })
    const run = await grid.watch.waitFor(
      'a relayed ring at work',
      ({ run }) => run?.phase === 'ring' && run.version.v > 0 && run.relay.bytes > 0 && run,
    )
    assert.equal(run.relay.links, 1)
    const relayed = run.members.filter((member) => member.relayed)
    assert.equal(relayed.length, 1, 'one link of the ring is marked')
    assert.ok(
      run.members.every(({ rank }) => rank !== null),
      'nobody was left out',
    )
    assert.ok(
      grid.watch.events.some(({ text }) => text.includes('shut in') && text.includes('cannot link to each other')),
      'an event says so',
    )
    const end = await finishesWhole(grid, job, STEPS)
    assert.equal(end.checkpoint?.members, 3)
    assert.equal(end.mode, 'ring')
    assert.ok(
      (await grid.records(job)).every(({ kind }) => kind === 'ring'),
      'it never left ring mode',
    )
  } finally {
    await grid.stop()
  }
})
