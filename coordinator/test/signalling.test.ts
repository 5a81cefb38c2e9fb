// The PeerJS wire protocol as PeerJS clients see it, and what it refuses to pass on.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import fastifyWebsocket from '@fastify/websocket'
import { CLOSE_DROPPED, type ErrorCode, type MemberId, newMemberId, sessionProtocols } from '@starling-grid/protocol'
import Fastify from 'fastify'
import { WebSocket } from 'ws'
import { openPeerNetwork } from '../../client-node/src/rtc-link.ts'
import { readSignal, withSeenAddress } from '../src/net/signalling-messages.ts'
import { registerSignalling, type Signalling } from '../src/net/signalling.ts'

interface Server {
  readonly url: string
  readonly signalling: Signalling
  readonly refusals: ErrorCode[]
  readonly forbidden: Set<MemberId>
}

const tokenOf = (id: MemberId): string => `token-of-${id}`

const closers: (() => Promise<void>)[] = []
after(() => Promise.all(closers.map((close) => close())))

/** paths and queries that were asked for */
const addresses: string[] = []

async function startServer(shareNetwork = true): Promise<Server> {
  const app = Fastify()
  await app.register(fastifyWebsocket)
  app.addHook('onRequest', async ({ url }) => void addresses.push(url))
  const refusals: ErrorCode[] = []
  const forbidden = new Set<MemberId>()
  const signalling = registerSignalling(app, {
    path: '/signalling',
    authenticate: (id, token) => token === tokenOf(id),
    mayTalk: (src, dst) => !forbidden.has(src) && !forbidden.has(dst),
    shareNetwork: () => shareNetwork,
    onRefusal: (code) => refusals.push(code),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  closers.push(() => app.close())
  const { port } = app.server.address() as AddressInfo
  return { url: `127.0.0.1:${port}`, signalling, refusals, forbidden }
}

class Client {
  readonly id: MemberId
  readonly socket: WebSocket
  readonly #inbox: unknown[] = []
  readonly #readers: ((message: unknown) => void)[] = []

  constructor(server: Server, id = newMemberId(), token = tokenOf(id)) {
    this.id = id
    this.socket = new WebSocket(
      `ws://${server.url}/signalling/peerjs?key=peerjs&id=${id}&version=1.5.5`,
      sessionProtocols(token),
    )
    this.socket.on('message', (data: Buffer) => this.#take(JSON.parse(data.toString('utf8'))))
    this.socket.on('error', () => {})
  }

  static async open(server: Server, id?: MemberId): Promise<Client> {
    const client = new Client(server, id)
    assert.deepEqual(await client.next(), { type: 'OPEN' })
    return client
  }

  next(): Promise<unknown> {
    if (this.#inbox.length > 0) return Promise.resolve(this.#inbox.shift())
    return new Promise((resolve) => this.#readers.push(resolve))
  }

  send(message: object): void {
    this.socket.send(JSON.stringify(message))
  }

  #take(message: unknown): void {
    const reader = this.#readers.shift()
    if (reader === undefined) this.#inbox.push(message)
    else reader(message)
  }
}

const sdp = [
  'v=0',
  'o=- 1 2 IN IP4 127.0.0.1',
  's=-',
  't=0 0',
  'm=application 9 UDP/DTLS/SCTP webrtc-datachannel',
  'c=IN IP4 0.0.0.0',
  '',
].join('\r\n')
const offerTo = (dst: MemberId, description = sdp) => ({
  type: 'OFFER',
  dst,
  payload: {
    type: 'data',
    connectionId: 'dc_1',
    label: 'dc_1',
    reliable: true,
    serialization: 'raw',
    sdp: { type: 'offer', sdp: description },
  },
})
const answerTo = (dst: MemberId) => ({
  type: 'ANSWER',
  dst,
  payload: { type: 'data', connectionId: 'dc_1', sdp: { type: 'answer', sdp } },
})
const hostCandidate = 'candidate:1 1 UDP 2122317823 192.168.1.5 50000 typ host'
const candidateTo = (dst: MemberId, candidate = hostCandidate) => ({
  type: 'CANDIDATE',
  dst,
  payload: { type: 'data', connectionId: 'dc_1', candidate: { candidate, sdpMid: '0', sdpMLineIndex: 0 } },
})

async function until(condition: () => boolean): Promise<void> {
  for (const end = performance.now() + 5000; !condition(); await new Promise((resolve) => setTimeout(resolve, 2)))
    assert.ok(performance.now() < end, 'waited too long')
}

test('offer, answer, candidate and leave reach their destination under the sender’s name', async () => {
  const server = await startServer()
  const [near, far] = [await Client.open(server), await Client.open(server)]
  near.send({ ...offerTo(far.id), src: 'ffffffffffffffffffffffffffffffff' })
  assert.deepEqual(await far.next(), { type: 'OFFER', src: near.id, payload: offerTo(far.id).payload })
  far.send(answerTo(near.id))
  assert.deepEqual(await near.next(), { type: 'ANSWER', src: far.id, payload: answerTo(near.id).payload })
  near.send({ type: 'HEARTBEAT' })
  near.send(candidateTo(far.id))
  assert.deepEqual(await far.next(), { type: 'CANDIDATE', src: near.id, payload: candidateTo(far.id).payload })
  near.send({ type: 'LEAVE', dst: far.id })
  assert.deepEqual(await far.next(), { type: 'LEAVE', src: near.id })
  assert.deepEqual(server.refusals, [])
})

const door = { fingerprint: 'f'.repeat(64), port: 50_000, addresses: ['192.168.1.5', '93.184.216.34'] }

test('a knock and the door that answers it reach members that were introduced', async () => {
  const server = await startServer()
  const [near, far] = [await Client.open(server), await Client.open(server)]
  near.send({ type: 'KNOCK', dst: far.id, payload: door, extra: 1 })
  assert.deepEqual(await far.next(), { type: 'KNOCK', src: near.id, payload: door })
  far.send({ type: 'DOOR', dst: near.id, payload: door })
  assert.deepEqual(await near.next(), { type: 'DOOR', src: far.id, payload: door })
  far.send({ type: 'DOOR', dst: near.id })
  assert.deepEqual(await near.next(), { type: 'DOOR', src: far.id })
  assert.deepEqual(server.refusals, [])
})

test('threat 27: absent members and those that were not introduced look like members without a door', async () => {
  const server = await startServer()
  const [near, far] = [await Client.open(server), await Client.open(server)]
  const absent = newMemberId()
  near.send({ type: 'KNOCK', dst: absent, payload: door })
  assert.deepEqual(await near.next(), { type: 'DOOR', src: absent })
  server.forbidden.add(far.id)
  near.send({ type: 'KNOCK', dst: far.id, payload: door })
  assert.deepEqual(await near.next(), { type: 'DOOR', src: far.id })
  await until(() => server.refusals.length === 1)
  assert.deepEqual(server.refusals, ['message-unexpected'])
})

test('threat 28: members of another network hear no private address of a door', async () => {
  const server = await startServer(false)
  const [near, far] = [await Client.open(server), await Client.open(server)]
  near.send({ type: 'KNOCK', dst: far.id, payload: door })
  assert.deepEqual(await far.next(), {
    type: 'KNOCK',
    src: near.id,
    payload: { ...door, addresses: ['93.184.216.34'] },
  })
})

for (const wrong of [
  { ...door, port: 22 },
  { ...door, addresses: ['printer.local'] },
  { ...door, addresses: Array.from({ length: 9 }, () => '93.184.216.34') },
  { ...door, fingerprint: 'x' },
  undefined,
])
  test(`threat 29: a knock with the door ${JSON.stringify(wrong)} is refused`, async () => {
    const server = await startServer()
    const [near, far] = [await Client.open(server), await Client.open(server)]
    near.send({ type: 'KNOCK', dst: far.id, payload: wrong })
    await until(() => server.refusals.length === 1)
    assert.deepEqual(server.refusals, ['message-malformed'])
  })

test('a door is known by the address that its member comes from, too', () => {
  const signal = readSignal(JSON.stringify({ type: 'DOOR', dst: newMemberId(), payload: door }))
  const addressesOf = (seen: string): unknown => {
    const passed = withSeenAddress(signal, seen)
    return passed.type === 'DOOR' && passed.payload?.addresses
  }
  assert.deepEqual(addressesOf('::ffff:93.184.216.99'), [...door.addresses, '93.184.216.99'])
  assert.deepEqual(addressesOf('93.184.216.34'), door.addresses)
  assert.deepEqual(addressesOf('10.0.0.1'), door.addresses)
})

test('fields that no volunteer needs are not passed on', async () => {
  const server = await startServer()
  const [near, far] = [await Client.open(server), await Client.open(server)]
  const offer = offerTo(far.id)
  near.send({ ...offer, extra: 1, payload: { ...offer.payload, metadata: { huge: 'x' }, extra: 2 } })
  assert.deepEqual(await far.next(), { type: 'OFFER', src: near.id, payload: offer.payload })
})

test('a socket without its session’s token is not opened', async () => {
  const server = await startServer()
  for (const client of [
    new Client(server, newMemberId(), 'guess'),
    new Client(server, 'strange id' as MemberId, 'guess'),
  ]) {
    const [, response] = (await once(client.socket, 'unexpected-response')) as [unknown, { statusCode: number }]
    assert.equal(response.statusCode, 401)
  }
  assert.deepEqual(server.refusals, ['session-unknown', 'session-unknown'])
  assert.equal(server.signalling.connected, 0)
})

test('an offer to an unknown member expires at once', async () => {
  const server = await startServer()
  const near = await Client.open(server)
  const absent = newMemberId()
  near.send(offerTo(absent))
  assert.deepEqual(await near.next(), { type: 'EXPIRE', src: absent })
  assert.deepEqual(server.refusals, [])
})

test('an offer to a member that is no neighbour looks the same and is counted', async () => {
  const server = await startServer()
  const [near, far] = [await Client.open(server), await Client.open(server)]
  server.forbidden.add(far.id)
  near.send(offerTo(far.id))
  assert.deepEqual(await near.next(), { type: 'EXPIRE', src: far.id })
  await until(() => server.refusals.length === 1)
  assert.deepEqual(server.refusals, ['message-unexpected'])
  const absent = newMemberId()
  server.forbidden.add(absent)
  near.send(offerTo(absent))
  assert.deepEqual(await near.next(), { type: 'EXPIRE', src: absent })
  await until(() => server.refusals.length === 2) // it costs the same whether a forbidden member is there or not
  server.forbidden.clear()
  near.send(candidateTo(far.id))
  assert.deepEqual(await far.next(), { type: 'CANDIDATE', src: near.id, payload: candidateTo(far.id).payload })
})

test('a new socket of a member replaces the old one', async () => {
  const server = await startServer()
  const old = await Client.open(server)
  const oldClosed = once(old.socket, 'close')
  const fresh = await Client.open(server, old.id)
  assert.equal((await oldClosed)[0], 4001)
  const other = await Client.open(server)
  other.send({ type: 'LEAVE', dst: old.id })
  assert.deepEqual(await fresh.next(), { type: 'LEAVE', src: other.id })
  assert.equal(server.signalling.connected, 2)
})

test('a replaced socket that goes on sending is not heard', async () => {
  const server = await startServer()
  const [old, other] = [await Client.open(server), await Client.open(server)]
  old.socket.pause() // it does not read that it is closed
  const fresh = await Client.open(server, old.id)
  old.send(offerTo(other.id))
  old.send({ type: 'nonsense' })
  const closed = once(old.socket, 'close')
  old.socket.resume()
  await closed
  fresh.send({ type: 'LEAVE', dst: other.id })
  assert.deepEqual(await other.next(), { type: 'LEAVE', src: fresh.id })
  assert.deepEqual(server.refusals, [])
})

test('a member whose session ended is dropped', async () => {
  const server = await startServer()
  const client = await Client.open(server)
  const closed = once(client.socket, 'close')
  server.signalling.drop(client.id)
  assert.equal((await closed)[0], CLOSE_DROPPED)
  await until(() => server.signalling.connected === 0)
})

const strange: readonly [what: string, message: (dst: MemberId) => object | string, code: ErrorCode][] = [
  ['no JSON', () => '{', 'message-malformed'],
  ['a message without type', () => ({}), 'message-malformed'],
  ['an unknown type', (dst) => ({ ...offerTo(dst), type: 'EXPIRE' }), 'message-malformed'],
  ['a destination that is no member id', () => offerTo('*' as MemberId), 'message-malformed'],
  [
    'a media connection',
    (dst) => ({ ...offerTo(dst), payload: { ...offerTo(dst).payload, type: 'media' } }),
    'message-malformed',
  ],
  [
    'another serialization',
    (dst) => ({ ...offerTo(dst), payload: { ...offerTo(dst).payload, serialization: 'constructor' } }),
    'message-malformed',
  ],
  ['a prototype in disguise', () => '{"type":"OFFER","__proto__":{"x":1}}', 'message-malformed'],
  [
    'a session description with video',
    (dst) => offerTo(dst, `${sdp}m=video 9 UDP/TLS/RTP/SAVPF 96\r\n`),
    'message-malformed',
  ],
  ['a session description without data', (dst) => offerTo(dst, 'v=0\r\n'), 'message-malformed'],
  ['control characters in a session description', (dst) => offerTo(dst, `${sdp}a=x\u0000\r\n`), 'message-malformed'],
  ['a session description of 17 kB', (dst) => offerTo(dst, `${sdp}a=${'x'.repeat(17_000)}\r\n`), 'message-malformed'],
  [
    '21 candidates in a session description',
    (dst) => offerTo(dst, sdp + `a=${hostCandidate}\r\n`.repeat(21)),
    'message-malformed',
  ],
  [
    'a candidate at a service port',
    (dst) => candidateTo(dst, hostCandidate.replace('50000', '22')),
    'message-malformed',
  ],
  [
    'a candidate in a session description at a service port',
    (dst) => offerTo(dst, `${sdp}a=${hostCandidate.replace('50000', '80')}\r\n`),
    'message-malformed',
  ],
  ['a candidate with line breaks', (dst) => candidateTo(dst, `${hostCandidate}\r\na=x`), 'message-malformed'],
  ['a message of 30 kB', (dst) => ({ ...offerTo(dst), padding: 'x'.repeat(30_000) }), 'message-too-large'],
]

for (const [what, message, code] of strange)
  test(`not passed on: ${what}`, async () => {
    const server = await startServer()
    const [near, far] = [await Client.open(server), await Client.open(server)]
    const text = message(far.id)
    near.socket.send(typeof text === 'string' ? text : JSON.stringify(text))
    near.send({ type: 'LEAVE', dst: far.id })
    assert.deepEqual(await far.next(), { type: 'LEAVE', src: near.id })
    assert.deepEqual(server.refusals, [code])
  })

test('candidates of active TCP and of IPv6 and of mDNS pass', async () => {
  const server = await startServer()
  const [near, far] = [await Client.open(server), await Client.open(server)]
  for (const candidate of [
    'candidate:2 1 tcp 1518280447 10.0.0.2 9 typ host tcptype active generation 0 ufrag abcd network-id 1',
    'candidate:3 1 UDP 2122317567 fe80::1:2 41234 typ host',
    'candidate:4 1 udp 2113937151 0f6f3a5e-6f0c-4c1a-9f31-4a4f3a4b5c6d.local 53211 typ host generation 0',
    'candidate:5 1 udp 1677729535 203.0.113.7 61000 typ srflx raddr 0.0.0.0 rport 0',
  ]) {
    near.send(candidateTo(far.id, candidate))
    assert.deepEqual(await far.next(), {
      type: 'CANDIDATE',
      src: near.id,
      payload: candidateTo(far.id, candidate).payload,
    })
  }
})

test('a client that floods is cut off, others go on', async () => {
  const server = await startServer()
  const [flood, near, far] = [await Client.open(server), await Client.open(server), await Client.open(server)]
  const closed = once(flood.socket, 'close')
  for (let i = 0; i < 1000; i++) flood.send({ type: 'HEARTBEAT' })
  await closed
  assert.ok(server.refusals.includes('rate-exceeded'))
  near.send({ type: 'LEAVE', dst: far.id })
  assert.deepEqual(await far.next(), { type: 'LEAVE', src: near.id })
})

test('a client that keeps sending nonsense is cut off', async () => {
  const server = await startServer()
  const client = await Client.open(server)
  const closed = once(client.socket, 'close')
  for (let i = 0; i < 12; i++) client.socket.send('nonsense')
  await closed
})

test('who asks for an id gets one', async () => {
  const server = await startServer()
  const response = await fetch(`http://${server.url}/signalling/peerjs/id`)
  assert.match(await response.text(), /^[0-9a-f]{32}$/)
})

const publicCandidate = 'candidate:1 1 UDP 1686052863 203.0.113.9 50000 typ srflx raddr 192.168.1.5 rport 50001'
const privateCandidate = 'candidate:2 1 UDP 2130706431 192.168.1.5 50001 typ host'

test('threat 28: volunteers of other networks get no private address and no machine name of a member', async () => {
  const server = await startServer(false)
  const [near, far] = [await Client.open(server), await Client.open(server)]
  near.send(offerTo(far.id, `${sdp}a=${privateCandidate}\r\na=${publicCandidate}\r\n`))
  for (const local of [
    privateCandidate,
    privateCandidate.replace('192.168.1.5', 'fd00::2'),
    privateCandidate.replace('192.168.1.5', 'f3a1-77.local'),
    privateCandidate.replace('192.168.1.5', '127.0.0.1'),
  ])
    near.send(candidateTo(far.id, local))
  near.send(candidateTo(far.id, publicCandidate))
  const offer = JSON.stringify(await far.next())
  assert.match(offer, /203\.0\.113\.9/)
  assert.doesNotMatch(offer, /192\.168/)
  const candidate = await far.next()
  assert.match(
    JSON.stringify(candidate),
    /203\.0\.113\.9 50000 typ srflx raddr 0\.0\.0\.0 rport 9/,
    'the first candidate that is passed on',
  )
  assert.deepEqual(server.refusals, [], 'an honest volunteer sends them without knowing')
})

test('threat 29: at most 20 candidates of a connection are passed on, those in the offer included', async () => {
  const server = await startServer()
  const [near, far] = [await Client.open(server), await Client.open(server)]
  const many = Array.from(
    { length: 15 },
    (_, i) => `a=${publicCandidate.replace('50000', String(50_000 + i))}\r\n`,
  ).join('')
  near.send(offerTo(far.id, sdp + many))
  for (let i = 0; i < 7; i++) near.send(candidateTo(far.id, publicCandidate))
  near.send({ type: 'LEAVE', dst: far.id })
  const heard: unknown[] = []
  for (let message = await far.next(); (message as { type: string }).type !== 'LEAVE'; message = await far.next())
    heard.push(message)
  assert.equal(heard.length, 1 + 5)
  assert.deepEqual(server.refusals, ['message-unexpected', 'message-unexpected'])
})

test('threat 4: a session token is in no address, and a token in an address opens nothing', async () => {
  const server = await startServer()
  const self = newMemberId()
  const access = { url: `http://${server.url}`, path: '/signalling', self, token: tokenOf(self), iceServers: [] }
  const network = await openPeerNetwork(access)
  assert.equal(server.signalling.connected, 1)
  const asked = addresses.filter((address) => address.includes(self))
  assert.equal(asked.length, 1)
  assert.doesNotMatch(asked.join(), /token/)
  network.stop()
  const inAddress = new WebSocket(`ws://${server.url}/signalling/peerjs?id=${self}&token=${tokenOf(self)}`)
  const [, response] = (await once(inAddress, 'unexpected-response')) as [unknown, { statusCode: number }]
  assert.equal(response.statusCode, 401)
})
