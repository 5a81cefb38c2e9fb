import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import { jobId, type Metric, ROUTES, type RunView } from '@starling-grid/protocol'
import type { Browser, Page } from 'playwright-core'
import { builtPages, launchBrowser, openPage, type WatchedPage } from './browser.ts'
import { runAt, snapshotAt, stepPoint, updateTo } from './fixture-run.ts'
import { type FixtureServer, startFixtureServer } from './fixture-server.ts'

const HOSTILE = '<img src=x onerror="window.hacked=1">'

let browser: Browser
let server: FixtureServer

before(async () => {
  browser = await launchBrowser()
  server = await startFixtureServer(await builtPages(), snapshotAt(330))
})
beforeEach(() => {
  server.first = snapshotAt(330)
})
after(async () => {
  await browser.close()
  await server.stop()
})

async function open(search = ''): Promise<WatchedPage> {
  const opened = await openPage(browser)
  await opened.page.goto(`${server.url}/dashboard${search}`)
  await opened.page.locator('.headline, .empty h1').waitFor()
  return opened
}
const newestStep = (page: Page): Promise<string> =>
  page.locator('section[aria-label="Training loss"] .readout span').first().innerText()
const waitForStep = (page: Page, v: number): Promise<void> =>
  page.locator('section[aria-label="Training loss"] .readout').getByText(`step ${v}`, { exact: true }).waitFor()

test('threat 4: the owner token leaves the address at once and stands in no request', async () => {
  const { page, complaints } = await openPage(browser)
  const asked: string[] = []
  page.on('request', (request) => {
    const { authorization: _proof, ...headers } = request.headers()
    asked.push(request.url(), JSON.stringify(headers))
  })
  page.on('websocket', (socket) => asked.push(socket.url()))
  const words = server.said.length
  await page.goto(`${server.url}${ROUTES.dashboard}?x=time#token=owner-secret`)
  await page.locator('.headline').waitFor()
  assert.equal(page.url(), `${server.url}${ROUTES.dashboard}?x=time`)
  assert.equal(await page.evaluate(() => history.length), 2, 'the blank page and this one')
  assert.deepEqual(server.said.slice(words), ['{"type":"owner","token":"owner-secret"}'])
  await page.reload()
  await page.locator('.headline').waitFor()
  assert.equal(server.said.at(-1), '{"type":"owner","token":"owner-secret"}', 'a reload says it again')
  assert.equal(
    asked.some((text) => text.includes('owner-secret')),
    false,
    'in no address, and in no header but the one that proves it',
  )
  assert.deepEqual(complaints, [])
  await page.close()
})

test('of several jobs the page shows the one that is chosen, at an address that can be sent', async () => {
  const one = runAt(330)
  const other = { ...one, job: { ...one.job, id: jobId('flowers-0a1b2c'), name: 'Flowers' } }
  server.jobs = [other, one]
  const { page, complaints } = await open('?x=time')
  const choice = page.getByLabel('Job')
  assert.deepEqual(await choice.locator('option').allInnerTexts(), ['Flowers', one.job.name])
  assert.equal(await choice.inputValue(), one.job.id)
  server.first = snapshotAt(330, { job: other.job })
  await choice.selectOption('Flowers')
  await page.getByRole('heading', { name: 'Flowers' }).waitFor()
  assert.equal(new URL(page.url()).search, `?x=time&job=${other.job.id}`)
  assert.equal(server.watched.at(-1), `${ROUTES.watch}?job=${other.job.id}`)
  await page.getByRole('button', { name: 'samples' }).click()
  assert.match(page.url(), /job=flowers-0a1b2c/, 'another axis is of the same job')
  assert.deepEqual(complaints, [])
  server.jobs = []
  await page.close()
})

