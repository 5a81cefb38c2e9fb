// Which role gets which answer from which route: generated from the table of routes that the server really has.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { pathTo, ROUTES, type RunView, type WatchMessage } from '@starling-grid/protocol'
import { WebSocket } from 'ws'
import type { BlobStore } from '../src/blobs/blob-store.ts'
import { memoryBlobs } from '../src/blobs/memory.ts'
import { memoryState } from '../src/journal/memory.ts'
import type { CoordinatorOptions } from '../src/net/server.ts'
import type { FakeVolunteer } from './fake-volunteer.ts'
import { OWNER, recordsOf, runOf, smallJob, startCoordinator, submit, TOKEN, until, volunteer } from './fixture.ts'

const ZEROS = '0'.repeat(64)
const ROLES = ['stranger', 'guesser', 'other', 'member', 'owner'] as const
type Role = (typeof ROLES)[number]

/**
 * One row of the matrix: who is let in where. What is let in may still be refused for its content, by another status.
 */
const ALLOWED: Readonly<Record<string, readonly Role[]>> = {
  'GET /healthz': ROLES,
  'GET /readyz': ROLES,
  'GET /metrics': ['owner'], // behind a proxy; on this machine any caller: tested with metrics
  'GET /': ROLES,
  'GET /dashboard': ROLES,
  'GET /api': ROLES,
  'GET /api/v1/openapi.json': ROLES,
  'GET /*': ROLES,
  'GET /signalling/peerjs/id': ROLES, // a random number
  'GET /group-signalling/peerjs/id': ROLES,
  'GET /api/v1/coordinators': ROLES, // addresses; names of private jobs are an admin's
  'POST /api/v1/tokens': ['owner'],
  'GET /api/v1/tokens': ['owner'],
  'DELETE /api/v1/tokens/:id': [], // let in, and there is no such token: tested with tokens
  'POST /api/v1/invites': ['owner'],
  'GET /api/v1/invites': ['owner'],
  'DELETE /api/v1/invites/:id': [], // as with tokens
  'POST /api/v1/groups': ['owner'],
  'PUT /api/v1/groups/:id/ranks': [], // who has the secret of the group: tested with groups
  'GET /api/v1/jobs': ROLES, // filtered; see below
  'POST /api/v1/jobs': ['owner'],
  'POST /api/v1/jobs/:id/stop': ['owner'],
  'POST /api/v1/jobs/:id/pause': ['owner'],
  'POST /api/v1/jobs/:id/resume': ['owner'],
  'DELETE /api/v1/jobs/:id': ['owner'],
  'GET /api/v1/jobs/:id': ['member', 'owner'],
  'GET /api/v1/jobs/:id/spec': ['owner'],
  'GET /api/v1/jobs/:id/events': ['member', 'owner'],
  'GET /api/v1/jobs/:id/records': ['member', 'owner'],
  'GET /api/v1/jobs/:id/export': ['member', 'owner'],
  'GET /api/v1/jobs/:id/checkpoints': ['owner'],
  'GET /api/v1/jobs/:id/checkpoints/:v': ['owner'],
  'GET /api/shards/:sha256': ['other', 'member', 'owner'], // both jobs train on the same digits
  'GET /api/jobs/:id/versions/:versionId': ['member'],
  'PUT /api/jobs/:id/versions/:v/:versionId': ['member'],
  'PUT /api/jobs/:id/sums/:versionId': ['member'],
  'POST /api/jobs/:id/versions/:versionId/rows': ['member'],
  'POST /api/jobs/:id/pushes': ['member'],
  'GET /api/jobs/:id/given-sums/:sum': ['member'],
  'GET /api/variants/:adapterClass': ['other', 'member'],
  'PUT /api/variants/:adapterClass': ['other', 'member'],
  'POST /api/session/leave': ['other', 'member'],
  'GET /api/parameter-server': ['owner'],
}
/**
 * WebSockets whose first message says who asks, and those of two members with a token of their own: tested where they
 * are.
 */
const SOCKETS = ['/api/volunteer', '/api/watch', '/relay', '/signalling/peerjs', '/group-signalling/peerjs']
const REFUSED = new Set([401, 403, 404])

