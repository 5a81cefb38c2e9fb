// What strangers send, each refused by its code and counted, while two members go on training.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { test } from 'node:test'
import type { Timing } from '@starling-grid/coordinator/run'
import {
  MAX_MESSAGE_BYTES,
  type MessageTo,
  newMemberId,
  pathTo,
  PROTOCOL_VERSION,
  type PushHeader,
  ROUTES,
  sha256Name,
} from '@starling-grid/protocol'
import { WebSocket } from 'ws'
import { type FakeVolunteer, unprovenHello } from './fake-volunteer.ts'
import { OWNER, QUICK, runOf, smallJob, startCoordinator, submit, TOKEN, until, volunteer } from './fixture.ts'

/** A run of two honest members that is in its ring. */
async function running(timing: Partial<Timing> = {}, stepMs = 10) {
  const { url } = await startCoordinator({ timing: { ...QUICK, ...timing } })
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 } }))
  const honest = [volunteer(url, { stepMs }), volunteer(url, { stepMs })]
  await until(url, 'the ring', (run) => run.phase === 'ring' && run.version.v > 0)
  return { url, id, honest }
}

async function assertUnharmed(url: string, id: string): Promise<void> {
  const { version } = await runOf(url, id)
  const run = await until(url, 'more steps', (view) => view.version.v > version.v + 2)
  assert.equal(run.departed.filter(({ name }) => name === 'fake').length, 0, 'both honest members are still there')
}

function stranger(url: string, options = {}): FakeVolunteer {
  return volunteer(url, { obedient: false, name: 'stranger', ...options })
}

/** What answers a first message. */
async function refusalOf(url: string, firstMessage: unknown): Promise<MessageTo<'refused'>> {
  const fake = stranger(url)
  await once(fake.socket, 'open')
  fake.raw(firstMessage)
  const refused = await fake.heard('refused')
  await fake.closed
  return refused
}

test('a first message that is not a good hello is refused by its code, counted, and ends the connection', async () => {
  const { url, id } = await running()
  const hello = unprovenHello()
  const cases: readonly [unknown, string][] = [
    ['{', 'message-malformed'],
    ['['.repeat(100_000), 'message-too-large'],
    ['['.repeat(3000), 'message-malformed'],
    [{ type: 'hello' }, 'message-malformed'],
    [{ ...hello, extra: 1 }, 'message-malformed'],
    [JSON.stringify(hello).replace('"x"', '"x","__proto__":{"polluted":1}'), 'message-malformed'],
    [{ ...hello, name: 'n'.repeat(10_000) }, 'message-malformed'],
    [{ ...hello, name: '\u202e\u0007\u2066' }, 'message-malformed'],
    [{ ...hello, incarnation: '../../etc/passwd' }, 'message-malformed'],
    [hello, 'identity-unproven'],
    [{ type: 'steal' }, 'message-malformed'],
    [{ type: 'leave' }, 'message-unexpected'],
    [{ ...hello, protocol: PROTOCOL_VERSION + 1 }, 'protocol-version'],
    [{ ...hello, protocol: 0 }, 'protocol-version'],
  ]
  const before = (await runOf(url, id)).refusals
  for (const [message, code] of cases) {
    const refused = await refusalOf(url, message)
    assert.deepEqual(
      [refused.code, refused.fatal],
      [code, true],
      `${JSON.stringify(message).slice(0, 80)}: ${refused.message}`,
    )
  }
  const { refusals } = await runOf(url, id)
  for (const code of new Set(cases.map(([, code]) => code)))
    assert.equal(
      (refusals[code] ?? 0) - (before[code] ?? 0),
      cases.filter((entry) => entry[1] === code).length,
      `${code} is counted`,
    )
  assert.equal('polluted' in {}, false)
  await assertUnharmed(url, id)
})

test('a volunteer of another version is told what to do', async () => {
  const { url } = await startCoordinator()
  const hello = { type: 'hello', protocol: 0, incarnation: newMemberId(), name: 'x' }
  assert.match((await refusalOf(url, { ...hello, client: 'tab' })).message, /reload the page/)
  assert.match((await refusalOf(url, { ...hello, client: 'node' })).message, /update the volunteer/)
  assert.match((await refusalOf(url, { ...hello, client: 'node', protocol: 99 })).message, /update the coordinator/)
})

