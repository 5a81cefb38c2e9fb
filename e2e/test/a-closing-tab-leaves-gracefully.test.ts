import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import { finishesWhole, tinyJob, QUICK } from './small-job.ts'

const STEPS = 60

test('a tab that closes leaves gracefully, and the others go on', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: QUICK, webRoot: await ensureWebPage(() => undefined) })
  const browser = await launchBrowser()
  try {
    const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
    grid.addVolunteer({ executor: 'reference' })
    const page = await browser.newPage()
    await page.goto(`${grid.url}/?executor=webgpu`)
    await page.locator('button[data-primary]').click()
    await grid.watch.waitFor(
      'a ring with the tab',
      ({ run }) =>
        run?.phase === 'ring' && run.members.some((member) => member.client === 'tab' && member.rank !== null),
    )
    await page.close({ runBeforeUnload: true })
    // On a busy machine its goodbye comes behind the end of its socket.
    await grid.watch.waitFor('the departure of a tab that said so', ({ run }) => run?.departed[0]?.expected)
    const run = await finishesWhole(grid, job, STEPS)
    assert.equal(run.checkpoint?.members, 1)
  } finally {
    await browser.close()
    await grid.stop()
  }
})
