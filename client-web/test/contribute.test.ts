import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import { builtPages, launchBrowser, openPage, overflow } from './browser.ts'
import { fakeWorker, TRAINING } from './fake-worker.ts'
import { idOf, runAt, snapshotAt } from './fixture-run.ts'
import { type FixtureServer, startFixtureServer } from './fixture-server.ts'

const HOSTILE = '<img src=x onerror="window.hacked=1">'
/** A page of this origin has no secure context; nothing is ever sent there. */
const LAN = 'http://192.0.2.7:8080'

/** Text, because it runs in the page. */
const COUNT_REQUESTS = `
  globalThis.asked = []
  const { requestDevice } = GPUAdapter.prototype
  GPUAdapter.prototype.requestDevice = function (...rest) {
    asked.push('device')
    return requestDevice.apply(this, rest)
  }
  globalThis.RTCPeerConnection = class { constructor() { asked.push('peer') } }
`

let browser: Browser
let server: FixtureServer

before(async () => {
  browser = await launchBrowser()
  server = await startFixtureServer(await builtPages(), snapshotAt(210))
})
after(async () => {
  await browser.close()
  await server.stop()
})

const reason = (page: Page): Promise<string | null> => page.locator('[data-reason]').first().getAttribute('data-reason')

test('before the click the job is described in text, and no device or connection is asked for', async () => {
  const { page, complaints } = await openPage(browser)
  await page.addInitScript(COUNT_REQUESTS)
  await page.goto(server.url)
  await page.getByText('Botanical Garden Halle').waitFor()
  const text = await page.innerText('body')
  for (const expected of ['Handwritten digits', 'herbarium', 'LeNet-5', '61,706 parameters', '8,192 samples', '7.8 MB'])
    assert.ok(text.includes(expected), expected)
  assert.equal(await page.locator('button[data-primary]').count(), 1)
  assert.deepEqual(await page.evaluate('asked'), [])
  assert.deepEqual(complaints, [])
  await page.close()
})

test('one click starts, a counted sample is said, and Stop leaves gracefully', async () => {
  const { page, complaints } = await openPage(browser)
  await fakeWorker(page, { statuses: [{ ...TRAINING, phase: 'preparing', samplesCommitted: 0 }, TRAINING] })
  await page.goto(server.url)
  await page.click('button[data-primary]')
  await page.getByRole('status').getByText('1,280 of your samples are in version 42').waitFor({ timeout: 10_000 })
  await page.locator('.contribution').getByText('41 samples/s').waitFor()
  const text = await page.innerText('.contribution')
  for (const expected of ['0.3127', '3 of 5', '81.4 MB', '80.9 MB', 'software'])
    assert.ok(text.includes(expected), expected)
  await page.getByRole('button', { name: 'Stop' }).click()
  await page.getByRole('status').getByText('Stopped.').waitFor()
  assert.match(await page.innerText('[role=status]'), /1,280 of your samples.*was handed to other volunteers/is)
  assert.equal(await page.locator('button[data-primary]').count(), 1)
  assert.deepEqual(complaints, [])
  await page.close()
})

test('leaving the page tells the Worker to leave', async () => {
  const { page } = await openPage(browser)
  await fakeWorker(page, { statuses: [TRAINING] })
  const heard = server.heard()
  await page.goto(server.url)
  await page.click('button[data-primary]')
  await page.locator('.contribution').getByText('Computing').waitFor()
  await page.goto('about:blank')
  assert.equal(await heard, 'leave')
  await page.close()
})

test("threat 28, threat 52: the page first says who sees the address, and keeps a visitor's limits", async () => {
  const { page, complaints } = await openPage(browser)
  await fakeWorker(page, { statuses: [], tellsLimits: true })
  await page.goto(server.url)
  const limits = page.locator('details.limits')
  const shown = limits.locator('summary')
  await shown.getByText('4 GB memory, 8 GB upload an hour; other volunteers see your address').waitFor()
  await shown.click()
  await limits.getByLabel('Memory').fill('1.5')
  await limits.getByLabel('Upload').fill('0.5')
  await limits.getByLabel('Storage').fill('0.2')
  await limits.getByRole('checkbox').check()
  await shown.getByText('1.5 GB memory, 0.5 GB upload an hour; address hidden').waitFor()
  await page.reload()
  await shown.getByText('1.5 GB memory, 0.5 GB upload an hour; address hidden').waitFor()
  await page.click('button[data-primary]')
  const given = { memoryBytes: 1.5e9, uploadBytesPerHour: 5e8, diskBytes: 2e8, relaysOnly: true }
  await page.getByText(JSON.stringify(given)).first().waitFor()
  assert.deepEqual(complaints, [])
  await page.close()
})