test('another model, too large a message, bytes, and a flood each end the connection by name', async () => {
  const { url, id } = await running()
  const joined = async (): Promise<FakeVolunteer> => {
    const fake = stranger(url)
    await once(fake.socket, 'open')
    fake.hello()
    await fake.heard('welcome')
    return fake
  }
  const otherModel = await joined()
  otherModel.raw({
    type: 'ready',
    job: otherModel.terms?.id,
    modelHash: '0'.repeat(64),
    adapter: { name: 'a', vendor: 'v', software: true, executor: 'reference' },
    samplesPerSecond: 1,
  })
  assert.equal((await otherModel.heard('refused')).code, 'model-hash')

  const large = await joined()
  large.raw('x'.repeat(MAX_MESSAGE_BYTES + 1))
  assert.equal(await large.closed, 1009)

  const bytes = await joined()
  for (let i = 0; i < 8; i++) bytes.socket.send(Buffer.from([1, 2, 3]))
  assert.equal((await bytes.heard('refused')).code, 'message-malformed')
  await bytes.closed

  const flood = await joined()
  for (let i = 0; i < 5000; i++)
    flood.send({ type: 'heartbeat', samplesPerSecond: 1, activity: '', bytesSent: 0, bytesReceived: 0 })
  await flood.closed

  const { refusals } = await runOf(url, id)
  for (const code of ['model-hash', 'message-too-large', 'message-malformed', 'rate-exceeded'])
    assert.ok((refusals[code] ?? 0) > 0, code)
  await assertUnharmed(url, id)
})

test('names lose what cannot be seen and stay text', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob())
  volunteer(url, { name: '\u202e<script>\u0000alert(1)\u001b[31m</script>\u2028' })
  const run = await until(url, 'the member', ({ members }) => (members[0]?.adapter ?? null) !== null)
  assert.equal(run.members[0]?.name, '<script>alert(1)[31m</script>')
  assert.equal((await runOf(url, id)).members[0]?.adapter?.name, 'fake')
})

test('a connection that says nothing is closed, and one that falls silent is no member any more', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ volunteers: { min: 5 } }))
  const mute = stranger(url)
  const silent = stranger(url, { name: 'silent' })
  await once(silent.socket, 'open')
  silent.hello()
  await silent.heard('welcome')
  silent.send({
    type: 'ready',
    modelHash: silent.terms?.modelHash ?? assert.fail(),
    adapter: { name: 'a', vendor: 'v', software: true, executor: 'reference' },
    samplesPerSecond: 1,
  })
  await Promise.all([mute.closed, silent.closed])
  assert.deepEqual(
    (await runOf(url, id)).departed.map(({ name, reason }) => [name, reason]),
    [['silent', 'silent for 5 s']],
  )
})

test('a state that the coordinator did not ask for, or with another digest, is not stored', async () => {
  // no checkpoint is due, and the end of the epoch, where there is one, is seconds away: an uploader was not asked
  const { url, id, honest } = await running({ checkpointSteps: 1_000_000, checkpointMs: 3_600_000 }, 300)
  const [member = assert.fail()] = honest
  const unasked = await member.upload()
  assert.ok([404, 409].includes(unasked.status), String(unasked.status))
  const noSession = await fetch(`${url}${pathTo(ROUTES.upload, { id, v: 1, versionId: '0'.repeat(64) })}`, {
    method: 'PUT',
    headers: { 'content-type': 'application/octet-stream', authorization: `Bearer ${TOKEN}` },
    body: new Uint8Array(10),
  })
  assert.deepEqual([noSession.status, ((await noSession.json()) as { code: string }).code], [401, 'session-unknown'])
  await assertUnharmed(url, id)
})

