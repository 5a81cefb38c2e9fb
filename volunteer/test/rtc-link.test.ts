// Opening links and signalling, against made-up connections: what real WebRTC does only now and then.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  GridError,
  type LinkIdentity,
  linkProof,
  memberId,
  newIncarnation,
  packFrame,
  requireLinkProof,
  type MemberId,
} from '@starling-grid/protocol'
import { openPeerJsNetwork, type PeerLink, type SignallingAccess } from '@starling-grid/volunteer'
import { RECEIPT_BYTES } from '../src/link/flight-window.ts'
import { openSubflow } from '../src/link/rtc-subflow.ts'
import { type Signalled, SignalGate } from '../src/link/signal-gate.ts'
import { MadeUpChannel, MadeUpClient, MadeUpConnection, wire } from './made-up-connection.ts'

const near = memberId('a'.repeat(32))
const far = memberId('b'.repeat(32))

interface Opening {
  readonly connection: MadeUpConnection
  readonly link: Promise<PeerLink>
  readonly abort: AbortController
}

const openLink = async (...opening: Parameters<typeof openSubflow>): Promise<PeerLink> =>
  (await openSubflow(...opening)).link

function begin(dialled: boolean, milliseconds = 1000): Opening {
  const connection = new MadeUpConnection(far, dialled)
  const abort = new AbortController()
  return {
    connection,
    abort,
    link: openLink(connection, { self: near, dialled, milliseconds, signal: abort.signal }),
  }
}

const lost = (error: unknown): boolean => error instanceof GridError && error.code === 'link-lost'

test('the dialler greets first and has its link when the other side has greeted back', async () => {
  const { connection, link } = begin(true)
  connection.channel.open()
  assert.deepEqual(connection.channel.sent, ['greeting'])
  connection.channel.deliverFrame('greeting')
  assert.equal((await link).peer, far)
})

test('a connection that failed closes its link, though ICE and the channel still look alive', async () => {
  const { connection, link } = begin(true)
  connection.channel.open()
  connection.channel.deliverFrame('greeting')
  const open = await link
  connection.channel.bufferedAmount = 2 ** 30
  const waiting = open.send(new Uint8Array(10))
  connection.native.fail()
  await assert.rejects(waiting, lost)
  assert.ok(connection.closed || connection.channel.readyState === 'closed')
})

test('the answering side greets back, even when its channel was open before anybody looked', async () => {
  const { connection, link } = begin(false)
  connection.channel.readyState = 'open'
  connection.announce()
  assert.deepEqual(connection.channel.sent, [])
  connection.channel.deliverFrame('greeting')
  assert.deepEqual(connection.channel.sent, ['greeting'])
  const frames: number[] = []
  connection.channel.deliverFrame('heartbeat')
  ;(await link).onFrame = (bytes) => frames.push(bytes.byteLength)
  assert.equal(frames.length, 1)
})

const strangeBeginnings: readonly [what: string, data: unknown][] = [
  [
    'another frame',
    packFrame({ type: 'partial', generation: 0, step: 0, bucket: 0, hop: 0, offset: 0, payload: new Uint8Array(4) })
      .buffer,
  ],
  ['bytes that are no frame', new ArrayBuffer(50)],
  [
    'a greeting of 300 bytes',
    packFrame({ type: 'greeting', generation: 0, step: 0, bucket: 0, hop: 0, offset: 0, payload: new Uint8Array(300) })
      .buffer,
  ],
  ['text', 'hello'],
]
for (const [what, data] of strangeBeginnings)
  test(`a connection that begins with ${what} becomes no link`, async () => {
    const { connection, link } = begin(false)
    connection.announce()
    connection.channel.open()
    connection.channel.deliver(data)
    await assert.rejects(link, lost)
    assert.ok(connection.closed)
  })

test('a second channel on the same connection is closed', async () => {
  const { connection, link } = begin(false)
  connection.announce()
  connection.channel.open()
  connection.channel.deliverFrame('greeting')
  await link
  const second = new MadeUpChannel()
  connection.announce(second)
  assert.equal(second.readyState, 'closed')
  assert.equal(connection.closed, false)
})