test('of a job that is not public the page shows curves and totals, and says who sees the rest', async () => {
  server.first = {
    ...snapshotAt(330, {
      detail: 'totals',
      reason: '',
      modeReason: '',
      members: [],
      departed: [],
      refusals: {},
      exportPath: null,
    }),
    events: [],
  }
  const { page, complaints } = await open()
  const text = await page.innerText('body')
  for (const words of ['Totals only', 'Handwritten digits', '95.7 %', 'to download by its owner'])
    assert.ok(text.includes(words), words)
  assert.match(await page.locator('.figures').innerText(), /MEMBERS\s+4/i)
  for (const words of ['marigold', 'GeForce', 'no heartbeat', 'generation-stale'])
    assert.equal(text.includes(words), false, words)
  assert.deepEqual(complaints, [])
  await page.close()
})

test('everything that is known of the run is on the page', async () => {
  const { page, complaints } = await open()
  const text = await page.innerText('body')
  const expected = [
    'Handwritten digits',
    'Training in a ring',
    '4 members hold version 330',
    'Membership has been stable',
    '51.6 %',
    'about 3 min',
    '838',
    '95.7 %',
    'marigold',
    'NVIDIA GeForce RTX 3060',
    '(software)',
    'computing',
    'no heartbeat for 5 s',
    'DONE 80',
    'PENDING 24',
    'TODO 24',
    'Quarantined 0',
    'generation-stale',
    'Version 320',
    'mode epoch 3',
    'Download safetensors',
  ]
  for (const words of expected) assert.ok(text.includes(words), words)
  const accuracy = page.locator('.figures > div', { hasText: 'Validation accuracy' }).locator('dd')
  assert.match(await accuracy.innerText(), /^95\.7 %/)
  assert.equal(await page.locator('.ring-picture .node.in-ring').count(), 4)
  assert.equal(await page.locator('.uplot canvas').count(), 2)
  assert.deepEqual(complaints, [])
  await page.close()
})

test('a link that goes through the coordinator is marked in the ring, in the table and in words', async () => {
  const { page, complaints } = await open()
  assert.equal(await page.locator('.ring-picture .detour').count(), 1)
  assert.match(
    (await page.locator('.ring-picture').getAttribute('aria-label')) ?? '',
    /The link from lab-7 to hamish goes through the coordinator\./,
  )
  assert.match(await page.locator('tr', { hasText: 'lab-7' }).innerText(), /3, relayed/)
  assert.match(
    await page.innerText('.relay-note'),
    /^1 link goes through the coordinator \(dashed\), .* a second; .* so far\.$/,
  )
  server.first = snapshotAt(250)
  await page.reload()
  await page.locator('.ring-picture .hub').waitFor()
  assert.equal(await page.locator('.ring-picture .detour').count(), 0)
  assert.match(await page.innerText('.relay-note'), /^No link goes through the coordinator now/)
  assert.deepEqual(complaints, [])
  await page.close()
})

test('updates move the curve, a reload shows the same, and a rewind takes points back', async () => {
  const { page, complaints } = await open()
  server.send(updateTo(330, 334))
  await waitForStep(page, 334)
  server.first = snapshotAt(334)
  await page.reload()
  await waitForStep(page, 334)
  server.send({ ...updateTo(320, 321), rewoundTo: 320 })
  await waitForStep(page, 321)
  assert.deepEqual(complaints, [])
  await page.close()
})

test('a broken stream is said, counted down, and mended without a reload', async () => {
  const { page } = await open()
  server.answer(false)
  await page.locator('[data-reason=coordinator-away]').waitFor()
  assert.match(await page.innerText('[data-reason=coordinator-away]'), /again in \d+ s/)
  assert.equal(await newestStep(page), 'step 330')
  server.first = snapshotAt(350)
  server.answer(true)
  // The countdown may end before the click, and takes the button away.
  await Promise.any([page.getByRole('button', { name: 'Ask now' }).click(), waitForStep(page, 350)])
  await waitForStep(page, 350)
  assert.equal(await page.locator('[data-reason=coordinator-away]').count(), 0)
  await page.close()
})

test('async mode is drawn as a star around the coordinator, with its reason', async () => {
  server.first = snapshotAt(250)
  const { page, complaints } = await open()
  assert.equal(await page.locator('.ring-picture .spoke').count(), 4)
  assert.match(await page.innerText('.travel'), /3 reduces in a row were aborted/)
  assert.deepEqual(complaints, [])
  await page.close()
})

