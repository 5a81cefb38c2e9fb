import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, QUICK, tinyJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
const STEPS = 6
/** ms for a sample: a block of 8 takes about 100 ms, an assignment of 12 blocks more than a second */
const MS_PER_SAMPLE = 12

test(
  'a volunteer that becomes ten times slower gives blocks to the others, and no sample is lost or counted twice',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const job = await grid.submit({ ...tinyJob({ stop: { steps: STEPS }, minVolunteers: 3 }), batchBlocks: 36 })
      for (const [name, fault] of [
        ['one', 'slow-samples'],
        ['two', 'slow-samples'],
        ['snail', 'slows-down'],
      ])
        grid.addVolunteer({
          name: name ?? '',
          executor: 'reference',
          entry: FAULTY,
          env: { STARLING_FAULT: `${fault}:${MS_PER_SAMPLE}` },
        })
      const run = await finishesWhole(grid, job, STEPS)
      const events = grid.watch.events.map(({ text }) => text).join('\n')
      assert.equal(run.checkpoint?.members, 3, `nobody is left out for being slow:\n${events}`)
      assert.match(events, /^snail is slower than planned: others take blocks of its assignment$/m)
    } finally {
      await grid.stop()
    }
  },
)