test('a push counts once, with its own lease, finite, whole, and with honest numbers', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ mode: 'async', volunteers: { min: 1 } }))
  const fake = stranger(url)
  await once(fake.socket, 'open')
  fake.hello()
  await fake.heard('welcome')
  fake.ready()
  const freeze = await fake.heard('freeze')
  fake.send({ type: 'state', fence: freeze.fence, generation: freeze.generation, claim: null })
  const { modeEpoch } = await fake.heard('async')
  fake.send({ type: 'lease-request', modeEpoch })
  const grant = await fake.heard('grant')
  const { total } = fake.form.layout
  const verdict = async (change: { readonly push?: Partial<PushHeader>; readonly body?: Float32Array }) =>
    (await fake.push(grant, change)).verdict ?? 'none'

  assert.equal((await fake.push(grant, { push: { incarnation: newMemberId() } })).code, 'session-unknown')
  assert.equal(await verdict({ push: { modeEpoch: modeEpoch + 1 } }), 'mode-stale')
  assert.equal(await verdict({ push: { leaseEpoch: (grant.leases[0]?.leaseEpoch ?? 0) + 1 } }), 'lease-stale')
  assert.equal(await verdict({ push: { blocks: grant.leases.length - 1 } }), 'lease-stale', 'a part of its grant')
  assert.equal(await verdict({}), 'received')
  assert.equal(await verdict({}), 'duplicate')

  const next = async (): Promise<MessageTo<'grant'>> => {
    const known = fake.messages.length
    fake.send({ type: 'lease-request', modeEpoch })
    return fake.heard('grant', (message) => fake.messages.indexOf(message as never) >= known)
  }
  let version = 1
  for (const [code, change] of [
    ['gradient-not-finite', { body: new Float32Array(total).fill(Number.NaN) }],
    ['gradient-shape', { body: new Float32Array(total - 1) }],
    ['message-malformed', { push: { samples: 1 } }],
    ['message-malformed', { push: { targets: 0 } }],
  ] as const) {
    assert.equal((await fake.push(await next(), change)).verdict, code)
    assert.equal((await runOf(url, id)).version.v, version, 'nothing of it was applied')
    // three refusals in a row cost a member its work
    assert.equal((await fake.push(await next(), {})).verdict, 'received')
    version++
  }
  const tooLarge = await fake.push(await next(), { body: new Float32Array(total + 1) })
  assert.deepEqual([tooLarge.status, tooLarge.code], [413, 'message-too-large'])
  const { refusals } = await runOf(url, id)
  for (const code of [
    'mode-stale',
    'lease-stale',
    'duplicate',
    'gradient-not-finite',
    'gradient-shape',
    'message-malformed',
  ])
    assert.ok((refusals[code] ?? 0) > 0, `${code}: ${JSON.stringify(refusals)}`)
})

test('a job with mistakes is answered with all of them, each with its path', async () => {
  const { url } = await startCoordinator()
  const layers = [{ type: 'flaten' }, { type: 'linear', name: 'fc', out: 0 }]
  const response = await fetch(`${url}${ROUTES.jobs}`, {
    method: 'POST',
    headers: { ...OWNER, 'content-type': 'application/json' },
    body: JSON.stringify({ ...smallJob(), mode: 'rign', model: { input: [1, 28, 28], layers } }),
  })
  const { code, errors } = (await response.json()) as { code: string; errors: { path: unknown[]; hint?: string }[] }
  assert.deepEqual([response.status, code], [422, 'job-invalid'])
  assert.deepEqual(
    errors.map(({ path }) => path),
    [['mode'], ['model', 'layers', 0, 'type'], ['model', 'layers', 1, 'out']],
  )
  assert.equal(errors[0]?.hint, 'did you mean `ring`?')
})

test('a model that cannot be built, or does not fit the data, is refused at once with the faulty layer', async () => {
  const { url } = await startCoordinator()
  const layers = (out: number) => [
    { type: 'flatten' },
    { type: 'linear', name: 'fc', out: 84, in: out },
    { type: 'linear', name: 'fc2', out: 10 },
  ]
  const refused = async (change: object) => submit(url, { ...smallJob(), ...change })
  const wrongInputs = await refused({ model: { input: [1, 28, 28], layers: layers(400) } })
  assert.deepEqual([wrongInputs.status, wrongInputs.code], [422, 'model-invalid'])
  assert.match(wrongInputs.detail ?? '', /^model\.layers\[1\]: expected 400 inputs, got 784$/)
  assert.equal((await refused({ model: { input: [3, 32, 32], layers: layers(3072) } })).code, 'job-invalid')
  assert.equal(
    (
      await refused({
        model: { input: [1, 28, 28], layers: [{ type: 'flatten' }, { type: 'linear', name: 'f', out: 9 }] },
      })
    ).code,
    'job-invalid',
  )
  assert.equal((await refused({ mode: 'local', local: { innerSteps: 1000 } })).code, 'job-invalid')
  assert.match(
    (await refused({ mode: 'local', local: { innerSteps: 4, fragments: 5 } })).detail ?? '',
    /at most one fragment for each of 4 inner steps, got 5/,
  )
  assert.match((await refused({ mode: 'local', local: { innerSteps: 4, fragments: 0 } })).detail ?? '', /fragments/)
  assert.match((await refused({ encoding: 'int4' })).detail ?? '', /encoding/)
  assert.equal((await refused({ stop: { epochs: 0 } })).code, 'job-invalid')
  assert.equal((await refused({ dataset: { source: 'mnist', folder: '/nowhere' } })).code, 'dataset-unreadable')
  assert.deepEqual(await (await fetch(`${url}${ROUTES.jobs}`, { headers: OWNER })).json(), {
    jobs: [],
    next: null,
    damaged: [],
  })
})