/** A private job A with a checkpoint and a member, then a job B with another member. */
async function twoJobs(options: Partial<CoordinatorOptions> = {}) {
  const coordinator = await startCoordinator(options)
  const { url } = coordinator
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  const member = volunteer(url, { name: 'member of A' })
  const run = await until(url, 'the end of A', (view) => view.phase === 'finished' && view.checkpoint !== null)
  const shard = member.terms?.dataset.train[0]?.sha256 ?? assert.fail()
  member.close()
  await member.closed
  const { id: otherId } = await submit(url, smallJob({ name: 'Other', stop: { epochs: 1000 }, volunteers: { min: 5 } }))
  const other = volunteer(url, { name: 'member of B' })
  await other.heard('welcome', ({ job }) => job?.id === otherId)
  return { ...coordinator, coordinator, url, id, otherId, member, other, shard, run }
}

function headersOf(
  role: Role,
  { member, other }: { readonly member: FakeVolunteer; readonly other: FakeVolunteer },
): Record<string, string> {
  const token = { stranger: undefined, guesser: ZEROS, other: other.session, member: member.session, owner: TOKEN }[
    role
  ]
  return token === undefined ? {} : { authorization: `Bearer ${token}` }
}

test('threat 6: every route of the server lets in exactly the roles that its row names', async () => {
  // Each guess comes from another address: after ten from one it would only wait.
  const grid = await twoJobs({ trustedProxies: ['127.0.0.1', '::1'] })
  let guesses = 0
  const { url, id, shard, run } = grid
  const routes = grid.coordinator.routes.filter(({ method, url: path }) => method !== 'HEAD' && !SOCKETS.includes(path))
  const names = routes.map(({ method, url: path }) => `${method} ${path}`)
  assert.deepEqual(
    new Set(names),
    new Set(Object.keys(ALLOWED).filter((name) => name !== 'GET /*')),
    'the matrix has a row for each route, and no other',
  )
  assert.deepEqual(grid.coordinator.routes.filter(({ url: path }) => SOCKETS.includes(path)).length > 0, true)
  const versionId = run.checkpoint?.id ?? assert.fail()
  // Nothing of the job is there after it is deleted.
  const isLast = ({ method }: (typeof routes)[number]): number => Number(method === 'DELETE')
  for (const { method, url: pattern } of routes.toSorted((a, b) => isLast(a) - isLast(b))) {
    const path = pattern
      .replace(':id', id)
      .replace(':versionId', versionId)
      .replace(':sha256', shard)
      .replace(':v', String(run.checkpoint?.v))
      .replace(':sum', '0')
    for (const role of ROLES) {
      const body = method === 'GET' ? {} : { body: new Uint8Array(4) }
      const response = await fetch(url + path, {
        method,
        ...body,
        headers: {
          'content-type': 'application/octet-stream',
          ...headersOf(role, grid),
          ...(role === 'guesser' ? { 'x-forwarded-for': `192.0.2.${++guesses}` } : {}),
        },
      })
      await response.arrayBuffer()
      const letIn = ALLOWED[`${method} ${pattern}`]?.includes(role) ?? false
      const found = { status: response.status, refused: REFUSED.has(response.status) }
      // Nothing lies at these addresses for this member, and it may ask.
      const empty = pattern.endsWith('/rows') || pattern.endsWith(':sum') || pattern.endsWith(':versionId')
      if (letIn && empty) assert.notEqual(found.status, 401, `${role}: ${method} ${pattern}`)
      else assert.equal(found.refused, !letIn, `${role}: ${method} ${pattern} answers ${response.status}`)
    }
  }
})

test('a shard that is asked for with the token of an earlier session is no shard that is gone', async () => {
  const grid = await twoJobs()
  const answers = await Promise.all(
    (['guesser', 'stranger', 'member'] as const).map((role) =>
      fetch(`${grid.url}/api/shards/${grid.shard}`, { headers: headersOf(role, grid) }),
    ),
  )
  assert.deepEqual(
    answers.map(({ status }) => status),
    [401, 404, 200],
  )
})

test('threat 48: a private job is answered like one that does not exist, and is in no list', async () => {
  const grid = await twoJobs()
  const { url, id, otherId } = grid
  for (const role of ['stranger', 'guesser', 'other'] as const) {
    for (const path of ['', '/records', '/export', '/checkpoints']) {
      const [there, nowhere] = await Promise.all(
        [id, 'nothing-000000'].map(async (job) => {
          const response = await fetch(`${url}/api/jobs/${job}${path}`, { headers: headersOf(role, grid) })
          return [response.status, await response.text()]
        }),
      )
      assert.deepEqual(there, nowhere, `${role} ${path}`)
    }
  }
  const listed = async (role: Role) =>
    (
      (await (await fetch(`${url}${ROUTES.jobs}`, { headers: headersOf(role, grid) })).json()) as { jobs: RunView[] }
    ).jobs.map(({ job }) => job.id)
  assert.deepEqual(await listed('stranger'), [])
  assert.deepEqual(await listed('member'), [id])
  assert.deepEqual(await listed('other'), [otherId])
  assert.deepEqual(await listed('owner'), [id, otherId])
})