test('a connection that hangs is given up in time and closed', async () => {
  const { connection, link } = begin(true, 20)
  await assert.rejects(link, /not open after 20 ms/)
  assert.ok(connection.closed)
})

test('a link that one side only could open is given up', async () => {
  const { connection, link } = begin(true, 20)
  connection.channel.open()
  await assert.rejects(link, lost)
  assert.ok(connection.closed)
})

test('an aborted opening rejects with the signal’s reason and closes', async () => {
  const { connection, link, abort } = begin(true)
  abort.abort(new Error('changed my mind'))
  await assert.rejects(link, /changed my mind/)
  assert.ok(connection.closed)
})

test('text on an open link closes it', async () => {
  const { connection, link } = begin(true)
  connection.channel.open()
  connection.channel.deliverFrame('greeting')
  const closed = new Promise<string>(
    (resolve) =>
      void link.then((open) => {
        open.onClose = resolve
      }),
  )
  await link
  connection.channel.deliver('hello')
  assert.match(await closed, /text/)
})

async function openedLink(): Promise<{ readonly channel: MadeUpChannel; readonly link: PeerLink }> {
  const { connection, link } = begin(true)
  connection.channel.open()
  connection.channel.deliverFrame('greeting')
  return { channel: connection.channel, link: await link }
}

const receiptOf = (bytes: number, next = 0): ArrayBuffer => Uint32Array.of(bytes, next).buffer

const chunk = packFrame({
  type: 'chunk',
  generation: 0,
  step: 0,
  bucket: 0,
  hop: 0,
  offset: 0,
  payload: new Uint8Array(60_000),
})

test('frames wait for the receipt of those under way, and no frame is lost in the wait', async () => {
  const { channel, link } = await openedLink()
  const greetingBytes = packFrame({
    type: 'greeting',
    generation: 0,
    step: 0,
    bucket: 0,
    hop: 0,
    offset: 0,
    payload: new TextEncoder().encode(JSON.stringify({ from: near })),
  }).byteLength
  const sends = Array.from({ length: 12 }, () => link.send(chunk))
  assert.equal(channel.sent.filter((type) => type === 'chunk').length, 3, '128 KiB and the frame across its border')
  channel.deliver(receiptOf(greetingBytes + 2 * chunk.byteLength))
  assert.ok(channel.sent.length > 4, 'the receipt made room')
  while (channel.sent.length < 13)
    channel.deliver(receiptOf(greetingBytes + (channel.sent.length - 1) * chunk.byteLength))
  await Promise.all(sends)
})

test('a link that gets frames says how many bytes came', async () => {
  const { channel } = await openedLink()
  channel.deliverFrame('chunk', new Uint8Array(20_000))
  assert.equal(channel.receipts, 0)
  channel.deliverFrame('chunk', new Uint8Array(20_000))
  assert.equal(channel.receipts, 1)
})

test('a channel that is closed natively, and throws at a receipt, ends its link and no process', async () => {
  const { channel, link } = await openedLink()
  const closed = new Promise<string>((resolve) => {
    link.onClose = resolve
  })
  channel.carry = () => assert.fail('the native channel is closed')
  channel.deliverFrame('chunk', new Uint8Array(40_000))
  assert.match(await closed, /the native channel is closed/)
})

test('a receipt of bytes that were not sent closes the link', async () => {
  const { channel, link } = await openedLink()
  const closed = new Promise<string>((resolve) => {
    link.onClose = resolve
  })
  channel.deliver(receiptOf(1_000_000))
  assert.match(await closed, /expected a receipt of at most \d+ bytes, got one of 1000000/)
})

const asText = (mark: string): string => Array.from({ length: 32 }, () => mark.repeat(2)).join(':')
const describe = (...marks: readonly string[]): { sdp: string } => ({
  sdp: ['v=0', ...marks.map((mark) => `a=fingerprint:sha-256 ${asText(mark)}`), ''].join('\r\n'),
})

