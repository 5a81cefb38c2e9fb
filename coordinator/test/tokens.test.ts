// Tokens of owners: scoped, each with its own jobs, good until they expire or are revoked; a real server for each.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { pathTo, ROUTES, type TokenScope, type TokenView } from '@starling-grid/protocol'
import { type ApiRoute, HTTP_API } from '@starling-grid/protocol/http-api'
import { WebSocket } from 'ws'
import { processClock } from '../src/clock.ts'
import { OWNER, smallJob, startCoordinator, submit, temporaryFolder, TOKEN, until, volunteer } from './fixture.ts'

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

interface Made {
  readonly token: string
  readonly view: TokenView
}

async function create(url: string, asked: object, token = TOKEN): Promise<Made & { readonly status: number }> {
  const response = await fetch(url + ROUTES.tokens, {
    method: 'POST',
    headers: { ...bearer(token), 'content-type': 'application/json' },
    body: JSON.stringify(asked),
  })
  return { status: response.status, ...((await response.json()) as Made) }
}

const scoped = (url: string, scopes: readonly TokenScope[]) => create(url, { scopes })

async function revoke(url: string, id: string, token = TOKEN): Promise<number> {
  return (await fetch(url + pathTo(ROUTES.token, { id }), { method: 'DELETE', headers: bearer(token) })).status
}

async function list(url: string): Promise<readonly TokenView[]> {
  return ((await (await fetch(url + ROUTES.tokens, { headers: OWNER })).json()) as { tokens: TokenView[] }).tokens
}

const looks = async (url: string, token: string, path: string = ROUTES.tokens): Promise<number> =>
  (await fetch(url + path, { headers: bearer(token) })).status

test('a token is told once, kept as a hash, survives a restart, and shows when it was used', async () => {
  const dataDir = await temporaryFolder()
  const first = await startCoordinator({ dataDir })
  const { token, view } = await create(first.url, { scopes: ['admin'], name: 'CI' })
  assert.deepEqual([view.name, view.scopes, view.expiresAt, view.lastUsedAt], ['CI', ['admin'], null, null])
  assert.equal(await looks(first.url, token), 200)
  const [listed] = await list(first.url)
  assert.equal(typeof listed?.lastUsedAt, 'number')
  assert.equal(JSON.stringify(listed).includes(token), false)
  await first.stop()
  for (const file of ['state.db', 'state.db-wal']) {
    const bytes = await readFile(join(dataDir, file), 'latin1').catch(() => '')
    assert.equal(bytes.includes(token.slice(18)), false, `the secret is not in ${file}`)
  }
  const again = await startCoordinator({ dataDir })
  assert.equal(await looks(again.url, token), 200)
})

test('a revoked token is good for nothing at once, also after a restart, and ends what its holder sees', async () => {
  const dataDir = await temporaryFolder()
  const first = await startCoordinator({ dataDir })
  const { token, view } = await scoped(first.url, ['admin'])
  const watching = new WebSocket(first.url.replace(/^http/, 'ws') + ROUTES.watch)
  await once(watching, 'message')
  watching.send(JSON.stringify({ type: 'owner', token }))
  await submit(first.url, smallJob())
  for (let detail = ''; detail !== 'whole';) {
    const [data] = (await once(watching, 'message')) as [Buffer]
    detail = (JSON.parse(String(data)) as { run?: { detail: string } }).run?.detail ?? ''
  }
  const closed = once(watching, 'close')
  assert.equal(await revoke(first.url, view.id), 200)
  assert.deepEqual(((await closed) as [number, Buffer]).map(String), ['1008', 'token-required'])
  assert.equal(await looks(first.url, token), 401)
  assert.equal(await revoke(first.url, view.id), 404, 'a second time there is no such token')
  await first.stop()
  const again = await startCoordinator({ dataDir })
  assert.deepEqual([await looks(again.url, token), await list(again.url)], [401, []])
})

test('a token that expires is refused from that moment on, and what its holder watches ends', async () => {
  let ahead = 0
  const clock = { ...processClock, wallTime: () => processClock.wallTime() + ahead }
  const { url } = await startCoordinator({ clock })
  assert.equal((await create(url, { scopes: ['admin'], expiresAt: clock.wallTime() - 1 })).status, 422)
  const { token } = await create(url, { scopes: ['admin'], expiresAt: clock.wallTime() + 3_600_000 })
  assert.equal(await looks(url, token), 200)
  await submit(url, smallJob())
  const socket = new WebSocket(url.replace(/^http/, 'ws') + ROUTES.watch)
  await once(socket, 'message')
  socket.send(JSON.stringify({ type: 'owner', token }))
  await once(socket, 'message')
  ahead = 3_600_000
  assert.equal(await looks(url, token), 401)
  await once(socket, 'close')
})

