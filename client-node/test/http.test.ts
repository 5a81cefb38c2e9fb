// Requests of a Node volunteer: as fetch makes them, without fetch's limit of 300 s.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import { gzipSync } from 'node:zlib'
import { sendRequest } from '../src/http.ts'

async function serving(
  context: TestContext,
  answer: (request: IncomingMessage, response: ServerResponse) => unknown,
): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const running = new AbortController().signal

test('an upload announces its length, and its answer comes with status, headers and bytes', async (context) => {
  const url = await serving(context, async (request, response) => {
    const pieces: Buffer[] = []
    for await (const piece of request as AsyncIterable<Buffer>) pieces.push(piece)
    const { method, headers } = request
    response.writeHead(201, { 'x-length': headers['content-length'], 'x-method': method }).end(Buffer.concat(pieces))
  })
  const body = new Uint8Array(3_000_000).fill(7)
  const answer = await sendRequest(`${url}/a`, { method: 'PUT', body, signal: running })
  assert.deepEqual([answer.status, answer.headers.get('x-method')], [201, 'PUT'])
  assert.equal(answer.headers.get('x-length'), '3000000')
  assert.deepEqual(new Uint8Array(await answer.arrayBuffer()), body)
})

test('threat 55: a redirect is an answer, and what is encoded stays encoded', async (context) => {
  const zipped = gzipSync('text')
  const url = await serving(context, ({ url: path }, response) =>
    path === '/away'
      ? response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end()
      : response.writeHead(200, { 'content-encoding': 'gzip' }).end(zipped),
  )
  assert.equal((await sendRequest(`${url}/away`, { signal: running })).status, 302)
  const answer = await sendRequest(`${url}/zipped`, { signal: running })
  assert.equal(answer.headers.get('content-encoding'), 'gzip')
  assert.deepEqual(new Uint8Array(await answer.arrayBuffer()), new Uint8Array(zipped))
})

test('a request that is aborted fails before its answer and within it', async (context) => {
  const url = await serving(context, ({ url: path }, response) =>
    path === '/half' ? response.writeHead(200, { 'content-length': 4 }).write('a') : undefined,
  )
  for (const path of ['/never', '/half']) {
    const end = new AbortController()
    const asked = sendRequest(url + path, { signal: end.signal })
    if (path === '/half') {
      const reader = (await asked).body?.getReader()
      await reader?.read()
      end.abort()
      await assert.rejects(async () => reader?.read())
    } else {
      end.abort()
      await assert.rejects(asked)
    }
  }
})

test('an answer that breaks off fails while it is read', async (context) => {
  const url = await serving(context, (_, response) => {
    response.writeHead(200, { 'content-length': 4 }).write('a', () => response.destroy())
  })
  const answer = await sendRequest(url, { signal: running })
  await assert.rejects(answer.arrayBuffer())
})
