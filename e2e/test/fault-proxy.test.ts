// The proxy that chaos puts before a coordinator: what it breaks is broken, and all else passes unchanged.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { WebSocket, WebSocketServer } from 'ws'
import { FaultProxy } from '../src/fault-proxy.ts'

describe('a fault proxy', () => {
  let server: Server
  let sockets: WebSocketServer
  let proxy: FaultProxy
  let requests = 0

  before(async () => {
    server = createServer((request, response) => {
      requests++
      const parts: Buffer[] = []
      request.on('data', (part: Buffer) => parts.push(part))
      request.on('end', () => response.end(String(Buffer.concat(parts).length)))
    })
    sockets = new WebSocketServer({ server })
    sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(String(data))))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    proxy = await FaultProxy.start(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, () => 1)
  })

  after(async () => {
    await proxy.stop()
    sockets.close()
    server.close()
    server.closeAllConnections()
  })

  test('passes requests and sockets on unchanged', async () => {
    const body = new Uint8Array(3_000_000)
    assert.equal(await (await fetch(proxy.url, { method: 'POST', body })).text(), '3000000')
    const socket = new WebSocket(proxy.url)
    await once(socket, 'open')
    socket.send('hello')
    assert.equal(String((await once(socket, 'message'))[0]), 'hello')
    socket.close()
    await once(socket, 'close')
  })

  test('loses the answer of a request that arrived, and no later one', async () => {
    const before = requests
    proxy.loseAnswers(1)
    await assert.rejects(fetch(proxy.url))
    assert.ok(requests > before)
    assert.equal(await (await fetch(proxy.url)).text(), '0')
    assert.equal(proxy.hits.answersLost, 1)
  })

  test('slows uploads down and passes them whole', async () => {
    const began = Date.now()
    proxy.slowUploads(1_000_000, 60_000)
    assert.equal(await (await fetch(proxy.url, { method: 'POST', body: new Uint8Array(300_000) })).text(), '300000')
    assert.ok(Date.now() - began >= 250)
    proxy.slowUploads(1_000_000, 0)
  })
})
