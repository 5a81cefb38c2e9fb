// The committed chain page by page.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { allRecords, pathTo, type RecordsPage, ROUTES } from '@starling-grid/protocol'
import { OWNER, recordsOf, smallJob, startCoordinator, submit, volunteer } from './fixture.ts'

test('a chain is read page by page, each of a bounded length, and a page that cannot be is refused', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  await volunteer(url).heard('finished')
  const ask = (query: string): Promise<Response> =>
    fetch(`${url}${pathTo(ROUTES.records, { id })}?${query}`, { headers: OWNER })
  const page = async (query: string): Promise<RecordsPage> => (await (await ask(query)).json()) as RecordsPage
  const chain = await recordsOf(url, id)
  assert.deepEqual(
    chain.map(({ v }) => v),
    [1, 2, 3, 4, 5, 6, 7, 8, 9],
  )
  assert.deepEqual(await page(''), { records: chain, next: null, rewinds: 0 })
  assert.deepEqual(await page('limit=4'), { records: chain.slice(0, 4), next: 5, rewinds: 0 })
  assert.deepEqual(await page('from=5&limit=4'), { records: chain.slice(4, 8), next: 9, rewinds: 0 })
  assert.deepEqual(await page('from=9&limit=4'), { records: chain.slice(8), next: null, rewinds: 0 })
  assert.deepEqual(await page('from=10'), { records: [], next: null, rewinds: 0 })
  for (const query of ['from=0', 'from=-1', 'from=1e3', 'limit=501', 'limit=x', 'from=99999999999999999'])
    assert.deepEqual([query, (await ask(query)).status], [query, 400])
})

test('pages from before and after a rewind are never put together', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  await volunteer(url).heard('finished')
  const chain = await recordsOf(url, id)
  const asked: string[] = []
  const answers = [
    { records: chain.slice(0, 4), next: 5, rewinds: 0 },
    { records: chain.slice(4, 5), next: null, rewinds: 1 },
    { records: chain.slice(0, 3), next: 4, rewinds: 1 },
    { records: chain.slice(4, 5), next: null, rewinds: 1 },
    { records: chain.slice(0, 5), next: null, rewinds: 1 },
  ]
  const records = await allRecords(id, async (path) => {
    asked.push(path.replace(/.*from=(\d+).*/, '$1'))
    return answers.shift()
  })
  assert.deepEqual([records, asked], [chain.slice(0, 5), ['1', '5', '1', '4', '1']])
})