test('one click makes a scale logarithmic, and the address carries the view to another browser', async () => {
  const { page, complaints } = await open()
  await page.getByRole('group', { name: 'Scales of Training loss' }).getByRole('button', { name: 'log y' }).click()
  await page.getByRole('group', { name: 'Horizontal axis' }).getByRole('button', { name: 'time' }).click()
  const { search } = new URL(page.url())
  assert.deepEqual(Object.fromEntries(new URLSearchParams(search)), { x: 'time', loss: 'log-y' })
  const other = await open(search)
  assert.equal(await other.page.getByRole('button', { name: 'log y', pressed: true }).count(), 1)
  assert.equal(await other.page.getByRole('button', { name: 'time', pressed: true }).count(), 1)
  assert.deepEqual([...complaints, ...other.complaints], [])
  await page.close()
  await other.page.close()
})

test('a step without a finite loss is marked, and the curve goes on around it', async () => {
  server.first = {
    ...snapshotAt(330),
    steps: Array.from({ length: 330 }, (_, i) => ({ ...stepPoint(i + 1), ...(i === 99 ? { loss: NaN } : {}) })),
  } // JSON makes it null
  const { page, complaints } = await open('?loss=log-y')
  assert.match(await page.innerText('.caveat'), /^1 step without a finite value[^]*axis\.$/)
  const plot = page.locator('section[aria-label="Training loss"] .plot')
  await plot.focus()
  await page.keyboard.press('Home')
  assert.equal(await newestStep(page), 'step 1')
  assert.deepEqual(complaints, [])
  await page.close()
})

/** A job of values, whose steps measure nothing beside their loss. */
function regression(metrics: readonly Metric[], change: Partial<RunView['job']> = {}) {
  const first = snapshotAt(330)
  const { job } = first.run
  const validations = first.validations.map((point, i) => ({
    ...point,
    accuracy: 0,
    metrics: [
      { name: 'MAE' as const, value: 3 / (i + 1) },
      { name: 'R²' as const, value: 1 - 1 / (i + 2) },
    ],
  }))
  return { ...first, run: { ...first.run, job: { ...job, metrics: [...metrics], ...change } }, validations }
}

test('a job of values shows R² and MAE of its validations, and accuracy nowhere', async () => {
  server.first = regression(['loss', 'MAE', 'R2'])
  const { page, complaints } = await open()
  const last = server.first.type === 'snapshot' ? server.first.validations.length : 0
  const chart = page.locator('section[aria-label="R²"]')
  await chart.getByText(`validated ${(1 - 1 / (last + 1)).toPrecision(4)}`, { exact: true }).waitFor()
  assert.equal(await chart.locator('.key').count(), 1, 'steps do not measure it')
  await chart.getByText('As a table').click()
  assert.deepEqual(await chart.locator('thead th').allInnerTexts(), ['Step', 'Validated', 'Samples', 'Mode'])
  await chart.getByRole('button', { name: 'MAE' }).click()
  await page
    .locator('section[aria-label=MAE]')
    .getByText(`validated ${(3 / last).toPrecision(4)}`)
    .waitFor()
  assert.equal(new URL(page.url()).search, '?show=MAE')
  assert.doesNotMatch(await page.innerText('body'), /accuracy/i)
  assert.deepEqual(await page.locator('.figures dt').allInnerTexts(), [
    'Progress',
    'Speed',
    'Loss',
    'Validation R²',
    'Validation MAE',
    'Members',
  ])
  assert.deepEqual(complaints, [])
  await page.close()
})

test('the chart begins with the metric that ends the job, and is not there where loss alone is measured', async () => {
  server.first = regression(['loss', 'MAE', 'R2'], { stop: { metric: 'MAE', target: 0.1 } })
  const judged = await open()
  await judged.page.locator('section[aria-label=MAE]').waitFor()
  await judged.page.close()
  server.first = regression(['loss'])
  const { page } = await open()
  await page.locator('section[aria-label="Training loss"]').waitFor()
  assert.equal(await page.locator('section.curve').count(), 1)
  await page.close()
})