test('leaving the page waits for its goodbye: some ten milliseconds, not felt', async () => {
  const { page } = await openPage(browser)
  await fakeWorker(page, { statuses: [TRAINING] })
  await page.goto(server.url)
  await page.click('button[data-primary]')
  await page.locator('.contribution').getByText('Computing').waitFor()
  const waited = Number(
    await page.evaluate(
      '(() => { const began = performance.now(); dispatchEvent(new Event("pagehide")); return performance.now() ' +
        '- began })()',
    ),
  )
  assert.ok(waited >= 50, `${waited} ms`)
  await page.close()
})

test('the samples of an earlier start on the page are in the total', async () => {
  const { page } = await openPage(browser)
  await fakeWorker(page, { statuses: [TRAINING] })
  await page.goto(server.url)
  const total = page.locator('.contribution .number').first()
  await page.click('button[data-primary]')
  await total.getByText('1,280', { exact: true }).waitFor()
  await page.getByRole('button', { name: 'Stop' }).click()
  await page.getByRole('status').getByText('Stopped.').waitFor()
  await page.click('button[data-primary]')
  await total.getByText('2,560', { exact: true }).waitFor()
  await page.close()
})

test('a Worker that hangs is ended from outside, and the page says that the coordinator was not told', async () => {
  const { page } = await openPage(browser)
  await fakeWorker(page, { statuses: [TRAINING], hangs: true })
  await page.goto(server.url)
  await page.click('button[data-primary]')
  await page.locator('.contribution').getByText('Computing').waitFor()
  await page.getByRole('button', { name: 'Stop' }).click()
  await page.getByRole('status').getByText('did not answer in time').waitFor({ timeout: 20_000 })
  assert.equal(await page.locator('button[data-primary]').count(), 1)
  await page.close()
})

test('over http from another machine the page says so, and speaks of no GPU and no driver', async () => {
  const { page } = await openPage(browser)
  await page.route(`${LAN}/**`, async (route) => {
    const { pathname } = new URL(route.request().url())
    await route.fulfill({ response: await route.fetch({ url: server.url + pathname }) })
  })
  await page.routeWebSocket(`${LAN.replace('http', 'ws')}/**`, (socket) => socket.send(JSON.stringify(snapshotAt(210))))
  await page.goto(LAN)
  await page.getByText('Botanical Garden Halle').waitFor()
  assert.equal(await reason(page), 'insecure-context')
  assert.match(await page.innerText('[data-reason]'), /https:\/\/192\.0\.2\.7:8080/)
  assert.doesNotMatch(await page.innerText('body'), /gpu|driver|graphics/i)
  assert.equal(await page.locator('button[data-primary]').count(), 0)
  await page.close()
})

test('a browser without WebGPU is told what to update, and that its processor computes', async () => {
  const { page, complaints } = await openPage(browser)
  await page.addInitScript(() => void Reflect.deleteProperty(Navigator.prototype, 'gpu'))
  await page.goto(server.url)
  await page.getByText('Botanical Garden Halle').waitFor()
  assert.equal(await reason(page), 'no-webgpu')
  assert.match(await page.innerText('.next-step'), /Update Chrome to \d+/)
  assert.match(await page.innerText('.cause'), /the processor computes/)
  assert.equal(await page.locator('button[data-primary]').count(), 1)
  assert.deepEqual(complaints, [])
  await page.close()
})

test('a browser that finds no adapter begins all the same: its processor computes', async () => {
  const { page, complaints } = await openPage(browser)
  await page.addInitScript(() => {
    GPU.prototype.requestAdapter = async () => null
  })
  await fakeWorker(page, { statuses: [TRAINING] })
  await page.goto(server.url)
  await page.click('button[data-primary]')
  await page.getByRole('button', { name: 'Stop' }).waitFor()
  assert.equal(await page.locator('[data-reason]').count(), 0)
  assert.deepEqual(complaints, [])
  await page.close()
})

for (const [code, expected] of [
  ['device-lost', 'device-lost'],
  ['no-key', 'no-key'],
  ['adapter-limit', 'adapter-limit'],
  ['grid-full', 'grid-full'],
  ['model-hash', 'old-page'],
  ['internal', 'broken'],
] as const) {
  test(`a volunteer that ends with ${code} shows the reason, a next step and what was counted`, async () => {
    const { page, complaints } = await openPage(browser)
    await fakeWorker(page, { statuses: [TRAINING], failure: { code, message: 'because of the test.' } })
    await page.goto(server.url)
    await page.click('button[data-primary]')
    await page.locator(`[data-reason=${expected}]`).waitFor()
    assert.notEqual((await page.innerText('.next-step')).trim(), '')
    assert.match(await page.innerText('[role=status]'), /1,280 of your samples are in version 42/)
    assert.deepEqual(complaints, [])
    await page.close()
  })
}

