// What the pages are served: the watch stream, the pages themselves, probes and headers.
import assert from 'node:assert/strict'
import { on, once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { memberId, ROUTES, type StepPoint, type ValidationPoint, type WatchMessage } from '@starling-grid/protocol'
import WebSocket from 'ws'
import type { RunHost } from '../src/host/run-host.ts'
import {
  runOf,
  smallJob,
  startCoordinator,
  submit,
  temporaryFolder,
  TOKEN,
  until,
  volunteer,
  watch,
} from './fixture.ts'

/** What a page knows after these messages. */
interface Known {
  steps: StepPoint[]
  validations: ValidationPoint[]
}

function learn(known: Known, message: WatchMessage): void {
  if (message.type === 'none') return
  const { rewoundTo = Number.POSITIVE_INFINITY } = message.type === 'update' ? message : {}
  if (message.type === 'snapshot') Object.assign(known, { steps: [], validations: [] })
  known.steps = [...known.steps.filter(({ v }) => v <= rewoundTo), ...message.steps]
  known.validations = [...known.validations.filter(({ v }) => v <= rewoundTo), ...message.validations]
}

async function follow(
  url: string,
  done: (message: WatchMessage) => boolean,
): Promise<{ readonly messages: WatchMessage[]; readonly known: Known }> {
  const { messages, stop } = watch(url)
  const seen: WatchMessage[] = []
  const known: Known = { steps: [], validations: [] }
  for await (const message of messages) {
    seen.push(message)
    learn(known, message)
    if (done(message)) break
  }
  stop()
  return { messages: seen, known }
}

const isFinished = (message: WatchMessage): boolean => message.type !== 'none' && message.run.phase === 'finished'

/** The first message of a page whose address names a job. */
async function firstOf(url: string, job: string, token?: string): Promise<WatchMessage> {
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}${ROUTES.watch}?job=${encodeURIComponent(job)}`)
  try {
    if (token === undefined) return JSON.parse(String((await once(socket, 'message'))[0])) as WatchMessage
    await once(socket, 'open')
    socket.send(JSON.stringify({ type: 'owner', token }))
    for await (const [data] of on(socket, 'message')) {
      const message = JSON.parse(String(data)) as WatchMessage
      if (message.type !== 'none') return message
    }
    return assert.fail()
  } finally {
    socket.close()
  }
}

test('threat 48: a page is shown the job that its address names, where its reader may see that', async () => {
  const { url } = await startCoordinator()
  const open = await submit(url, smallJob({ name: 'Open', public: true }))
  const secret = await submit(url, smallJob({ name: 'Secret', public: false }))
  await submit(url, smallJob({ name: 'Newest', public: true }))
  const shown = async (job: string, token?: string) => {
    const message = await firstOf(url, job, token)
    return message.type === 'none' ? message.reason : message.run.job.name
  }
  assert.equal(await shown(open.id), 'Open')
  assert.equal(await shown(''), 'Newest')
  const hidden = await shown(secret.id)
  assert.match(hidden, /^no job secret-\w+ is shown here: it is gone, or private/)
  assert.equal(await shown('secret-000000'), hidden.replace(secret.id, 'secret-000000'), 'it says not which')
  assert.equal(await shown(secret.id, TOKEN), 'Secret')
  assert.match(await shown('\u202e'.repeat(500)), /is shown here/)
})

test('a page that watches from the start and one that comes at the end know the same curve', async () => {
  const { url } = await startCoordinator()
  const watching = follow(url, isFinished)
  await submit(url, smallJob({ stop: { epochs: 4 } }))
  for (const stepMs of [20, 20]) volunteer(url, { stepMs })
  const { messages, known } = await watching
  assert.deepEqual(messages[0], { type: 'none', reason: 'no job was submitted yet' })
  assert.deepEqual(
    messages.slice(1).map(({ type }) => type),
    ['snapshot', ...messages.slice(2).map(() => 'update')],
  )
  assert.deepEqual(
    known.steps.map(({ v }) => v),
    Array.from({ length: 36 }, (_, i) => i + 1),
  )
  assert.deepEqual(
    known.validations.map(({ v, epoch, accuracy }) => [v, epoch, accuracy]),
    [
      [9, 0, 0.5],
      [18, 1, 0.5],
      [27, 2, 0.5],
      [36, 3, 0.5],
    ],
  )
  const late = await follow(url, isFinished)
  assert.deepEqual(late.known, known)
})

test('after a rewind the stream takes back the steps that are gone', async () => {
  const { url } = await startCoordinator({
    timing: { stateMs: 200, lostMs: 300, rejoinMs: 300, formMs: 10_000, checkpointMs: 600_000 },
  })
  const { id } = await submit(url, smallJob({ volunteers: { min: 1 }, stop: { epochs: 3 } }))
  const watching = follow(url, isFinished)
  const first = volunteer(url, { stepMs: 100 })
  await until(url, 'some steps', (run) => run.version.v >= 3)
  first.socket.terminate()
  await until(url, 'version 0 again', (run) => run.version.v === 0)
  volunteer(url, { stepMs: 5 })
  const { messages, known } = await watching
  assert.ok(messages.some((message) => message.type === 'update' && message.rewoundTo === 0))
  assert.deepEqual(
    known.steps.map(({ v }) => v),
    Array.from({ length: 27 }, (_, i) => i + 1),
  )
  const { events } = messages.find((message) => message.type === 'snapshot') ?? assert.fail()
  assert.ok(Array.isArray(events))
  assert.equal((await runOf(url, id)).samplesCommitted, 27_000)
})

/** Members that come and go, one after the other. */
function comeAndGo({ feed }: Pick<RunHost, 'feed'>, count: number): void {
  const adapter = { name: 'none', vendor: 'test', software: true, executor: 'reference' } as const
  for (let i = 0; i < count; i++) {
    const member = memberId(String(i).padStart(32, '0'))
    feed({
      type: 'member-joined',
      member: { id: member, name: `visitor ${i}`, client: 'node', adapter },
      samplesPerSecond: 1,
    })
    feed({ type: 'member-lost', member, reason: 'left', expected: true })
  }
}

test('threat 23: strangers that come and go push nothing else out of what pages show of a run', async () => {
  const coordinator = await startCoordinator()
  const { url, runs } = coordinator
  const { id } = await submit(url, smallJob({ volunteers: { min: 9 } }))
  const run = runs.find(id) ?? assert.fail()
  const texts = (message: WatchMessage): string[] =>
    message.type === 'none' ? [] : message.events.map(({ text }) => text)
  const began = (text: string): boolean => text === 'the run began'
  const gone = (text: string): boolean => text.startsWith('visitor 399 left')
  let told = 0
  const watching = follow(url, (message) => {
    told += texts(message).length
    return texts(message).some(gone)
  })
  while (told === 0) await delay(10)
  comeAndGo({ feed: (input) => run.feed(input) }, 400)
  const seen = (await watching).messages.flatMap(texts)
  assert.equal(seen.filter(began).length, 1, 'what was told once is not told again')
  const reloaded = texts((await follow(url, ({ type }) => type === 'snapshot')).messages.at(-1) ?? assert.fail())
  assert.ok(reloaded.some(began), 'the run began')
  assert.ok(reloaded.some(gone), 'the newest visitor is shown, too')
  assert.equal(reloaded.length, 500)
})

test('a page that does not read costs no memory and does not slow the run', async () => {
  const { url, port } = await startCoordinator()
  await submit(url, smallJob({ stop: { epochs: 2 } }))
  const socket = connect(port, '127.0.0.1')
  socket.write(
    `GET /api/watch HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n',
  )
  await once(socket, 'data')
  socket.pause()
  const [member] = [volunteer(url), volunteer(url)]
  await member?.heard('finished')
  socket.destroy()
})

