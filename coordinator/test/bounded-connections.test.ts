// How much of the coordinator one address or one member may hold: connections, bodies, readers, bytes of messages.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type IncomingMessage, request as httpRequest } from 'node:http'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { pathTo, ROUTES } from '@starling-grid/protocol'
import { subscriberOf } from '../src/api/addresses.ts'
import { OWNER, runOf, smallJob, startCoordinator, submit, TOKEN, until, volunteer } from './fixture.ts'

const OPEN_JSON = `POST /api/v1/jobs HTTP/1.1\r\nAuthorization: Bearer ${TOKEN}\r\nContent-Type: application/json\r\n`

async function opened(port: number, text = ''): Promise<{ readonly socket: Socket; readonly ended: Promise<string> }> {
  const socket = connect(port, '127.0.0.1')
  let heard = ''
  socket.setEncoding('utf8').on('data', (part) => {
    heard += part
  })
  socket.on('error', () => undefined)
  const ended = new Promise<string>((resolve) => socket.on('close', () => resolve(heard)))
  await once(socket, 'connect')
  socket.write(text)
  return { socket, ended }
}

test('threat 22: half a body is closed when the time for its announced length is over', async () => {
  const { port } = await startCoordinator({ connections: { graceMs: 400, slowest: 1_000_000 } })
  const half = await opened(port, `${OPEN_JSON}Host: localhost\r\nContent-Length: 1000\r\n\r\n{"name":`)
  assert.equal(await half.ended, '', 'closed without an answer')
})

test('threat 25: all bodies on their way share one bound; the sender beyond it is told when to retry', async () => {
  const { port } = await startCoordinator({ connections: { bodyBytes: 100_000 } })
  const first = await opened(port, `${OPEN_JSON}Host: localhost\r\nContent-Length: 90000\r\n\r\n{`)
  let answer = ''
  while (!answer.startsWith('HTTP/1.1 429'))
    answer = await (await opened(port, `${OPEN_JSON}Host: localhost\r\nContent-Length: 20000\r\n\r\n`)).ended
  assert.match(answer, /retry-after: 2/)
  first.socket.destroy()
  for (;;) {
    const next = await opened(
      port,
      `${OPEN_JSON}Host: localhost\r\nConnection: close\r\nContent-Length: 20000\r\n\r\n${' '.repeat(20_000)}`,
    )
    const text = await next.ended
    if (text.startsWith('HTTP/1.1 400')) break // read, and it is no JSON
    assert.match(text, /^HTTP\/1.1 429/)
  }
})

test('threat 22: a reader that does not read is cut off, and one that reads gets all', async () => {
  const { url } = await startCoordinator({ connections: { graceMs: 1000, slowest: 1000 } })
  const wide = {
    name: 'wide',
    input: [1, 28, 28],
    layers: [
      { type: 'flatten' },
      { type: 'linear', name: 'hidden', out: 4000 },
      { type: 'linear', name: 'fc', out: 10 },
    ],
  }
  const { id } = await submit(url, smallJob({ stop: { epochs: 1, steps: 1 }, volunteers: { min: 1 }, model: wide }))
  volunteer(url)
  await until(url, 'the end', ({ phase, checkpoint }) => phase === 'finished' && checkpoint !== null)
  // A paused reader does not see that it was cut off before it reads again; on a busy machine that takes longer.
  for (let waitMs = 3000; await readsAll(`${url}${pathTo(ROUTES.export, { id })}`, waitMs); waitMs *= 2);
  const whole = await fetch(`${url}${pathTo(ROUTES.export, { id })}`, { headers: OWNER })
  assert.equal((await whole.arrayBuffer()).byteLength, Number(whole.headers.get('content-length')))
})

