// Lists that grow, page by page, from a real server.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  allPages,
  type InviteView,
  type JobList,
  pathTo,
  ROUTES,
  type RunEvent,
  type TokenView,
} from '@starling-grid/protocol'
import { OWNER, smallJob, startCoordinator, submit, volunteer } from './fixture.ts'

interface Listed {
  readonly jobs: JobList['jobs']
  readonly damaged?: JobList['damaged']
  readonly events: readonly RunEvent[]
  readonly tokens: readonly TokenView[]
  readonly invites: readonly InviteView[]
  readonly next: string | null
}

const ask = (url: string, path: string): Promise<Response> => fetch(url + path, { headers: OWNER })

async function page(url: string, path: string): Promise<Listed> {
  return (await (await ask(url, path)).json()) as Listed
}

const idsOf = ({ jobs }: Listed): string[] => jobs.map(({ job }) => job.id)

test('jobs come page by page, the oldest first, and a cursor outlives the job that it was made of', async () => {
  const { url } = await startCoordinator()
  const ids: string[] = []
  for (let i = 0; i < 5; i++) ids.push((await submit(url, smallJob())).id)
  const whole = await page(url, ROUTES.jobs)
  assert.deepEqual([idsOf(whole), whole.next, whole.damaged], [ids, null, []])
  const first = await page(url, `${ROUTES.jobs}?limit=2`)
  assert.deepEqual([idsOf(first), first.damaged], [ids.slice(0, 2), []])
  await fetch(url + pathTo(ROUTES.job, { id: ids[1] ?? '' }), { method: 'DELETE', headers: OWNER })
  const second = await page(url, `${ROUTES.jobs}?limit=2&after=${first.next}`)
  assert.deepEqual([idsOf(second), second.damaged], [ids.slice(2, 4), undefined])
  const last = await page(url, `${ROUTES.jobs}?limit=2&after=${second.next}`)
  assert.deepEqual([idsOf(last), last.next], [ids.slice(4), null])
  const full = await page(url, `${ROUTES.jobs}?limit=4`)
  assert.deepEqual([idsOf(full).length, full.next], [4, null], 'a full page that is the last one says so')
})

test('events come page by page, from any moment on', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  await volunteer(url).heard('finished')
  const path = pathTo(ROUTES.events, { id })
  const { events, next } = await page(url, path)
  assert.ok(events.length > 3)
  assert.equal(next, null)
  const read: RunEvent[] = []
  for (let after = ''; ;) {
    const some = await page(url, `${path}?limit=2${after}`)
    assert.ok(some.events.length > 0 && some.events.length <= 2)
    read.push(...some.events)
    if (some.next === null) break
    after = `&after=${some.next}`
  }
  assert.deepEqual(read, events)
  const since = Math.ceil(events[2]?.at ?? 0)
  const later = events.filter(({ at }) => at >= since)
  assert.deepEqual((await page(url, `${path}?since=${since}&limit=1`)).events, later.slice(0, 1))
})

test('tokens and invites come page by page, whatever the limit', async () => {
  const { url } = await startCoordinator()
  const asked = { method: 'POST', headers: { ...OWNER, 'content-type': 'application/json' } }
  for (let i = 0; i < 3; i++) {
    await fetch(url + ROUTES.tokens, { ...asked, body: JSON.stringify({ scopes: ['jobs:read'] }) })
    await fetch(url + ROUTES.invites, { ...asked, body: JSON.stringify({ uses: i + 1 }) })
  }
  const readAll = async (limit: number): Promise<readonly string[]> => {
    const paths = [ROUTES.tokens, ROUTES.invites]
    const pages = paths.map((path) => allPages(({ after }) => page(url, `${path}?limit=${limit}${cursor(after)}`)))
    const found = (await Promise.all(pages)).flat()
    return found.flatMap(({ tokens = [], invites = [] }) => [...tokens, ...invites].map(({ id }) => id))
  }
  const all = await readAll(500)
  assert.equal(new Set(all).size, 6)
  assert.deepEqual(await readAll(1), all)
  assert.deepEqual(await readAll(2), all)
})

const cursor = (after: string | undefined): string => (after === undefined ? '' : `&after=${after}`)

test('a page that cannot be is refused, and a list without an end is given up', async () => {
  const { url } = await startCoordinator()
  for (const query of ['limit=0', 'limit=501', 'limit=x', 'after=', 'after=x', 'after=5', 'after=1-A', 'aftr=1-a'])
    for (const path of [ROUTES.jobs, ROUTES.tokens, ROUTES.invites])
      assert.deepEqual([path, query, (await ask(url, `${path}?${query}`)).status], [path, query, 400])
  await assert.rejects(
    allPages(async () => ({ next: '1-a' })),
    { code: 'message-too-large' },
  )
})