test('threat 6: each route asks for the scope that its row names', async () => {
  const { url } = await startCoordinator()
  const tokens = {
    'jobs:read': (await scoped(url, ['jobs:read'])).token,
    'jobs:write': (await scoped(url, ['jobs:write'])).token,
    admin: (await scoped(url, ['admin'])).token,
  }
  const ORDER = ['jobs:read', 'jobs:write', 'admin'] as const
  for (const route of Object.values(HTTP_API) as ApiRoute[]) {
    const needed = ORDER.indexOf(route.caller as TokenScope)
    if (needed < 0) continue
    for (const scope of ORDER) {
      const response = await fetch(url + route.path.replaceAll(/:\w+/g, 'nothing'), {
        method: route.method,
        headers: bearer(tokens[scope]),
      })
      await response.arrayBuffer()
      const isRefused = response.status === 403
      assert.equal(isRefused, ORDER.indexOf(scope) < needed, `${scope} at ${route.method} ${route.path}`)
    }
  }
  assert.equal(
    (await create(url, { scopes: ['admin'] }, tokens['jobs:write'])).status,
    403,
    'none makes itself an admin',
  )
})

test('threat 48: nothing of a job is shown to the token of another, on any route, nor changed by it', async () => {
  const { url } = await startCoordinator()
  const [mine, other] = [await scoped(url, ['jobs:write']), await scoped(url, ['jobs:write'])]
  const { id } = await submit(
    url,
    smallJob({ name: 'Secret of one', stop: { epochs: 1 }, volunteers: { min: 1 } }),
    mine.token,
  )
  const member = volunteer(url, { name: 'member' })
  const run = await until(url, 'its end', (view) => view.phase === 'finished' && view.checkpoint !== null)
  const shard = member.terms?.dataset.train[0]?.sha256 ?? assert.fail()
  const listed = async (token: string) =>
    (await (await fetch(url + ROUTES.jobs, { headers: bearer(token) })).text()).includes('Secret of one')
  assert.deepEqual([await listed(mine.token), await listed(other.token), await listed(TOKEN)], [true, false, true])
  const asked: string[] = []
  const routes = Object.values(HTTP_API) as ApiRoute[]
  const isLast = ({ method }: ApiRoute): number => Number(method === 'DELETE') // nothing is there behind it
  for (const route of routes.toSorted((a, b) => isLast(a) - isLast(b))) {
    if (route.path !== ROUTES.shard && !route.path.startsWith(ROUTES.job)) continue
    const told = async (job: string, name: string, token: string) => {
      const path = route.path.replace(':id', job).replace(':v', String(run.checkpoint?.v)).replace(':sha256', name)
      const response = await fetch(url + path, { method: route.method, headers: bearer(token) })
      return [response.status, route.answer === 'application/octet-stream' && response.ok ? '' : await response.text()]
    }
    assert.deepEqual(
      await told(id, shard, other.token),
      await told('nothing-000000', '0'.repeat(64), other.token),
      `${route.method} ${route.path}`,
    )
    assert.ok(Number((await told(id, shard, mine.token))[0]) < 400, `its own: ${route.method} ${route.path}`)
    asked.push(route.path)
  }
  assert.ok(asked.length > 8, asked.join())
})

test('the jobs of a token stay its own over a restart, and an admin sees them when it was revoked', async () => {
  const dataDir = await temporaryFolder()
  const first = await startCoordinator({ dataDir })
  const [mine, other] = [await scoped(first.url, ['jobs:write']), await scoped(first.url, ['jobs:write'])]
  const { id } = await submit(first.url, smallJob(), mine.token)
  await first.stop()
  const { url } = await startCoordinator({ dataDir })
  const path = pathTo(ROUTES.job, { id })
  assert.deepEqual([await looks(url, mine.token, path), await looks(url, other.token, path)], [200, 404])
  assert.equal(await revoke(url, mine.view.id), 200)
  assert.deepEqual([await looks(url, mine.token, path), await looks(url, TOKEN, path)], [401, 200])
})

test('hostile tokens are refused: another secret, another id, a hash, an invite, none', async () => {
  const { url } = await startCoordinator()
  const { token, view } = await scoped(url, ['admin'])
  const [id = '', secret = ''] = token.split('.')
  const bent = [
    `${id}.${'0'.repeat(64)}`,
    `t${'0'.repeat(16)}.${secret}`,
    `${id.replace('t', 'i')}.${secret}`,
    secret,
    id,
    view.id,
    '__proto__',
  ]
  for (const one of bent) assert.equal(await looks(url, one), 401, one)
  for (const asked of [{}, { scopes: [] }, { scopes: ['root'] }, { scopes: ['admin'], more: 1 }])
    assert.equal((await create(url, asked)).status, 400, JSON.stringify(asked))
})
