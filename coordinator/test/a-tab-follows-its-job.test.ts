// A tab lends its GPU to a job whose coordinator is killed. It opens the page of the other one by itself, and lends on.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import type { RunView } from '@starling-grid/protocol'
import { endsWhole, JOB, skip, stopAll, TOKEN, two } from './two-coordinators.ts'

/** More than two members make before a busy test sees their ring, and has killed its coordinator. */
const STEPS = 600

const withTab = ({ phase, members }: RunView): boolean =>
  phase === 'ring' && members.some(({ client, rank }) => client === 'tab' && rank !== null)

test(
  'a tab whose coordinator is killed opens the page of the other one and lends on; the dashboard follows, too',
  { skip, timeout: 300_000 },
  async () => {
    const [first, second] = await two({ webRoot: await ensureWebPage(() => undefined) })
    const browser = await launchBrowser()
    try {
      const job = await first.submit({ ...JOB, stop: { steps: STEPS } })
      first.addVolunteer({ executor: 'reference' })
      const [tab, dashboard] = [await browser.newPage(), await browser.newPage()]
      await tab.goto(`${second.url}/?job=${job}`)
      assert.equal(new URL(tab.url()).origin, first.url, 'it is sent to the coordinator that has the job')
      await dashboard.goto(`${second.url}/dashboard?job=${job}#token=${TOKEN}`)
      assert.equal(new URL(dashboard.url()).origin, first.url)
      await tab.getByLabel('Name that others see').fill('a visitor of the first')
      await tab.locator('button[data-primary]').click()
      await first.watch.waitFor('a ring with the tab', ({ run }) => run !== undefined && withTab(run) && run)
      const before = await first.records(job)
      await first.killCoordinator()
      const { members } = await second.watch.waitFor(
        'a ring with the tab at the other coordinator',
        ({ run }) => run !== undefined && withTab(run) && run,
        120_000,
      )
      assert.ok(members.some(({ name }) => name === 'a visitor of the first'))
      assert.equal(new URL(tab.url()).origin, second.url)
      await dashboard.waitForURL((url) => url.origin === second.url)
      await dashboard.getByText('Members').first().waitFor()
      assert.ok(before.length < STEPS, 'the coordinator died in the middle')
      await endsWhole({ first, second, job }, before, STEPS)
    } finally {
      await browser.close()
      await stopAll(first, second)
    }
  },
)

test('a link of another site begins no lending', { skip, timeout: 120_000 }, async () => {
  const [first, second] = await two({ webRoot: await ensureWebPage(() => undefined) })
  try {
    const open = async (site?: string) => {
      const headers: Record<string, string> = site === undefined ? {} : { 'sec-fetch-site': site }
      const { status, headers: given } = await fetch(`${first.url}/?lend=on`, { headers, redirect: 'manual' })
      return [status, given.get('location')]
    }
    assert.deepEqual(await open('same-site'), [200, null])
    for (const site of ['cross-site', 'none', undefined]) assert.deepEqual(await open(site), [302, '/'])
  } finally {
    await stopAll(first, second)
  }
})
