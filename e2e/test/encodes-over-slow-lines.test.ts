// Real processes whose lines are slow, in a job that leaves the encoding to the run: it measures, forms the ring again
// with an encoding that all members use, and loses nothing.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import type { JobSpec } from '@starling-grid/protocol'
import { finishesWhole, QUICK, smallJob } from './small-job.ts'

/** bytes a ms: the 31 kB of a gradient take a third of a second, and computing a few ms */
const LINE = 100
/** For these a ring lasts longer than it must before it changes (GENERATION_MS). */
const STEPS = 160

function job(): JobSpec {
  const layers = [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }] as const
  const settings = smallJob({ stop: { steps: STEPS }, minVolunteers: 2, optimizer: { type: 'sgd', lr: 0.05 } })
  return { ...settings, model: { name: 'linear', input: [1, 28, 28], layers: [...layers] }, encoding: 'auto' }
}

test('over slow lines a run goes over to eight bits by itself, and loses no block', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: QUICK })
  try {
    const id = await grid.submit(job())
    for (const name of ['one', 'two'])
      grid.addVolunteer({
        name,
        executor: 'reference',
        entry: fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url)),
        env: { STARLING_FAULT: `slow-lines:${LINE}` },
      })
    const first = await grid.watch.waitFor(
      'the first steps',
      ({ run }) => run?.phase === 'ring' && run.version.v > 2 && run,
    )
    assert.equal(first.encoding?.type, 'f32')
    const encoded = await grid.watch.waitFor(
      'eight bits',
      ({ run }) => run?.phase === 'ring' && run.encoding?.type === 'int8' && run,
      150_000,
    )
    assert.match(encoded.encoding?.reason ?? '', /times as fast as f32: \d+ ms with f32, \d+ ms with f16/)
    assert.ok(encoded.generation > first.generation, 'all members are told with FORM')
    await finishesWhole(grid, id, STEPS)
  } finally {
    await grid.stop()
  }
})