test('before the first validation the chart says so, by the name of its metric', async () => {
  server.first = { ...regression(['loss', 'accuracy', 'F1']), validations: [] }
  const { page, complaints } = await open()
  assert.match(await page.innerText('section[aria-label=F1] .readout'), /No version is validated yet/)
  await page.getByRole('button', { name: 'Accuracy' }).click()
  await page.locator('section[aria-label=Accuracy]').getByText('validated not yet').waitFor()
  assert.deepEqual(complaints, [])
  await page.close()
})

test('the table behind a chart has its numbers', async () => {
  const { page } = await open()
  const curve = page.locator('section[aria-label=Accuracy]')
  await curve.getByText('As a table').click()
  await curve.locator('table').waitFor()
  assert.equal(await curve.locator('thead th[scope=col]').count(), 5)
  assert.equal(await curve.locator('tbody th').first().innerText(), '330')
  await page.close()
})

test('without a job the page says so and how to start one, and shows the job when it begins', async () => {
  server.first = { type: 'none', reason: 'No job was submitted.' }
  const { page, complaints } = await open()
  assert.match(await page.innerText('.empty'), /No job was submitted\.[^]*npm start -- --job FILE/)
  server.send(snapshotAt(3))
  await waitForStep(page, 3)
  assert.deepEqual(complaints, [])
  await page.close()
})

test('the forecast stands beside what is measured, and nothing stands there without one', async () => {
  const { page, complaints } = await open()
  const figures = page.locator('.figures')
  await figures.getByText('samples/s; forecast 870', { exact: true }).waitFor()
  assert.match(await figures.locator('.progress small').innerText(), /about .* left \(forecast 3 min 2 s\)$/)
  const travel = page.locator('.travel')
  await travel.getByText('Forecast for 4 members: 870 samples/s, 510 ms computing and 78 ms exchange a step.').waitFor()
  await page.close()
  const { forecast: _, ...run } = runAt(330)
  server.first = { ...snapshotAt(330), run }
  const without = await open()
  await without.page.locator('.figures').getByText('samples/s, all members', { exact: true }).waitFor()
  await without.page.close()
  assert.deepEqual([...complaints, ...without.complaints], [])
})

test('a run before its first step is shown without numbers that are not there', async () => {
  server.first = snapshotAt(0, { members: [], phase: 'waiting', etaSeconds: null, samplesPerSecond: 0 })
  const { page, complaints } = await open()
  const text = await page.innerText('body')
  assert.match(text, /No step is committed yet/)
  assert.doesNotMatch(text, /NaN|undefined|Infinity|not a number/)
  assert.deepEqual(complaints, [])
  await page.close()
})

test('paused updates hold the picture still, and go on where the run is', async () => {
  const { page } = await open()
  await page.getByRole('button', { name: 'Pause updates' }).click()
  server.send(updateTo(330, 340))
  await page.waitForTimeout(300)
  assert.equal(await newestStep(page), 'step 330')
  await page.getByRole('button', { name: 'Resume updates' }).click()
  await waitForStep(page, 340)
  await page.close()
})

test('hostile names, reasons and events are shown as text', async () => {
  const run = runAt(330)
  const change = {
    job: { ...run.job, name: HOSTILE, owner: HOSTILE, model: HOSTILE, dataset: HOSTILE },
    reason: HOSTILE,
    modeReason: HOSTILE,
    members: run.members.map((member) => ({ ...member, name: HOSTILE, activity: HOSTILE })),
    departed: run.departed.map((gone) => ({ ...gone, name: HOSTILE, reason: HOSTILE })),
    refusals: { [HOSTILE]: 1 },
  }
  server.first = { ...snapshotAt(330, change), events: [{ at: run.startedAt, kind: 'member', text: HOSTILE }] }
  const { page, complaints } = await open()
  assert.equal(await page.locator('tbody th', { hasText: HOSTILE }).count(), 5)
  assert.equal(await page.locator('img').count(), 0)
  assert.equal(await page.evaluate(() => 'hacked' in globalThis), false)
  assert.deepEqual(complaints, [])
  await page.close()
})