test('pages forbid foreign scripts; browsers cache built files for ever, and pages not at all', async () => {
  const webRoot = await temporaryFolder()
  await mkdir(join(webRoot, 'assets'))
  for (const [file, text] of [
    ['index.html', '<h1>take part</h1>'],
    ['dashboard.html', '<h1>watch</h1>'],
    ['assets/main-abc.js', '1'],
  ] as const)
    await writeFile(join(webRoot, file), text)
  const { url } = await startCoordinator({ webRoot })
  const page = await fetch(`${url}/`)
  assert.equal(await page.text(), '<h1>take part</h1>')
  assert.equal(await (await fetch(`${url}${ROUTES.dashboard}`)).text(), '<h1>watch</h1>')
  const policy = page.headers.get('content-security-policy') ?? ''
  for (const part of [
    "default-src 'none'",
    "script-src 'self' 'wasm-unsafe-eval'",
    "style-src 'self'",
    "worker-src 'self'",
    `connect-src 'self' ws://${new URL(url).host} wss://${new URL(url).host}`,
    "img-src 'self' data:",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    'trusted-types starling',
  ])
    assert.ok(policy.includes(part), `${part} in ${policy}`)
  assert.equal(/'unsafe|upgrade-insecure/.test(policy), false)
  assert.deepEqual(
    [
      page.headers.get('referrer-policy'),
      page.headers.get('strict-transport-security'),
      page.headers.get('cache-control'),
      page.headers.get('cross-origin-opener-policy'),
    ],
    ['no-referrer', null, 'no-cache', 'same-origin'],
  )
  assert.match((await fetch(`${url}/assets/main-abc.js`)).headers.get('cache-control') ?? '', /immutable/)
  for (const path of ['/..%2f..%2fetc%2fpasswd', '/assets/../../package.json', '/nothing'])
    assert.equal((await fetch(url + path)).status, 404, path)
})

test('without built pages a plain sentence says so, and the probes answer', async () => {
  const coordinator = await startCoordinator()
  const { url } = coordinator
  const page = await fetch(`${url}/`)
  assert.deepEqual([page.status, /not built/.test(await page.text())], [503, true])
  assert.deepEqual(
    [(await fetch(`${url}${ROUTES.healthz}`)).status, (await fetch(`${url}${ROUTES.readyz}`)).status],
    [200, 200],
  )
})