/** Whether a reader that pauses for so long gets the whole answer. */
async function readsAll(url: string, waitMs: number): Promise<boolean> {
  const asked = httpRequest(url, { headers: OWNER, agent: false })
  asked.on('error', () => undefined).end()
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  response.on('error', () => undefined).pause()
  await delay(waitMs)
  const closed = once(response, 'close').catch(() => undefined)
  response.resume()
  await closed
  return response.complete
}

test('connections of one address are bounded, and a connection that closes makes room for another', async () => {
  const { port } = await startCoordinator({ connections: { perAddress: 5 } })
  const sockets = await Promise.all(Array.from({ length: 5 }, () => opened(port)))
  assert.equal(await (await opened(port, 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n')).ended, '')
  sockets[0]?.socket.destroy()
  let text = ''
  while (!text.startsWith('HTTP/1.1 200'))
    text = await (await opened(port, 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')).ended
  for (const { socket } of sockets) socket.destroy()
})

test('an address is an IPv4 address or the /64 of an IPv6 address, however it is written', () => {
  for (const [ip, subscriber] of [
    ['192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['2001:0db8:0:0:ffff::2', '2001:db8:0:0::/64'],
    ['2001:db8:0:1::1', '2001:db8:0:1::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
  ] as const)
    assert.equal(subscriberOf(ip), subscriber, ip)
})

test('threat 23: with a trusted proxy the caller counts, without one its header says nothing', async () => {
  const guess = async (url: string, address: string) =>
    (
      await fetch(`${url}${ROUTES.jobs}`, {
        method: 'POST',
        headers: { authorization: 'Bearer wrong', 'x-forwarded-for': address, 'content-type': 'application/json' },
        body: '{}',
      })
    ).status
  const behind = await startCoordinator({ trustedProxies: ['127.0.0.0/8'] })
  for (let i = 0; i < 11; i++) await guess(behind.url, '192.0.2.1')
  assert.deepEqual([await guess(behind.url, '192.0.2.1'), await guess(behind.url, '192.0.2.2')], [429, 401])
  const plain = await startCoordinator()
  for (let i = 0; i < 12; i++) await guess(plain.url, `192.0.2.${i}`)
  assert.equal(await guess(plain.url, '192.0.2.99'), 429)
})

test('threat 20: a body with an encoding is refused before it is read', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ mode: 'async', volunteers: { min: 1 } }))
  const fake = volunteer(url, { obedient: true, works: false })
  await fake.heard('welcome')
  const push = await fake.request(pathTo(ROUTES.pushes, { id }), {
    method: 'POST',
    headers: { 'content-type': 'application/octet-stream', 'content-encoding': 'gzip' },
    body: gzipSync(new Uint8Array(1000)) as BodyInit,
  })
  assert.equal(push.status, 415)
})

test('threat 24: a member that sends large legal messages is cut off by their bytes', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ volunteers: { min: 2 } }))
  const flood = volunteer(url, { name: 'flood' })
  await flood.heard('welcome')
  const text = JSON.stringify({
    type: 'heartbeat',
    job: flood.terms?.id,
    samplesPerSecond: 1,
    activity: 'waiting',
    bytesSent: 0,
    bytesReceived: 0,
  })
  const legal = text + ' '.repeat(60_000)
  for (let i = 0; i < 8; i++) flood.raw(legal)
  await until(url, 'its messages are read', () => flood.socket.bufferedAmount === 0)
  assert.equal(flood.socket.readyState, flood.socket.OPEN, 'a few are no flood')
  for (let i = 0; i < 200; i++) flood.raw(legal)
  await flood.closed
  assert.ok(!flood.messages.some(({ type }) => type === 'refused'), 'each of them is a good message')
  const { refusals } = await runOf(url, id)
  assert.deepEqual(refusals, { 'rate-exceeded': 1 })
})

test('two Host headers are refused', async () => {
  const { port } = await startCoordinator()
  const { ended } = await opened(
    port,
    'GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\nConnection: close\r\n\r\n',
  )
  assert.match(await ended, /^HTTP\/1.1 400/)
})