async function newIdentity(): Promise<{ readonly id: MemberId; readonly identity: LinkIdentity }> {
  const keys = (await crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify'])) as CryptoKeyPair
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', keys.publicKey))
  const { incarnation, ...known } = newIncarnation(raw)
  const signer: LinkIdentity['signer'] = {
    sign: async (bytes) => new Uint8Array(await crypto.subtle.sign('Ed25519', keys.privateKey, bytes)),
    verify: async (publicKey, bytes, signature) =>
      crypto.subtle.verify(
        'Ed25519',
        await crypto.subtle.importKey('raw', publicKey, 'Ed25519', false, ['verify']),
        signature,
        bytes,
      ),
  }
  return { id: incarnation, identity: { ...known, signer } }
}

interface End {
  readonly id: MemberId
  readonly identity: LinkIdentity | undefined
  /** fingerprints of its own description and of the one that it got */
  readonly here: readonly string[]
  readonly there: readonly string[]
}

/** Two ends of one channel: what one sends the other gets. */
function linked(a: End, b: End): { readonly links: Promise<PeerLink>[]; readonly connections: MadeUpConnection[] } {
  const sides = [
    { self: a, connection: new MadeUpConnection(b.id, true), dialled: true },
    { self: b, connection: new MadeUpConnection(a.id, false), dialled: false },
  ]
  const [first, second] = sides.map(({ connection }) => connection.channel)
  assert.ok(first && second)
  wire(first, second)
  const links = sides.map(({ self, connection, dialled }) => {
    connection.native.localDescription = describe(...self.here)
    connection.native.remoteDescription = describe(...self.there)
    const { identity } = self
    const { signal } = new AbortController()
    return openLink(connection, { self: self.id, identity, dialled, milliseconds: 2000, signal })
  })
  const connections = sides.map(({ connection }) => connection)
  connections[1]?.announce()
  second.open()
  first.open()
  return { links, connections }
}

test('threat 31: two members whose descriptions arrived unchanged prove their keys and have a link', async () => {
  const [a, b] = [await newIdentity(), await newIdentity()]
  const { links } = linked({ ...a, here: ['a'], there: ['b'] }, { ...b, here: ['b'], there: ['a'] })
  const [one, other] = await Promise.all(links)
  assert.deepEqual([one?.peer, other?.peer], [b.id, a.id])
})

const swaps: readonly [what: string, change: (a: End, b: End, stranger: End) => readonly [End, End]][] = [
  [
    'swapped both fingerprints for its own',
    (a, b) => [
      { ...a, there: ['c'] },
      { ...b, there: ['d'] },
    ],
  ],
  ['swapped the fingerprint that the dialler sees', (a, b) => [{ ...a, there: ['c'] }, b]],
  ['swapped the fingerprint that the answering side sees', (a, b) => [a, { ...b, there: ['c'] }]],
  ['added a fingerprint', (a, b) => [{ ...a, there: ['b', 'c'] }, b]],
  ['left all fingerprints out', (a, b) => [{ ...a, there: [] }, b]],
  ['put another key in the place of the peer', (a, b, { identity }) => [a, { ...b, identity }]],
  ['put a peer without a key there', (a, b) => [a, { ...b, identity: undefined }]],
]
for (const [what, change] of swaps)
  test(`threat 31: signalling that ${what} opens no link`, async () => {
    const [a, b, c] = [await newIdentity(), await newIdentity(), await newIdentity()]
    const [one, other] = change(
      { ...a, here: ['a'], there: ['b'] },
      { ...b, here: ['b'], there: ['a'] },
      { ...c, here: [], there: [] },
    )
    const { links, connections } = linked(one, other)
    const ends = await Promise.allSettled(links)
    assert.equal(ends[0]?.status, 'rejected', 'the dialler sends nothing')
    const open = connections.filter(({ closed, channel }) => !closed && channel.readyState !== 'closed')
    assert.equal(open.length, 0, 'neither side keeps the channel')
  })

test('threat 31: a proof of one link is worth nothing on another', async () => {
  const [a, b] = [await newIdentity(), await newIdentity()]
  const ends = [
    { member: a.id, fingerprint: 'sha-256 a' },
    { member: b.id, fingerprint: 'sha-256 b' },
  ] as const
  const proof = await linkProof(a.identity, ...ends)
  await requireLinkProof(proof, b.identity, ...ends)
  const [from, to] = ends
  for (const [there, here] of [
    [from, { ...to, fingerprint: 'sha-256 c' }],
    [{ ...from, fingerprint: 'sha-256 c' }, to],
    [from, { ...to, member: a.id }],
    [to, from],
  ] as const)
    await assert.rejects(requireLinkProof(proof, b.identity, there, here), { code: 'identity-unproven' })
})

const access: SignallingAccess = {
  url: 'http://localhost:8080',
  path: '/signalling',
  self: near,
  token: 'a b',
  iceServers: [],
}
const patience = new AbortController().signal
const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5))

