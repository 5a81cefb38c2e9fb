// The client's lists: all pages of them, from a server that cuts them small.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { connect } from '../src/index.ts'

test('a list is read to its last page, and says what the first page alone has', async () => {
  const asked: string[] = []
  const invite = (id: string) => ({ id, createdAt: 1, expiresAt: null, uses: null, used: 0, job: null })
  const ids = ['i0000000000000001', 'i0000000000000002', 'i0000000000000003']
  const damaged = [{ id: 'digits-1', code: 'journal-damaged', message: 'cannot be read' }]
  const server = createServer(({ url = '' }, response) => {
    asked.push(url)
    const { pathname, searchParams } = new URL(url, 'http://coordinator')
    const at = Number(searchParams.get('after')?.split('-')[0] ?? 0)
    const next = at < 2 ? `${at + 1}-a` : null
    const page = pathname.endsWith('/invites')
      ? { invites: [invite(ids[at] ?? '')], next }
      : { jobs: [], next, ...(at === 0 ? { damaged } : {}) }
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(page))
  }).listen(0, '127.0.0.1')
  after(() => server.close())
  await once(server, 'listening')
  const { api } = await connect({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, token: 'x' })
  assert.deepEqual(
    (await api.invites()).map(({ id }) => id),
    ids,
  )
  assert.deepEqual(await api.jobs(), { jobs: [], damaged })
  assert.deepEqual(
    asked.map((url) => url.replace(/.*\/(\w+)\?limit=500/, '$1')),
    ['invites', 'invites&after=1-a', 'invites&after=2-a', 'jobs', 'jobs&after=1-a', 'jobs&after=2-a'],
  )
})
