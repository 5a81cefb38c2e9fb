// A visitor's browser writes text with the versions of a job that trains meanwhile, on the visitor's own device: what
// it writes is what `starling predict` writes with the same version.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Grid, textJob } from '@starling-grid/cli'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import type { JobSpec } from '@starling-grid/protocol'
import { publishedModel } from '@starling-grid/volunteer/testing'
import type { Browser, Page } from 'playwright-core'
import { QUICK } from './small-job.ts'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const TOKENS = 12
const ALPHABET = 'abcdefghijklmnop'
/** Steps that a test does not wait for: the job trains until the grid stops. */
const ENDLESS = { steps: 100_000 } as const
const TIMING = { ...QUICK, checkpointSteps: 4 }
const KEEP = { last: 20 } as const

const run = promisify(execFile)
const folder = await mkdtemp(join(tmpdir(), 'starling-write-'))
let browser: Browser
let webRoot: string

before(async () => {
  webRoot = await ensureWebPage(() => undefined)
  browser = await launchBrowser()
})
after(async () => {
  await browser.close()
  await rm(folder, { recursive: true, force: true })
})

async function starling(words: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await run(process.execPath, [STARLING, ...words], {
    cwd: folder,
    env: { ...process.env, ...env },
  })
  return stdout
}

/** A published model in small, and conversations in its tokens. */
async function importedChat(): Promise<string> {
  const [published, data] = [join(folder, 'published'), join(folder, 'data')]
  await mkdir(published)
  for (const [name, content] of publishedModel()) await writeFile(join(published, name), content)
  const rows = Array.from({ length: 40 }, (_, i) => ({
    messages: [
      { role: 'user', content: `say ${i % 10}` },
      { role: 'assistant', content: 'aaaa' },
    ],
  }))
  await writeFile(join(folder, 'chats.jsonl'), rows.map((row) => JSON.stringify(row)).join('\n'))
  await starling(['model', 'import', 'small', published, '--store', 'int8', '--data-dir', data])
  const words = ['chats', 'chats.jsonl', '--model', 'small', '--context', '64', '--data-dir', data]
  await starling(['dataset', 'import', ...words])
  return data
}

const chatJob = (isPublic: boolean): JobSpec => ({
  name: 'Answers in our words',
  owner: 'Starling',
  purpose: 'Tunes adapters beside a small published model.',
  model: { base: 'small', context: 64, lora: { rank: 4, alpha: 8 } },
  dataset: { name: 'chats' },
  optimizer: { type: 'adamw', lr: 0.01 },
  blockSamples: 1,
  batchBlocks: 2,
  stop: ENDLESS,
  evaluate: { everyEpochs: 1000 },
  seed: 1,
  mode: 'ring',
  keep: KEEP,
  public: isPublic,
})

interface WritingPage {
  readonly page: Page
  /** console errors, uncaught errors, refusals by the CSP */
  readonly problems: string[]
  /** paths that were asked for, and whether with a token */
  readonly asked: { readonly path: string; readonly token: boolean }[]
}

async function open(url: string): Promise<WritingPage> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } })
  const [problems, asked]: [string[], WritingPage['asked']] = [[], []]
  page.on('console', (message) => message.type() === 'error' && problems.push(message.text()))
  page.on('pageerror', (error) => problems.push(error.message))
  page.on('request', (request) =>
    asked.push({ path: new URL(request.url()).pathname, token: 'authorization' in request.headers() }),
  )
  await page.goto(url)
  return { page, problems, asked }
}

const panel = (page: Page) => page.getByRole('region', { name: 'Try the model' })

/** Loads the newest version, and says which. */
async function load(page: Page): Promise<number> {
  await panel(page)
    .getByRole('button', { name: /^Load version/ })
    .click({ timeout: 240_000 })
  return versionOf(page)
}

async function versionOf(page: Page): Promise<number> {
  const text = await panel(page)
    .getByText(/Version \S+ writes$/)
    .innerText({ timeout: 240_000 })
  return Number(text.replaceAll(/\D/g, ''))
}

/** What the page writes, greedily. */
async function write(page: Page, prompt: string, { tokens = TOKENS } = {}): Promise<string> {
  const fields = panel(page).locator('details')
  if (!(await fields.evaluate((details) => (details as { open?: boolean }).open)))
    await fields.locator('summary').click()
  await page.getByLabel('Temperature').fill('0')
  await page.getByLabel('Tokens').fill(String(tokens))
  await panel(page).locator('textarea').fill(prompt)
  await panel(page)
    .getByRole('button', { name: /^(Send|Go on)$/ })
    .click()
  await panel(page)
    .locator('.turns li:last-child .measure')
    .getByText(/tokens?.*;/)
    .waitFor({ timeout: 240_000 })
  return panel(page).locator('.turns li:last-child .answer').innerText()
}

/** In the page, as soon as Stop is there: a fast device writes everything while another process asks for the button. */
function goOnAndStop(section: HTMLElement): Promise<void> {
  section.querySelector<HTMLButtonElement>('button[type="submit"]')?.click()
  return new Promise((resolve) => {
    const looking = setInterval(() => {
      const stop = [...section.querySelectorAll('button')].find(({ textContent }) => textContent === 'Stop')
      if (stop === undefined) return
      clearInterval(looking)
      stop.click()
      resolve()
    }, 1)
  })
}