async function openNetwork() {
  const clients: MadeUpClient[] = []
  const opening = openPeerJsNetwork(
    {
      createPeer: (id, options) => {
        assert.equal(id, near)
        assert.deepEqual(
          { ...options, token: '' },
          {
            host: 'localhost',
            port: 8080,
            path: '/signalling',
            secure: false,
            token: '',
            config: { iceServers: [], local: true },
          },
        )
        const client = new MadeUpClient()
        clients.push(client)
        return client
      },
    },
    access,
  )
  clients[0]?.emit('open')
  return { network: await opening, clients, client: clients[0] ?? assert.fail('no client') }
}

test('a dial is tried again when signalling does not know the member yet', async () => {
  const { network, client } = await openNetwork()
  const dial = network.dial(far, patience)
  client.emit('error', { type: 'peer-unavailable', message: `Could not connect to peer ${far}` })
  while (client.connections.length < 2) await soon()
  assert.ok(client.connections[0]?.closed)
  client.complete(1)
  assert.equal((await dial).peer, far)
  network.stop()
})

test('a dial that never opens is given up when the time that the coordinator gives links is over', async () => {
  const { network } = await openNetwork()
  network.reconnect({ ...access, linkOpenMs: 40 })
  await assert.rejects(network.dial(far, patience), { code: 'link-timeout', message: /within 40 ms/ })
  network.stop()
})

test('links outlive the client that signalled for them; dials go through the new one', async () => {
  const { network, clients, client } = await openNetwork()
  const dial = network.dial(far, patience)
  client.complete(0)
  const link = await dial
  network.reconnect({ ...access, token: 'new' })
  assert.ok(client.disconnected)
  assert.equal(client.destroyed, false)
  clients[1]?.emit('open')
  const second = network.dial(far, patience)
  clients[1]?.complete(0)
  await second
  await link.send(
    packFrame({ type: 'heartbeat', generation: 0, step: 0, bucket: 0, hop: 0, offset: 0, payload: new Uint8Array(0) }),
  )
  network.stop()
})

test('links are refused until the volunteer accepts them, and never more than four of one member', async () => {
  const { network, client } = await openNetwork()
  assert.ok((await arrive(client, 'dc_0')).closed)
  const links: PeerLink[] = []
  network.onLink = (link) => links.push(link)
  for (let i = 1; i < 5; i++) assert.equal((await arrive(client, `dc_${i}`)).closed, false)
  assert.ok((await arrive(client, 'dc_5')).closed)
  links[0]?.close('making room')
  await soon()
  assert.equal((await arrive(client, 'dc_6')).closed, false)
  network.stop()
})

