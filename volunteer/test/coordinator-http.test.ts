// Every request of a volunteer against a server that answers badly for a while, badly for good, or not at all.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test, type TestContext } from 'node:test'
import {
  digest,
  GridError,
  isErrorCode,
  jobId,
  memberId,
  type PushHeader,
  versionId,
  systemClock,
} from '@starling-grid/protocol'
import { CoordinatorHttp } from '../src/coordinator-http.ts'
import { isFatal } from '../src/fatal.ts'

const JOB = jobId('a-job')
const VERSION = { v: 3, id: versionId('a'.repeat(64)) }
const BYTES = Uint8Array.of(1, 2, 3, 4)
const PUSH: PushHeader = {
  incarnation: memberId('b'.repeat(32)),
  modeEpoch: 1,
  base: VERSION,
  leaseEpoch: 1,
  blocks: 1,
  samples: 1,
  targets: 1,
  lossSum: 1,
  correct: 0,
}

/** every request that there is: a new one belongs here */
const REQUESTS: Readonly<Record<string, (http: CoordinatorHttp) => Promise<unknown>>> = {
  shard: (http) => http.shard(digest(BYTES)),
  parameters: (http) => http.parameters(JOB, VERSION, 4),
  state: (http) => http.state(JOB, VERSION, { from: 0, maxBytes: 4 }),
  upload: (http) => http.upload(JOB, VERSION, BYTES),
  rows: (http) => http.rows(JOB, VERSION, { parts: [{ name: 'table', rows: 1 }], numbers: BYTES, bytes: 4 }),
  push: (http) => http.push(JOB, PUSH, BYTES),
  givenSum: (http) => http.givenSum(JOB, 1, 4),
}

type Answer = (request: IncomingMessage, response: ServerResponse) => void

const refusing =
  (status: number, code: string): Answer =>
  (_, response) =>
    void response
      .writeHead(status, { 'content-type': 'application/json' })
      .end(JSON.stringify({ code, message: 'not now' }))

/** what a coordinator that starts again, is busy, or sits behind a bad line does */
const PASSING: Readonly<Record<string, Answer>> = {
  'a defect': refusing(500, 'unsupported'),
  'a proxy without its coordinator': (_, response) =>
    void response.writeHead(502, { 'content-type': 'text/html' }).end('<h1>Bad gateway</h1>'),
  'a coordinator that starts': refusing(503, 'grid-full'),
  'a full disk': refusing(507, 'disk-failed'),
  'too many requests': refusing(429, 'rate-exceeded'),
  'a session that is being renewed': refusing(401, 'session-unknown'),
  'a connection that is reset': (request) => void request.socket.destroy(),
  'an answer that breaks off': (_, response) =>
    void response.writeHead(200, { 'content-length': '4' }).write(Uint8Array.of(1), () => response.destroy()),
  'an answer that never begins': () => undefined,
  'an answer that stops in the middle': (_, response) =>
    void response.writeHead(200, { 'content-length': '4' }).write(Uint8Array.of(1)),
  'an answer that comes byte by byte': (_, response) => {
    response.writeHead(200, { 'content-length': '4' })
    const timer = setInterval(() => response.write(Uint8Array.of(1)), BYTE_MS)
    response.once('close', () => clearInterval(timer))
    timer.unref()
  },
}

const BYTE_MS = 60

const good: Answer = ({ method, url = '' }, response) => {
  if (method === 'POST' && url.endsWith('/pushes'))
    return void response
      .writeHead(200, { 'content-type': 'application/json' })
      .end('{"verdict":"received","message":""}')
  response.writeHead(method === 'PUT' ? 201 : 200).end(method === 'PUT' ? '{}' : BYTES)
}

/** ms; a busy machine takes longer than this for a good answer now and then, which costs one more request */
const SILENCE_MS = 150
const TIMES = { backoff: { firstMs: 5, mostMs: 20 }, withinMs: 3000, silenceMs: 2000 }
const ended = new AbortController()
after(() => ended.abort())