test('job control needs the owner token, and a form of another site cannot send it', async () => {
  const { url } = await startCoordinator()
  assert.deepEqual(
    [(await submit(url, smallJob(), 'wrong')).status, (await submit(url, smallJob(), 'wrong')).code],
    [401, 'token-required'],
  )
  const form = await fetch(`${url}${ROUTES.jobs}`, {
    method: 'POST',
    headers: { 'content-type': 'text/plain', authorization: `Bearer ${TOKEN}` },
    body: JSON.stringify(smallJob()),
  })
  assert.equal(form.status, 415)
  const foreign = await fetch(`${url}${ROUTES.jobs}`, {
    method: 'POST',
    headers: { origin: 'https://evil.test', 'content-type': 'application/json', authorization: `Bearer ${TOKEN}` },
    body: '{}',
  })
  assert.equal(foreign.status, 403)
  const deep = await fetch(`${url}${ROUTES.jobs}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${TOKEN}` },
    body: `{"model":${'['.repeat(50_000)}`,
  })
  assert.equal(deep.status, 400)
})

test('another site gets neither a socket nor, through its own name, an answer', async () => {
  const { url, port } = await startCoordinator()
  for (const path of ['/api/volunteer', '/api/watch', '/signalling/peerjs']) {
    const socket = new WebSocket(`${url.replace(/^http/, 'ws')}${path}`, { origin: 'https://evil.test' })
    const [, response] = await once(socket, 'unexpected-response')
    assert.equal((response as { statusCode: number }).statusCode, 403, path)
  }
  const own = new WebSocket(`${url.replace(/^http/, 'ws')}${ROUTES.watch}`, { origin: url })
  await once(own, 'open')
  own.close()
  assert.equal(await statusFor(port, 'evil.test'), 421)
  assert.equal(await statusFor(port, `localhost:${port}`), 200)
})

test('a coordinator answers to the names that its operator allows, such as that of its service', async () => {
  const { port } = await startCoordinator({ allowedHosts: ['starling.grid.svc'] })
  assert.equal(await statusFor(port, `Starling.grid.svc:${port}`), 200)
  assert.equal(await statusFor(port, 'starling.grid.svc.evil.test'), 421)
})

/** fetch does not let anybody choose Host. */
function statusFor(port: number, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    httpRequest({ port, host: '127.0.0.1', path: '/healthz', headers: { host } }, (response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
      .on('error', reject)
      .end()
  })
}

test('only shards of a dataset are served as shards, whole or in part, for ever', async () => {
  const { url, id, honest } = await running()
  const shard = honest[0]?.terms?.dataset.train[0] ?? assert.fail()
  const whole = await fetch(`${url}${pathTo(ROUTES.shard, { sha256: shard.sha256 })}`, { headers: OWNER })
  const bytes = new Uint8Array(await whole.arrayBuffer())
  assert.equal(bytes.byteLength, shard.bytes)
  assert.deepEqual(
    [whole.headers.get('etag'), /immutable/.test(whole.headers.get('cache-control') ?? '')],
    [`"${shard.sha256}"`, true],
  )
  const get = (headers: Record<string, string>) =>
    fetch(`${url}${pathTo(ROUTES.shard, { sha256: shard.sha256 })}`, { headers: { ...OWNER, ...headers } })
  const part = await get({ range: 'bytes=10-19' })
  assert.deepEqual(
    [part.status, part.headers.get('content-range'), new Uint8Array(await part.arrayBuffer())],
    [206, `bytes 10-19/${shard.bytes}`, bytes.slice(10, 20)],
  )
  assert.deepEqual(new Uint8Array(await (await get({ range: 'bytes=-5' })).arrayBuffer()), bytes.slice(-5))
  assert.equal((await get({ range: `bytes=${shard.bytes}-` })).status, 416)
  assert.equal((await get({ 'if-none-match': `"${shard.sha256}"` })).status, 304)

  const { checkpoint } = await until(url, 'a checkpoint', (run) => run.checkpoint !== null)
  assert.ok(checkpoint !== null)
  for (const name of [sha256Name('0'.repeat(64)), '..%2f..%2fetc%2fpasswd', '%00', 'CON'])
    assert.ok(
      [400, 404].includes((await fetch(`${url}${ROUTES.shard.replace(':sha256', name)}`, { headers: OWNER })).status),
      name,
    )
  await assertUnharmed(url, id)
})