async function arrive(client: MadeUpClient, label: string, from = far, offered = label): Promise<MadeUpConnection> {
  const connection = Object.assign(new MadeUpConnection(from, false), { label: offered })
  connection.channel.label = label
  client.emit('connection', connection)
  connection.announce()
  connection.channel.open()
  connection.channel.deliverFrame('greeting')
  await soon()
  return connection
}

test('a further connection joins the link that its label names, of its own member, up to four', async () => {
  const { network, client } = await openNetwork()
  const links: PeerLink[] = []
  network.onLink = (link) => links.push(link)
  await arrive(client, 'dc_1')
  const joined = [await arrive(client, 'joins_dc_1'), await arrive(client, 'joins_dc_1')]
  assert.equal(links.length, 1, 'they are no links of their own')
  assert.ok((await arrive(client, 'joins_dc_2')).closed, 'there is no such link')
  const stranger = memberId('c'.repeat(32))
  await arrive(client, 'dc_3', stranger)
  assert.ok((await arrive(client, 'joins_dc_1', stranger)).closed, 'the link is of another member')
  assert.equal((await arrive(client, 'joins_dc_1')).closed, false)
  assert.ok((await arrive(client, 'joins_dc_1')).closed, 'four connections are enough')
  const closed = new Promise<string>((resolve) => {
    if (links[0] !== undefined) links[0].onClose = resolve
  })
  joined[0]?.channel.close()
  assert.match(await closed, /closed by the other side/, 'a link ends with any of its connections')
  assert.equal(joined[1]?.channel.readyState, 'closed')
  network.stop()
})

test('a link that is closed at once was one: its channel throws before it says that it is closed', async () => {
  const { network, client } = await openNetwork()
  const reasons: string[] = []
  network.onLink = (link) => {
    link.onClose = (reason) => reasons.push(reason)
  }
  const connection = new MadeUpConnection(far, false)
  connection.channel.carry = ({ byteLength }) => assert.ok(byteLength > RECEIPT_BYTES, 'it is closed natively')
  client.emit('connection', connection)
  connection.announce()
  connection.channel.open()
  connection.channel.deliverFrame('greeting')
  await soon()
  assert.equal(reasons.length, 1)
  assert.match(reasons[0] ?? '', /closed natively/)
  network.stop()
})

test('a channel whose label is not the one that was offered is closed', async () => {
  const { network, client } = await openNetwork()
  const links: PeerLink[] = []
  network.onLink = (link) => links.push(link)
  await arrive(client, 'dc_1')
  for (const [offered, label] of [
    ['joins_dc_1', 'dc_2'],
    ['dc_2', 'joins_dc_1'],
  ] as const)
    assert.equal((await arrive(client, label, far, offered)).channel.readyState, 'closed')
  assert.equal(links.length, 1)
  network.stop()
})

test('of one member four links and eight connections are answered', async () => {
  const { network, client } = await openNetwork()
  network.onLink = () => undefined
  network.expect([far])
  for (let i = 0; i < 4; i++) await arrive(client, `dc_${i}`)
  client.socket.says(offerOf(far))
  assert.equal(client.shown.length, 0, 'a fifth link')
  const further = { ...offerOf(far), payload: { ...offerOf(far).payload, label: 'joins_dc_1' } }
  client.socket.says(further)
  assert.equal(client.shown.length, 1)
  for (let i = 0; i < 4; i++) await arrive(client, `joins_dc_${i}`)
  client.socket.says(further)
  assert.equal(client.shown.length, 1, 'a ninth connection')
  network.stop()
})

test('a stop ends links, dials and signalling, and lets go of all connections', async () => {
  const { network, client } = await openNetwork()
  const dial = network.dial(far, patience)
  client.complete(0)
  const link = await dial
  const closed = new Promise<string>((resolve) => {
    link.onClose = resolve
  })
  const waiting = network.dial(far, patience)
  network.stop()
  await assert.rejects(waiting, { code: 'cancelled' })
  assert.match(await closed, /stopped/)
  assert.ok(client.disconnected)
  while (!client.destroyed) await soon()
})