test('when the coordinator is away the page counts down and comes back by itself', async () => {
  const { page } = await openPage(browser)
  await page.goto(server.url)
  await page.getByText('Botanical Garden Halle').waitFor()
  server.answer(false)
  await page.locator('[data-reason=coordinator-away]').waitFor()
  assert.match(await page.innerText('[data-reason=coordinator-away]'), /again in \d+ s/)
  server.answer(true)
  await page.locator('[data-reason=coordinator-away]').waitFor({ state: 'detached', timeout: 15_000 })
  await page.close()
})

test('without a job the page says so and still lets people join', async () => {
  const empty = await startFixtureServer(await builtPages(), { type: 'none', reason: 'No job was submitted.' })
  const { page, complaints } = await openPage(browser)
  await page.goto(empty.url)
  await page.getByText('No job is running').waitFor()
  assert.equal(await page.locator('button[data-primary]').count(), 1)
  assert.deepEqual(complaints, [])
  await page.close()
  await empty.stop()
})

test('hostile names are shown as text', async () => {
  const run = runAt(210)
  const job = { ...run.job, name: HOSTILE, owner: HOSTILE, purpose: HOSTILE, model: HOSTILE, dataset: HOSTILE }
  const members = run.members.map((member) => ({ ...member, name: HOSTILE, activity: HOSTILE }))
  const hostile = await startFixtureServer(await builtPages(), snapshotAt(210, { job, members }))
  const { page, complaints } = await openPage(browser)
  await page.goto(hostile.url)
  await page.getByRole('heading', { name: HOSTILE }).waitFor()
  assert.equal(await page.locator('img').count(), 0)
  assert.deepEqual(complaints, [])
  await page.close()
  await hostile.stop()
})

test('threat 8, threat 9: no text of the page becomes markup or a script, and a Worker is our own', async () => {
  const { page } = await openPage(browser)
  await page.goto(server.url)
  await page.locator('button[data-primary]').waitFor()
  const refused = await page.evaluate(() =>
    [
      () => Object.assign(document.body, { innerHTML: '<b>text</b>' }),
      () => document.write('<b>text</b>'),
      () => Object.assign(document.createElement('script'), { src: '/assets/other.js' }),
      () => void new Worker('/assets/other.js'),
      () => void new DOMParser().parseFromString('<b>text</b>', 'text/html'),
    ].map((sink) => {
      try {
        sink()
        return 'taken'
      } catch (error) {
        return (error as Error).name
      }
    }),
  )
  assert.deepEqual(new Set(refused), new Set(['TypeError']))
  await page.close()
})

test('on a phone nothing scrolls sideways, the button is in view, and every target is 44 pixels high', async () => {
  const { page } = await openPage(browser, { viewport: { width: 390, height: 844 } })
  await fakeWorker(page, { statuses: [TRAINING] })
  await page.goto(server.url)
  const button = await page.locator('button[data-primary]').boundingBox()
  await page.getByText('Botanical Garden Halle').waitFor()
  assert.ok(button !== null && button.y + button.height < 844)
  await page.click('details.limits summary')
  await targetsAreHigh(page)
  await page.click('button[data-primary]')
  await page.locator('.contribution').getByText('Computing').waitFor()
  await targetsAreHigh(page)
  assert.equal(await overflow(page), 0)
  await page.close()
})

async function targetsAreHigh(page: Page): Promise<void> {
  for (const target of await page.locator('a, button, input, summary').all()) {
    const box = await target.boundingBox()
    assert.ok(box !== null && box.height >= 44, `${await target.innerText()} is ${box?.height} pixels high`)
  }
}

test('the keyboard alone starts and stops', async () => {
  const { page } = await openPage(browser)
  await fakeWorker(page, { statuses: [TRAINING] })
  await page.goto(server.url)
  await page.locator('button[data-primary]').focus()
  await page.keyboard.press('Enter')
  await page.locator('.contribution').getByText('Computing').waitFor()
  await page.getByRole('button', { name: 'Stop' }).focus()
  await page.keyboard.press('Space')
  await page.getByRole('status').getByText('Stopped.').waitFor()
  await page.close()
})

test('the own place in the ring is marked', async () => {
  const { page } = await openPage(browser)
  await fakeWorker(page, { statuses: [TRAINING], self: idOf(2) })
  await page.goto(server.url)
  await page.click('button[data-primary]')
  await page.locator('.node.self').waitFor()
  assert.match((await page.locator('.node.self').textContent()) ?? '', /you/)
  await page.close()
})
