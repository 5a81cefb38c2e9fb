// What is refused before a byte of a body is read, and what a stall of the coordinator itself does to its members.
import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test } from 'node:test'
import { ROUTES, SILENCE_MS } from '@starling-grid/protocol'
import { runOf, smallJob, startCoordinator, submit, TOKEN, until, volunteer } from './fixture.ts'

/** Sends headers that announce a body, and no body; what came back when the connection ended. */
function answerTo(port: number, head: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1')
    let text = ''
    socket.setEncoding('utf8').on('data', (part) => {
      text += part
    })
    socket.on('error', reject).on('end', () => {
      socket.end()
      resolve(text)
    })
    socket.write(`${head}\r\nHost: localhost:${port}\r\n\r\n`)
  })
}

test('threat 22: an address or method that does not exist is refused before its body is read', async () => {
  const { port } = await startCoordinator()
  const json = 'Content-Type: application/json\r\n'
  const cases: readonly [string, string, RegExp][] = [
    ['POST /nowhere', `${json}Content-Length: 500000`, /^HTTP\/1.1 404 [^]*content-security-policy: /i],
    ['POST /nowhere', `${json}Transfer-Encoding: chunked`, /^HTTP\/1.1 404 /],
    ['PUT /api/v1/jobs', `${json}Content-Length: 500000`, /^HTTP\/1.1 405 [^]*allow: POST, GET, HEAD/i],
    ['POST /', `${json}Content-Length: 500000`, /^HTTP\/1.1 405 /],
    ['PROPFIND /api/v1/jobs', `${json}Content-Length: 500000`, /^HTTP\/1.1 40[45] /],
    ['GET /healthz', 'Content-Length: 500000', /^HTTP\/1.1 400 /],
    ['POST /api/v1/jobs', `${json}Content-Length: 500000`, /^HTTP\/1.1 401 /],
  ]
  for (const [line, headers, expected] of cases)
    assert.match(await answerTo(port, `${line} HTTP/1.1\r\n${headers}`), expected, `${line} ${headers}`)
})

test('threat 14: half a megabyte of quotes with the owner token is refused, and other requests go on', async () => {
  const { url } = await startCoordinator()
  const hostile = await fetch(`${url}${ROUTES.jobs}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
    body: String.raw`"\"`.repeat(170_000),
  })
  assert.equal(hostile.status, 400)
})

test('threat 24: a stall of the coordinator itself drops no member and ends no lease', async () => {
  const { url } = await startCoordinator({
    timing: { stateMs: 300, formMs: 3000, admitMs: 100, lostMs: 1500, leaseMinMs: 3000 },
  })
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 } }))
  for (const stepMs of [10, 10]) volunteer(url, { stepMs })
  const before = await until(url, 'the ring', (run) => run.phase === 'ring' && run.version.v > 2)
  const end = performance.now() + SILENCE_MS + 2500
  while (performance.now() < end);
  const after = await until(url, 'more steps', (run) => run.version.v > before.version.v + 20)
  assert.deepEqual(after.departed, [])
  assert.equal(after.generation, before.generation, 'no ballot was called')
  assert.deepEqual((await runOf(url, id)).departed, [])
})