test('signalling that cannot be opened is said at once', async () => {
  const client = new MadeUpClient()
  const opening = openPeerJsNetwork({ createPeer: () => client }, access)
  client.emit('error', { type: 'network', message: 'Lost connection to server.' })
  await assert.rejects(opening, (error) => error instanceof GridError && error.code === 'coordinator-lost')
})

const offerOf = (src: MemberId, connectionId = 'dc_1') => ({
  type: 'OFFER',
  src,
  payload: { type: 'data', connectionId, label: connectionId, serialization: 'raw', reliable: true, sdp: {} },
})
const candidateOf = (src: MemberId) => ({ type: 'CANDIDATE', src, payload: { type: 'data', connectionId: 'dc_1' } })

test('threat 28: WebRTC gets no offer of a member outside the generation, and gathers no candidate', async () => {
  const { network, client } = await openNetwork()
  network.onLink = () => undefined
  client.socket.says(offerOf(far))
  assert.deepEqual(client.shown, [], 'it expects no member before the first order')
  const other = memberId('c'.repeat(32))
  network.expect([other])
  client.socket.says(offerOf(far))
  client.socket.says(candidateOf(far))
  client.socket.says(offerOf(other))
  assert.deepEqual(client.shown, [offerOf(other)])
  network.expect([])
  client.socket.says(offerOf(other, 'dc_2'))
  assert.equal(client.shown.length, 1, 'its generation is over')
  network.stop()
})

test('an offer that comes before the order that names its member waits for the order', async () => {
  const { network, client } = await openNetwork()
  network.onLink = () => undefined
  client.connections.push(new MadeUpConnection(far, false))
  client.socket.says(offerOf(far))
  client.socket.says(candidateOf(far))
  assert.deepEqual(client.shown, [])
  network.expect([far])
  assert.deepEqual(client.shown, [offerOf(far), candidateOf(far)])
  network.expect([far])
  assert.equal(client.shown.length, 2, 'once')
  network.stop()
})

test('who is dialled may answer, and may not offer', async () => {
  const { network, client } = await openNetwork()
  network.onLink = () => undefined
  const dial = network.dial(far, patience)
  client.socket.says({ ...candidateOf(far), type: 'ANSWER' })
  client.socket.says(candidateOf(far))
  client.socket.says(offerOf(far))
  assert.deepEqual(
    client.shown.map((message) => (message as { type: string }).type),
    ['ANSWER', 'CANDIDATE'],
  )
  client.complete(0)
  await dial
  network.stop()
})

const strangeSignals: readonly unknown[] = [
  null,
  'text',
  {},
  { type: 'OFFER' },
  { ...offerOf(far), src: undefined },
  { ...offerOf(far), payload: null },
  { ...offerOf(far), payload: { ...offerOf(far).payload, type: 'media' } },
  { ...offerOf(far), payload: { ...offerOf(far).payload, serialization: 'constructor' } },
  { ...candidateOf(far), payload: undefined },
  { type: 'ERROR' },
]

for (const message of strangeSignals)
  test(`a coordinator that signals ${JSON.stringify(message)} neither ends a volunteer nor opens a link`, async () => {
    const { network, client } = await openNetwork()
    network.onLink = () => undefined
    network.expect([far])
    client.socket.says(message)
    assert.deepEqual(client.shown, [])
    network.stop()
  })

test('what waits for members that are not expected is bounded', () => {
  const gate = new SignalGate()
  const ids = Array.from({ length: 100 }, (_, i) => memberId(i.toString(16).padStart(32, '0')))
  for (const id of ids)
    for (let i = 0; i < 1000; i++) assert.equal(gate.takes(offerOf(id, `dc_${i}`) as Signalled, 0), false)
  assert.equal(gate.expect(ids, 1).length, 16 * 44)
  assert.equal(gate.takes(offerOf(memberId('d'.repeat(32))) as Signalled, 0), false)
  assert.deepEqual(gate.expect([memberId('d'.repeat(32))], 4001), [], 'an old one is forgotten')
})
