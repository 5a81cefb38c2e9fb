// The least that a server of leases does: the same messages over the same sockets, and nothing decided or kept. What
// this machine's sockets and HTTP cost, beside which the coordinator is measured.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { ROUTES } from '@starling-grid/protocol'
import { WebSocketServer } from 'ws'

let leaseEpoch = 0
const base = { v: 0, id: '0'.repeat(64) }
const terms = { id: 'bare', modelHash: '0'.repeat(64) }

const server = createServer((request, response) => {
  request.resume()
  request.once('end', () => response.end(JSON.stringify({ verdict: 'received', message: 'for version 1' })))
})
const sockets = new WebSocketServer({ server, path: ROUTES.volunteer, perMessageDeflate: false })
sockets.on('connection', (socket) => {
  const say = (message: object): void => socket.send(JSON.stringify(message))
  say({ type: 'challenge', nonce: '0'.repeat(64) })
  socket.on('message', (data) => {
    const { type } = JSON.parse(String(data)) as { type: string }
    if (type === 'hello') say({ type: 'welcome', session: '0'.repeat(64), job: terms })
    if (type === 'ready') say({ type: 'async', job: terms.id, fence: 1, generation: 1, modeEpoch: 1 })
    if (type === 'lease-request')
      say({ type: 'grant', modeEpoch: 1, base, leases: [{ block: `0:${leaseEpoch}`, leaseEpoch: leaseEpoch++ }] })
  })
})
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo
  process.send?.({ url: `http://127.0.0.1:${port}` })
})
process.once('disconnect', () => process.exit())