test('what belongs to one job is shown with that job only: its members and its refusals', async () => {
  const { url, id, otherId, other } = await twoJobs()
  other.raw({ type: 'nonsense' })
  await other.heard('refused')
  const [first, second] = [await runOf(url, id), await runOf(url, otherId)]
  assert.deepEqual([first.members.map(({ name }) => name), first.refusals], [[], {}])
  assert.deepEqual(
    [second.members.map(({ name }) => name), second.refusals],
    [['member of B'], { 'message-malformed': 1 }],
  )
})

/** The first message that a page gets, and the reason when the socket closes. */
async function firstWord(
  url: string,
  token?: string,
): Promise<{ readonly message: WatchMessage | undefined; readonly socket: WebSocket }> {
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}${ROUTES.watch}`)
  const messages: WatchMessage[] = []
  socket.on('message', (data) => messages.push(JSON.parse(String(data)) as WatchMessage))
  await once(socket, 'message')
  if (token === undefined) return { message: messages[0], socket }
  socket.send(JSON.stringify({ type: 'owner', token }))
  // An update of what strangers see may come in between.
  const isOfOwner = (message: WatchMessage): boolean => message.type === 'snapshot' && message.run.detail === 'whole'
  while (!messages.some(isOfOwner) && socket.readyState === socket.OPEN)
    await Promise.race([once(socket, 'message'), once(socket, 'close')])
  return { message: messages.find(isOfOwner), socket }
}

test('a stranger sees a private job without names, its owner sees all of it', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 }, volunteers: { min: 1 } }))
  const fake = volunteer(url, { name: 'marigold', stepMs: 20 })
  await until(url, 'a step', ({ version }) => version.v > 0)
  const { message, socket } = await firstWord(url)
  assert.ok(message?.type === 'snapshot')
  const { run } = message
  assert.deepEqual(
    [run.detail, run.memberCount, run.members, run.departed, message.events, run.exportPath],
    ['totals', 1, [], [], [], null],
  )
  assert.ok(message.steps.length > 0)
  for (const secret of ['marigold', fake.id, '"fake"', TOKEN])
    assert.equal(JSON.stringify(message).includes(secret), false, secret)
  socket.close()

  const owned = await firstWord(url, TOKEN)
  assert.ok(owned.message?.type === 'snapshot')
  assert.deepEqual(
    [owned.message.run.detail, owned.message.run.members.map(({ name, adapter }) => [name, adapter?.name])],
    ['whole', [['marigold', 'fake']]],
  )
  owned.socket.close()
  assert.deepEqual((await recordsOf(url, id))[0]?.v, 1)

  const open = await startCoordinator()
  await submit(open.url, smallJob({ public: true, stop: { epochs: 1000 }, volunteers: { min: 1 } }))
  volunteer(open.url, { name: 'marigold', stepMs: 20 })
  await until(open.url, 'a step', ({ version }) => version.v > 0)
  const seen = await firstWord(open.url)
  assert.ok(seen.message?.type === 'snapshot')
  assert.deepEqual(
    seen.message.run.members.map(({ name, adapter }) => [name, adapter?.name]),
    [['marigold', 'test']],
    'of an adapter its vendor',
  )
  seen.socket.close()
})

test('threat 58: no terms, view, record or exported model holds an owner token, a session or a path', async () => {
  const { url, id, member } = await twoJobs()
  const texts = await Promise.all(
    ['', '/records', '/export'].map(async (path) =>
      Buffer.from(await (await fetch(`${url}/api/jobs/${id}${path}`, { headers: OWNER })).arrayBuffer()).toString(
        'latin1',
      ),
    ),
  )
  texts.push(JSON.stringify(member.terms), await (await fetch(`${url}${ROUTES.dashboard}`)).text())
  for (const text of texts)
    for (const secret of [TOKEN, member.session, '/tmp/', 'state.db'])
      assert.equal(text.includes(secret), false, secret)
})

test('an exported model is encoded once, HEAD tells its length before, and all readers get equal bytes', async () => {
  const blobs = memoryBlobs()
  const read: string[] = []
  const counted: BlobStore = {
    ...blobs,
    get: (name) => {
      read.push(name)
      return blobs.get(name)
    },
  }
  const { url, id, run } = await twoJobs({ storage: { store: memoryState(), blobs: counted } })
  const path = `${url}${pathTo(ROUTES.export, { id })}`
  const kept = (await (await fetch(`${url}${pathTo(ROUTES.checkpoints, { id })}`, { headers: OWNER })).json()) as {
    checkpoints: { v: number; sha256: string }[]
  }
  const name = kept.checkpoints.find(({ v }) => v === run.checkpoint?.v)?.sha256
  const encodings = (): number => read.filter((one) => one === name).length
  const before = encodings()
  const heads = await Promise.all(Array.from({ length: 40 }, () => fetch(path, { method: 'HEAD', headers: OWNER })))
  assert.deepEqual(new Set(heads.map(({ status }) => status)), new Set([200]))
  assert.equal(encodings(), before, 'HEAD reads no checkpoint')
  const bodies = await Promise.all(
    [1, 2, 3].map(async () => new Uint8Array(await (await fetch(path, { headers: OWNER })).arrayBuffer())),
  )
  assert.equal(encodings(), before + 1, 'three who ask at once wait for one encoding')
  assert.deepEqual(bodies[1], bodies[0])
  const told = new Set(heads.map(({ headers }) => Number(headers.get('content-length'))))
  assert.deepEqual(told, new Set([bodies[0]?.byteLength]), 'its length, before the first encoding')
  const again = await fetch(path, { method: 'HEAD', headers: OWNER })
  assert.equal(Number(again.headers.get('content-length')), bodies[0]?.byteLength)
  const etag = again.headers.get('etag') ?? assert.fail()
  assert.equal((await fetch(path, { headers: { ...OWNER, 'if-none-match': etag } })).status, 304)
  assert.equal((await fetch(path)).status, 401)
  const later = await fetch(path, { headers: OWNER })
  assert.deepEqual(new Uint8Array(await later.arrayBuffer()), bodies[0])
  assert.equal(encodings(), before + 1, 'who asks later gets what is kept')
})

test('threat 5: after ten wrong tokens an address waits, and the right one is not even compared', async () => {
  const { url } = await startCoordinator()
  const guess = async (token: string) =>
    await fetch(`${url}${ROUTES.jobs}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: '{}',
    })
  const statuses: number[] = []
  for (let i = 0; i < 12; i++) statuses.push((await guess(`wrong-token-${i}`)).status)
  assert.deepEqual(statuses.slice(0, 10), Array<number>(10).fill(401))
  assert.ok(statuses.slice(10).includes(429), String(statuses))
  const blocked = await guess(`wrong`)
  let seconds = Number(blocked.headers.get('retry-after'))
  if (blocked.status !== 429) seconds = Number((await guess(TOKEN)).headers.get('retry-after'))
  assert.ok(seconds >= 1)
  assert.equal((await guess(TOKEN)).status, 429)
  let status = 429
  for (const stop = performance.now() + 60_000; status === 429 && performance.now() < stop; await delay(200))
    status = (await guess(TOKEN)).status
  assert.equal(status, 422, 'a while later it is taken again: an empty job is refused for what it is')
})

