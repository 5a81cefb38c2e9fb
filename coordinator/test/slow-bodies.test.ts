// Bodies on a slow line: as long as their bytes move they may take any time, and one that stands still is cut off.
import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import type { Server } from 'node:http'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { smallJob, startCoordinator, TOKEN } from './fixture.ts'

const LIMITS = { graceMs: 500, slowest: 2000 }
/** bytes and ms of a piece that keeps a body well above the floor, and how many of them outlast the grace by far */
const PIECE = 400
const PIECE_MS = 50
const PIECES = 60

async function dialled(port: number): Promise<{ readonly socket: Socket; readonly heard: Promise<string> }> {
  const socket = connect(port, '127.0.0.1')
  let text = ''
  socket.setEncoding('utf8').on('data', (part) => {
    text += part
  })
  socket.on('error', () => undefined)
  const heard = new Promise<string>((resolve) => socket.on('close', () => resolve(text)))
  await once(socket, 'connect')
  return { socket, heard }
}

const headers = (bytes: number): string =>
  `POST /api/v1/jobs?dry=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer ${TOKEN}\r\n` +
  `Content-Type: application/json\r\nContent-Length: ${bytes}\r\n\r\n`

test('a slow body is accepted while its bytes move, and has no limit of time as a whole', async () => {
  const servers = new Set<Server>()
  const seen = (message: unknown): unknown => servers.add((message as { readonly server: Server }).server)
  subscribe('http.server.request.start', seen)
  const { port } = await startCoordinator({ connections: LIMITS })
  const body = JSON.stringify(smallJob()).padEnd(PIECE * PIECES)
  const { socket, heard } = await dialled(port)
  socket.write(headers(body.length))
  const begin = performance.now()
  for (let at = 0; at < body.length; at += PIECE) {
    socket.write(body.slice(at, at + PIECE))
    await delay(PIECE_MS)
  }
  assert.ok(performance.now() - begin > 5 * LIMITS.graceMs)
  assert.match(await heard, /^HTTP\/1.1 200 /)
  unsubscribe('http.server.request.start', seen)
  const limits = [...servers].map(({ requestTimeout }) => requestTimeout)
  assert.deepEqual(limits, [0], 'Node would cut off a request of that many ms')
})

test('threat 22: a body that begins fast and then stands still is cut off, whatever length it announced', async () => {
  const { port } = await startCoordinator({ connections: LIMITS })
  const { socket, heard } = await dialled(port)
  socket.write(headers(500_000) + ' '.repeat(100_000))
  assert.equal(await heard, '', 'closed without an answer; 500,000 bytes at the floor would have 250 s')
})
