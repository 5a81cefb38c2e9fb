// The dashboard with more members and steps than it draws one by one.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { builtPages, launchBrowser, openPage, overflow } from './browser.ts'
import { runAt, snapshotAt, stepPoint, updateTo } from './fixture-run.ts'
import { startFixtureServer } from './fixture-server.ts'

test('five hundred members and ten thousand steps neither scroll sideways nor stall', async (context) => {
  const [member] = runAt(330).members
  assert.ok(member !== undefined)
  const members = Array.from({ length: 500 }, (_, i) => ({
    ...member,
    id: String(i).padStart(32, '0') as typeof member.id,
    name: `volunteer ${i}`,
    rank: i,
  }))
  const change = { members, memberCount: 2000 } // the coordinator names some of them
  const steps = Array.from({ length: 10_000 }, (_, i) => stepPoint(i + 1))
  const server = await startFixtureServer(await builtPages(), { ...snapshotAt(330, change), steps })
  context.after(() => server.stop())
  const browser = await launchBrowser()
  context.after(() => browser.close())
  const { page, complaints } = await openPage(browser)
  await page.goto(`${server.url}/dashboard`)
  const table = page.getByRole('region', { name: 'Members', exact: true })
  await table.getByText('2,000 members', { exact: true }).waitFor()
  await table.getByText('and 1,500 more', { exact: true }).waitFor()
  for (const width of [1440, 390]) {
    await page.setViewportSize({ width, height: 844 })
    assert.equal(await overflow(page), 0)
  }
  server.send(updateTo(10_000, 10_001, change))
  await page.getByText('step 10,001').first().waitFor()
  assert.deepEqual(complaints, [])
})