/** Answers requests in turn, and the last answer for ever, until the test ends. */
async function served(
  t: TestContext,
  answers: readonly Answer[],
  times: Partial<typeof TIMES> = {},
): Promise<{ readonly http: CoordinatorHttp; readonly asked: () => number; readonly url: string }> {
  let asked = 0
  const server = createServer((request, response) => {
    const answer = answers[Math.min(asked++, answers.length - 1)]
    request.resume().once('end', () => answer?.(request, response))
  })
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const http = new CoordinatorHttp(
    () => url,
    () => 'token',
    ended.signal,
    { clock: systemClock, times: { ...TIMES, ...times } },
  )
  return { http, asked: () => asked, url }
}

test('threat 55: a redirect is an answer, and the server that it names is asked nothing', async (t) => {
  const elsewhere = await served(t, [good])
  const { http, asked } = await served(t, [
    (_, response) => void response.writeHead(302, { location: `${elsewhere.url}/secret` }).end(),
  ])
  await assert.rejects(REQUESTS['shard']?.(http) ?? Promise.resolve(), { code: 'coordinator-lost' })
  assert.deepEqual([asked(), elsewhere.asked()], [1, 0])
})

/** The status is the whole answer to an upload. */
const ignoresBody = (name: string, fault: string): boolean =>
  name === 'upload' && fault.startsWith('an answer that') && fault !== 'an answer that never begins'

for (const [name, request] of Object.entries(REQUESTS)) {
  for (const [fault, answer] of Object.entries(PASSING).filter(([fault]) => !ignoresBody(name, fault)))
    test(`${name} meets ${fault}, twice, and is asked again until it has its answer`, async (t) => {
      const silent = fault.startsWith('an answer that')
      const { http, asked } = await served(t, [answer, answer, good], silent ? { silenceMs: SILENCE_MS } : {})
      await request(http)
      if (silent) assert.ok(asked() >= 3)
      else assert.equal(asked(), 3)
    })

  test(`${name} with an error code is not repeated, and the refusal of one request ends no volunteer`, async (t) => {
    for (const [status, code] of [
      [404, 'base-stale'],
      [409, 'message-unexpected'],
      [422, 'unsupported'],
      [422, 'model-invalid'],
      [400, 'usage'],
    ] as const) {
      const { http, asked } = await served(t, [refusing(status, code), good])
      const found = await request(http).then(
        (value) => value,
        (error: unknown) => error,
      )
      assert.equal(asked(), 1)
      if (name === 'push') assert.deepEqual(found, { verdict: code, message: 'not now' })
      else assert.ok(found instanceof GridError && isErrorCode(found.code) && !isFatal(found), String(found))
    }
  })

  test(`${name} gives up when its time is over, with an error that is not fatal`, async (t) => {
    const { http, asked } = await served(t, [refusing(503, 'grid-full')])
    const error: unknown = await request(http).then(
      () => undefined,
      (cause: unknown) => cause,
    )
    assert.ok(error instanceof GridError && !isFatal(error), String(error))
    assert.ok(asked() > 10)
  })
}

test('kernel variants are asked for and reported once, whatever comes: nothing waits for them', async (t) => {
  const adapterClass = digest(BYTES)
  for (const [fault, answer] of Object.entries(PASSING)) {
    const { http, asked } = await served(t, [answer, answer, good], { silenceMs: SILENCE_MS })
    await assert.rejects(http.variants(adapterClass), (error) => error instanceof GridError && !isFatal(error), fault)
    assert.equal(asked(), 1, fault)
    await assert.rejects(http.variants(adapterClass, BYTES), GridError, fault)
    assert.equal(asked(), 2, fault)
  }
  const { http } = await served(t, [(_, response) => void response.writeHead(200).end(new Uint8Array(1 << 17))])
  await assert.rejects(http.variants(adapterClass), { code: 'message-too-large' })
})
