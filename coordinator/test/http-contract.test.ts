// The server serves what the table of routes says: each route, no other, and answers of the table's schemas. They are
// checked against the published document, by a validator that is not ours.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { Validator } from '@seriousme/openapi-schema-validator'
import { type ErrorCode, pathTo, ROUTES } from '@starling-grid/protocol'
import { COMMON_REFUSALS, type ApiRoute, HTTP_API, OCTETS, WIRE_ROUTES } from '@starling-grid/protocol/http-api'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { OWNER, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

const DOCUMENT = JSON.parse(await readFile(new URL('../../docs/openapi.json', import.meta.url), 'utf8')) as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly responses: { readonly Refused: Answer } }
}
interface Answer {
  readonly $ref?: string
  readonly content?: Readonly<Record<string, { readonly schema: object }>>
}
interface Operation {
  readonly responses: Readonly<Record<string, Answer>>
}

type Name = keyof typeof HTTP_API
const ROWS: readonly (readonly [string, ApiRoute])[] = Object.entries(HTTP_API)
/** Pages, and a random number that the PeerJS protocol asks for. */
const NO_INTERFACE = /^(\/|\/dashboard|\/api|\/\*|.*\/peerjs\/id)$/

const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false })
ajv.addSchema(DOCUMENT, 'document')

/** What the document says of an answer; @throws AssertionError when it says nothing of such a one, or another thing */
function requireDescribed(route: ApiRoute, status: number, type: string, body: unknown): void {
  const where = `${route.method} ${route.path} ${status}`
  const path = route.path.replaceAll(/:(\w+)/g, '{$1}')
  const { responses } = DOCUMENT.paths[path]?.[route.method.toLowerCase()] ?? assert.fail(where)
  const named = responses[status] ?? responses['default'] ?? assert.fail(where)
  const { content = {} } = named.$ref === undefined ? named : DOCUMENT.components.responses.Refused
  const described = content[type] ?? assert.fail(`${where} is ${type}, got described as ${Object.keys(content).join()}`)
  if (type === OCTETS) return
  const schema = JSON.parse(JSON.stringify(described.schema).replaceAll('"#/', '"document#/')) as object
  assert.ok(ajv.validate(schema, body), `${where}: ${ajv.errorsText()}`)
  if (status < 400 || type === 'application/json') return
  const { code, status: said } = body as { code: ErrorCode; status: number }
  assert.equal(said, status, where)
  const codes = [...(route.refusals[status] ?? []), ...(COMMON_REFUSALS[status] ?? [])]
  assert.ok(codes.includes(code), `${where} ${code}: the table has ${codes.join()}`)
}

test('the published document is valid OpenAPI 3.1, by the official meta-schema', async () => {
  const validator = new Validator()
  const result = await validator.validate(structuredClone(DOCUMENT))
  assert.deepEqual([result.valid, validator.version], [true, '3.1'], JSON.stringify(result.errors))
})

test('the server serves each route of the table and no other', async () => {
  const { routes, url } = await startCoordinator()
  const sockets = WIRE_ROUTES.filter(({ method }) => method === 'WS').map(({ path }) => path)
  const isSocket = (path: string): boolean => sockets.some((socket) => path === socket || path === `${socket}/peerjs`)
  const served = routes.filter(({ method, url: path }) => method !== 'HEAD' && !NO_INTERFACE.test(path))
  const table = [...ROWS.map(([, row]) => row), ...WIRE_ROUTES].filter(({ method }) => method !== 'WS')
  assert.deepEqual(
    served
      .filter(({ url: path }) => !isSocket(path))
      .map(({ method, url: path }) => `${method} ${path}`)
      .sort(),
    table.map(({ method, path }) => `${method} ${path}`).sort(),
  )
  for (const socket of sockets)
    assert.ok(
      served.some(({ url: path }) => path === socket || path === `${socket}/peerjs`),
      socket,
    )
  assert.deepEqual(await (await fetch(url + ROUTES.openapi)).json(), DOCUMENT)
})