test('threat 21: a page that says anything but its token, or says it twice, is closed', async () => {
  const { url } = await startCoordinator()
  for (const words of [
    ['hello'],
    [JSON.stringify({ type: 'owner', token: 'wrong' })],
    [JSON.stringify({ type: 'owner', token: TOKEN }), JSON.stringify({ type: 'owner', token: TOKEN })],
    ['x'.repeat(5000)],
  ]) {
    const { socket } = await firstWord(url)
    for (const word of words) socket.send(word)
    const [code] = (await once(socket, 'close')) as [number]
    assert.equal(code, 1008, words.join())
  }
})

test('strangers who take every place of the watch stream from one address leave the owner a seat', async () => {
  const { url } = await startCoordinator()
  await submit(url, smallJob())
  const sockets = Array.from({ length: 90 }, () => new WebSocket(`${url.replace(/^http/, 'ws')}${ROUTES.watch}`))
  const told = await Promise.all(
    sockets.map(async (socket) => {
      socket.on('error', () => undefined)
      const [first] = (await Promise.race([once(socket, 'message'), once(socket, 'close')])) as [Buffer | number]
      return typeof first === 'number' ? 'refused' : 'told'
    }),
  )
  assert.equal(told.filter((word) => word === 'told').length, 64)
  // The seats for who still has to show a token are taken, too, and are free again after seconds.
  const run = await until(url, 'the run, as its owner', () => true)
  assert.equal(run.detail, 'whole')
  for (const socket of sockets) socket.terminate()
})