/** The same of the command. */
async function predicted(grid: Grid, id: string, words: readonly string[]): Promise<string> {
  const line = ['predict', '--job', id, ...words, '--tokens', String(TOKENS), '--temperature', '0', '--json']
  const out = await starling([...line, '--executor', 'reference', '--url', grid.url], { STARLING_TOKEN: grid.token })
  return (JSON.parse(out) as { text: string }).text
}

test(
  'while adapters are tuned, a visitor talks to a version; it answers as `predict` does, and the base comes once',
  { timeout: 900_000 },
  async () => {
    const data = await importedChat()
    const grid = await Grid.start({ dataDir: data, timing: TIMING, webRoot })
    try {
      const id = await grid.submit(chatJob(true))
      grid.addVolunteer({ executor: 'reference' })
      const { page, problems, asked } = await open(`${grid.url}/dashboard?job=${id}&executor=wasm`)
      const version = await load(page)
      assert.ok(version >= 1)
      const answer = await write(page, 'say 3')
      assert.equal(answer, await predicted(grid, id, ['say 3', '--chat', '--version', String(version)]))
      assert.equal((await grid.watch.waitFor('the run', ({ run }) => run)).finishedAt, null, 'it trains meanwhile')

      await panel(page)
        .getByRole('button', { name: /^Take the newest/ })
        .click({ timeout: 240_000 })
      await panel(page)
        .getByText(`Version ${version} writes`, { exact: true })
        .waitFor({ state: 'detached', timeout: 240_000 })
      const newer = await versionOf(page)
      assert.ok(newer > version, `${newer} after ${version}`)
      await panel(page).getByRole('button', { name: 'New conversation' }).click()
      const later = await write(page, 'say 7')
      assert.equal(later, await predicted(grid, id, ['say 7', '--chat', '--version', String(newer)]))

      const shards = asked.filter(({ path }) => path.includes('/shards/')).length
      assert.ok(shards > 0, 'the base was fetched')
      assert.equal(
        asked.some(({ token }) => token),
        false,
        'a public job asks for no token',
      )
      await page.reload()
      await load(page)
      assert.equal(asked.filter(({ path }) => path.includes('/shards/')).length, shards, 'the base was kept')
      assert.deepEqual(problems, [])
      await page.close()
    } finally {
      await grid.stop()
    }
  },
)

for (const executor of ['wasm', 'webgpu'] as const)
  test(
    `while a small GPT learns characters, a page goes on with a text on ${executor}`,
    { timeout: 900_000 },
    async () => {
      const path = join(folder, `alphabet-${executor}.txt`)
      await writeFile(path, ALPHABET.repeat(100))
      const grid = await Grid.start({ timing: TIMING, webRoot })
      try {
        const optimizer = { type: 'adamw', lr: 0.01 } as const
        const job = textJob({ path, vocab: ALPHABET.length, stop: ENDLESS, seed: 1, minVolunteers: 1, optimizer })
        const id = await grid.submit({ ...job, keep: KEEP })
        grid.addVolunteer({ executor: 'reference' })

        const stranger = await open(`${grid.url}/dashboard`)
        await panel(stranger.page).getByText('is for its owner').waitFor({ timeout: 60_000 })
        assert.equal(await panel(stranger.page).getByRole('button').count(), 0)
        await stranger.page.close()

        const { page, problems } = await open(
          `${grid.url}/dashboard?job=${id}&executor=${executor}#token=${grid.token}`,
        )
        const version = await load(page)
        const text = await write(page, 'abcd')
        assert.equal(text, await predicted(grid, id, ['abcd', '--version', String(version)]))

        await panel(page).locator('textarea').fill('xyz!')
        await panel(page).getByRole('button', { name: 'Go on' }).click()
        await panel(page)
          .getByRole('alert')
          .getByText(/expected characters of/)
          .waitFor({ timeout: 60_000 })

        await page.getByLabel('Tokens').fill('4096')
        await panel(page).locator('textarea').fill('abcd')
        await panel(page).evaluate(goOnAndStop)
        await panel(page)
          .getByText(/; stopped$/)
          .waitFor({ timeout: 60_000 })
        assert.deepEqual(problems, [])
        await page.close()
      } finally {
        await grid.stop()
      }
    },
  )

test(
  'a tab that may not use enough memory says so, and fetches no more than a shard of the base',
  { timeout: 900_000 },
  async () => {
    const data = join(folder, 'data')
    const grid = await Grid.start({ dataDir: data, timing: TIMING, webRoot })
    try {
      const id = await grid.submit({ ...chatJob(true), seed: 2 })
      grid.addVolunteer({ executor: 'reference', job: id })
      const { page, asked } = await open(grid.url)
      // as the form of Limits keeps it; too little for any storage of the base
      await page.evaluate(() => localStorage.setItem('starling-limits', JSON.stringify({ memoryBytes: 100_000 })))
      await page.goto(`${grid.url}/dashboard?job=${id}&executor=wasm`)
      await panel(page)
        .getByRole('button', { name: /^Load version/ })
        .click({ timeout: 240_000 })
      const alert = panel(page).getByRole('alert')
      await alert.waitFor({ timeout: 240_000 })
      assert.equal(await alert.getAttribute('data-reason'), 'own-limit', await alert.innerText())
      const fetched = asked.filter(({ path }) => path.includes('/shards/')).length
      assert.ok(fetched <= 2, `the list of its shards, and the first, which says how they are stored; got ${fetched}`)
      await page.close()
    } finally {
      await grid.stop()
    }
  },
)