test('answers of every route, taken and refused, are what the document says', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  const member = volunteer(url, { name: 'member' })
  const run = await until(url, 'its end', (view) => view.phase === 'finished' && view.checkpoint !== null)
  const shard = member.terms?.dataset.train[0]?.sha256 ?? assert.fail()
  const seen = new Set<string>()
  const ask = async (name: Name, { path, body, headers = OWNER, query = '' }: Asked = {}): Promise<unknown> => {
    const route: ApiRoute = HTTP_API[name]
    const json = body === undefined ? {} : { 'content-type': 'application/json' }
    const response = await fetch(url + (path ?? route.path) + query, {
      method: route.method,
      headers: { ...headers, ...json },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const [type = ''] = (response.headers.get('content-type') ?? '').split(';')
    const answer: unknown = type === OCTETS ? await response.arrayBuffer() : await response.json()
    requireDescribed(route, response.status, type, answer)
    seen.add(`${name} ${response.status < 400 ? 'taken' : 'refused'}`)
    return answer
  }
  const of = (route: string, parts: Readonly<Record<string, string | number>> = { id }) => ({
    path: pathTo<string>(route, parts),
  })
  const nowhere = { id: 'nothing-000000' }

  await ask('healthz')
  await ask('readyz')
  await ask('openapi')
  await ask('coordinators')
  await ask('jobs')
  await ask('submit', { body: smallJob(), query: '?dry=true' })
  await ask('submit', { body: smallJob() })
  await ask('submit', { body: { ...smallJob(), stop: { epochs: 0 } } })
  await ask('submit', { body: smallJob(), query: '?dri=true' })
  await ask('submit', { body: smallJob(), headers: {} })
  for (const name of [
    'job',
    'spec',
    'events',
    'records',
    'checkpoints',
    'stop',
    'pause',
    'resume',
    'export',
  ] as const) {
    await ask(name, of(HTTP_API[name].path))
    await ask(name, of(HTTP_API[name].path, nowhere))
    await ask(name, { ...of(HTTP_API[name].path), headers: {} })
  }
  await ask('events', { ...of(ROUTES.events), query: '?since=1.5' })
  await ask('records', { ...of(ROUTES.records), query: '?from=0' })
  await ask('checkpoint', of(ROUTES.checkpoint, { id, v: run.checkpoint?.v ?? 0 }))
  await ask('checkpoint', of(ROUTES.checkpoint, { id, v: 999 }))
  const { view } = (await ask('createToken', { body: { scopes: ['jobs:read'], name: 'one' } })) as {
    view: { id: string }
  }
  await ask('createToken', { body: { scopes: [] } })
  await ask('tokens')
  await ask('tokens', { headers: {} })
  await ask('revokeToken', of(ROUTES.token, { id: view.id }))
  await ask('revokeToken', of(ROUTES.token, { id: view.id }))
  const invited = (await ask('createInvite', { body: { uses: 3, job: id } })) as { view: { id: string } }
  await ask('createInvite', { body: { uses: 0 } })
  await ask('createInvite', { body: { job: 'nothing-000000' } })
  await ask('invites')
  await ask('invites', { headers: {} })
  await ask('revokeInvite', of(ROUTES.invite, { id: invited.view.id }))
  await ask('revokeInvite', of(ROUTES.invite, { id: invited.view.id }))
  const group = (await ask('openGroup', { body: { size: 1 } })) as { id: string; secret: string }
  await ask('openGroup', { body: { size: 0 } })
  const secret = { authorization: `Bearer ${group.secret}` }
  const ranks = of(ROUTES.groupRanks, { id: group.id })
  await ask('bringRanks', { ...ranks, headers: secret, body: { members: ['a'.repeat(32)] } })
  await ask('bringRanks', { ...ranks, headers: secret, body: { members: ['b'.repeat(32)] } })
  await ask('bringRanks', { ...ranks, headers: {}, body: { members: ['b'.repeat(32)] } })
  await ask('shard', of(ROUTES.shard, { sha256: shard }))
  await ask('shard', of(ROUTES.shard, { sha256: '0'.repeat(64) }))
  await ask('job', { path: ROUTES.job.replace(':id', '%00') })
  await ask('deleteJob', { ...of(ROUTES.job), headers: {} })
  await ask('deleteJob', of(ROUTES.job))
  await ask('deleteJob', of(ROUTES.job))

  for (const [name, { refusals }] of ROWS) {
    assert.ok(seen.has(`${name} taken`), `${name} was tried`)
    assert.ok(Object.keys(refusals).length === 0 || seen.has(`${name} refused`), `a refusal of ${name} was tried`)
  }
})

interface Asked {
  readonly path?: string
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  readonly query?: string
}

test('a route that another method or a stranger page asks for is refused with a problem document', async () => {
  const { url } = await startCoordinator()
  const answers = [
    await fetch(url + ROUTES.jobs, { method: 'DELETE' }),
    await fetch(`${url}/api/v1/nothing`),
    await fetch(url + ROUTES.jobs, { method: 'POST', headers: { ...OWNER, origin: 'https://evil.test' } }),
  ]
  for (const answer of answers) {
    assert.equal(answer.headers.get('content-type')?.split(';')[0], 'application/problem+json')
    const { code, title, type, status } = (await answer.json()) as Record<string, unknown>
    assert.deepEqual([typeof code, typeof title, status], ['string', 'string', answer.status])
    assert.equal(type, `/api#${String(code)}`)
  }
})

test('what is polled or large has an etag, and a caller that names it gets 304 until it changes', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  const ask = (path: string, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(url + path, { headers: { ...OWNER, ...headers } })
  const paths = [
    ROUTES.openapi,
    ROUTES.jobs,
    `${ROUTES.jobs}?limit=1`,
    pathTo(ROUTES.job, { id }),
    pathTo(ROUTES.events, { id }),
    pathTo(ROUTES.records, { id }),
  ]
  const before = new Map<string, string>()
  for (const path of paths) before.set(path, (await ask(path)).headers.get('etag') ?? assert.fail(path))
  volunteer(url)
  const run = await until(url, 'its end', (view) => view.phase === 'finished' && view.checkpoint !== null)
  for (const path of paths) {
    const etag = before.get(path) ?? ''
    const { status } = await ask(path, { 'if-none-match': etag })
    assert.equal(status, path === ROUTES.openapi ? 304 : 200, `${path} changed with the run`)
  }
  paths.push(
    `${pathTo(ROUTES.records, { id })}?from=4&limit=2`,
    `${pathTo(ROUTES.records, { id })}?from=4&limit=3`,
    pathTo(ROUTES.export, { id }),
    pathTo(ROUTES.checkpoint, { id, v: run.checkpoint?.v ?? 0 }),
  )
  const etags = new Set<string>()
  for (const path of paths) {
    const whole = await ask(path)
    await whole.arrayBuffer()
    const etag = whole.headers.get('etag') ?? assert.fail(path)
    etags.add(etag)
    assert.match(etag, /^"[\w.-]+"$/, 'a strong one')
    assert.equal(whole.headers.get('cache-control'), 'private, no-cache', path)
    for (const known of [etag, `"other", ${etag}`, `W/${etag}`, '*']) {
      const again = await ask(path, { 'if-none-match': known })
      assert.deepEqual([path, known, again.status, await again.text()], [path, known, 304, ''])
      assert.equal(again.headers.get('etag'), etag)
    }
    const other = await ask(path, { 'if-none-match': '"other"' })
    await other.arrayBuffer()
    assert.equal(other.status, 200)
  }
  assert.equal(etags.size, paths.length - 1, 'each page has its own; one job is on both pages of jobs')
  const open = await fetch(url + ROUTES.openapi)
  assert.equal(open.headers.get('cache-control'), 'no-cache', 'no token was needed')
  const hidden = await fetch(url + pathTo(ROUTES.job, { id }), { headers: { 'if-none-match': '*' } })
  assert.equal(hidden.status, 401, 'a stranger learns nothing of what it may not read')
})

test('a caller that is refused for a while is told when to come back', async () => {
  const { url } = await startCoordinator()
  const dry = (): Promise<Response> =>
    fetch(`${url}${ROUTES.jobs}?dry=true`, {
      method: 'POST',
      headers: { ...OWNER, 'content-type': 'application/json' },
      body: JSON.stringify(smallJob()),
    })
  let submitted = await dry()
  while (submitted.status === 200) submitted = await dry()
  assert.equal(submitted.status, 429)
  assert.ok(Number(submitted.headers.get('retry-after')) > 2, 'the limit of a minute, not the least wait')
  const guess = (): Promise<Response> =>
    fetch(url + ROUTES.tokens, { headers: { authorization: 'Bearer wrong-wrong-wrong' } })
  let refused = await guess()
  while (refused.status === 401) refused = await guess()
  assert.equal(refused.status, 429)
  assert.match(refused.headers.get('retry-after') ?? '', /^\d+$/)
})
