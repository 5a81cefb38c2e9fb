// A shard of the training data loses bytes on the coordinator's disk while a ring of real processes needs it.
import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { finishesWhole, QUICK, smallJob } from './small-job.ts'

const STEPS = 40

test(
  'volunteers that meet a damaged shard stay: the run rests, names the file, and goes on when it is put back',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    const cache = await mkdtemp(join(tmpdir(), 'starling-'))
    try {
      const job = await grid.submit(smallJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
      const file = await largestFile(join(grid.dataDir, 'blobs'))
      const whole = await readFile(file)
      await truncate(file, 1000)
      for (const name of ['one', 'two'])
        grid.addVolunteer({ name, executor: 'reference', env: { STARLING_CACHE: join(cache, name) } })
      await grid.watch.waitFor(
        'blocks that are set aside',
        ({ events }) => events.some(({ text }) => /training blocks are set aside: /.test(text)),
        120_000,
      )
      await writeFile(file, whole)
      await finishesWhole(grid, job, STEPS)
      assert.ok(grid.watch.events.some(({ text }) => /cannot read \d+ blocks/.test(text)))
      assert.ok(grid.volunteers.every(({ process }) => process.exitCode === null))
    } finally {
      await grid.stop()
      await rm(cache, { recursive: true, force: true })
    }
  },
)

/** A shard of training samples: that of validation is smaller. */
async function largestFile(folder: string): Promise<string> {
  const names = (await readdir(folder, { recursive: true })).map((name) => join(folder, name))
  const sizes = await Promise.all(names.map(async (name) => ({ name, info: await stat(name) })))
  const files = sizes.filter(({ info }) => info.isFile()).sort((a, b) => b.info.size - a.info.size)
  return files[0]?.name ?? assert.fail('there are shards')
}
