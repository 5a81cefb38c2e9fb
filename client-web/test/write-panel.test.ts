// The part of the dashboard that tries a model: what it says before anything is fetched, and when nothing comes.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { RunView } from '@starling-grid/protocol'
import type { Browser, Page } from 'playwright-core'
import { builtPages, launchBrowser, openPage, overflow } from './browser.ts'
import { runAt, snapshotAt } from './fixture-run.ts'
import { type FixtureServer, startFixtureServer } from './fixture-server.ts'

let browser: Browser
let server: FixtureServer

before(async () => {
  browser = await launchBrowser({ gpu: false })
  server = await startFixtureServer(await builtPages(), snapshotAt(330))
})
after(async () => {
  await browser.close()
  await server.stop()
})

const panel = (page: Page) => page.getByRole('region', { name: 'Try the model' })

async function open(change: Partial<RunView>, size = { width: 1280, height: 900 }): Promise<Page> {
  server.first = snapshotAt(330, change)
  const { page } = await openPage(browser, { viewport: size })
  await page.goto(`${server.url}/dashboard`)
  await page.locator('.headline').waitFor()
  return page
}

const { job } = runAt(330)
const chats: RunView['job'] = { ...job, writes: 'chat', baseBytes: 269_100_000 }

test('a job whose model answers samples has nothing to write with', async () => {
  const page = await open({})
  assert.equal(await panel(page).count(), 0)
  await page.close()
})

test('before a click it says what would be fetched, and that nothing written leaves the device', async () => {
  const page = await open({ job: chats }, { width: 390, height: 800 })
  assert.match(await panel(page).innerText(), /269 MB of the base model once, and 247 kB of version 320/)
  assert.match(await panel(page).innerText(), /nothing that you write leaves it/)
  assert.ok((await overflow(page)) <= 0, 'as wide as a phone')
  await page.close()
})

test('without a version, or without the right to it, there is no button', async () => {
  for (const [change, words] of [
    [{ exportPath: null, checkpoint: null }, /no version yet/],
    [{ detail: 'totals', exportPath: null }, /for its owner/],
  ] as const) {
    const page = await open({ job: chats, ...change })
    assert.match(await panel(page).innerText(), words)
    assert.equal(await panel(page).getByRole('button').count(), 0)
    await page.close()
  }
})

test('what the coordinator refuses is said, and can be tried again', async () => {
  const page = await open({ job: { ...job, writes: 'text' } })
  await panel(page).getByRole('button', { name: 'Load version 320' }).click()
  const alert = panel(page).getByRole('alert')
  await alert.waitFor()
  assert.equal(await alert.getAttribute('data-reason'), 'coordinator-lost')
  assert.match(await alert.innerText(), /could not be opened.*HTTP 404/s)
  await panel(page).getByRole('button', { name: 'Load version 320' }).waitFor()
  await page.close()
})
