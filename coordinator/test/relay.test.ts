// Links through the coordinator: who may have one, what passes, and how little of it waits here (R18).
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import fastifyWebsocket from '@fastify/websocket'
import {
  type ErrorCode,
  LINK_OPEN_MS,
  MAX_MESSAGE_BYTES,
  memberId,
  type MemberId,
  newMemberId,
  packFrame,
  relayPath,
  sessionProtocols,
  systemClock,
} from '@starling-grid/protocol'
import type { PeerLink } from '@starling-grid/volunteer'
import { farEndOf, openRelayLink, peerLinkCases } from '@starling-grid/volunteer/testing'
import Fastify from 'fastify'
import { WebSocket } from 'ws'
import { dialRelaySocket } from '../../client-node/src/socket.ts'
import { RelayAccount, type RelayQuota } from '../src/net/relay-quota.ts'
import { type Relay, type RelayLimits, registerRelay } from '../src/net/relay.ts'
import type { FakeVolunteer } from './fake-volunteer.ts'
import { runOf, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

const tokenOf = (id: MemberId): string => `token-of-${id}`

const closers: (() => Promise<void>)[] = []
after(() => Promise.all(closers.map((close) => close())))

interface Server {
  readonly url: string
  readonly relay: Relay
  readonly refusals: ErrorCode[]
  readonly forbidden: Set<MemberId>
  forwarded: number
}

async function startServer(limits?: RelayLimits, quota?: RelayQuota): Promise<Server> {
  const app = Fastify()
  await app.register(fastifyWebsocket, { options: { maxPayload: MAX_MESSAGE_BYTES, perMessageDeflate: false } })
  const forbidden = new Set<MemberId>()
  const refusals: ErrorCode[] = []
  const relay = registerRelay(app, {
    authenticate: (id, token) => token === tokenOf(id),
    mayRelay: (a, b) => !forbidden.has(a) && !forbidden.has(b),
    linkOpenMs: LINK_OPEN_MS,
    onRefusal: (code) => refusals.push(code),
    onForwarded: (bytes) => {
      server.forwarded += bytes
    },
    ...(limits ? { limits } : {}),
    ...(quota ? { quota } : {}),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  closers.push(() => app.close())
  const server: Server = {
    url: `ws://127.0.0.1:${(app.server.address() as AddressInfo).port}`,
    relay,
    refusals,
    forbidden,
    forwarded: 0,
  }
  return server
}

interface End {
  readonly self: MemberId
  readonly socket: WebSocket
  readonly messages: Buffer[]
  readonly closed: Promise<string>
}

async function openEnd(server: Server, self: MemberId, peer: MemberId): Promise<End> {
  const socket = new WebSocket(server.url + relayPath({ self, peer }), sessionProtocols(tokenOf(self)), {
    perMessageDeflate: false,
  })
  const messages: Buffer[] = []
  socket.on('message', (data: Buffer) => messages.push(data))
  socket.on('error', () => undefined)
  const closed = once(socket, 'close').then(([, reason]) => String(reason))
  await once(socket, 'open')
  return { self, socket, messages, closed }
}

async function openPair(server: Server): Promise<[End, End]> {
  const [a, b] = [newMemberId(), newMemberId()]
  const ends: [End, End] = [await openEnd(server, a, b), await openEnd(server, b, a)]
  await waitFor(() => server.relay.links === 1, 'the pair')
  return ends
}

function frameOf(payloadBytes: number, step = 0): Uint8Array {
  return packFrame({
    type: 'partial',
    generation: 1,
    step,
    bucket: 0,
    hop: 0,
    offset: 0,
    payload: new Uint8Array(payloadBytes),
  })
}

/** ms before a test that hangs says for what: longer than any machine takes */
const WAIT_MS = 300_000

async function waitFor(condition: () => boolean, what: string): Promise<void> {
  for (const end = performance.now() + WAIT_MS; !condition(); await new Promise((resolve) => setTimeout(resolve, 2)))
    assert.ok(performance.now() < end, `waited too long for ${what}`)
}

/** Two members of a real run whose link did not open, so that the coordinator relays it. */
async function relayedPair(): Promise<{
  readonly url: string
  readonly job: string
  readonly near: FakeVolunteer
  readonly far: FakeVolunteer
}> {
  const { url } = await startCoordinator()
  const { id: job } = await submit(url, smallJob({ stop: { epochs: 10_000 } }))
  const [near, far] = [volunteer(url, { stepMs: 20 }), volunteer(url, { stepMs: 20 })]
  const run = await until(url, 'the ring', ({ phase, version }) => phase === 'ring' && version.v > 0)
  const form = await near.heard('form', ({ generation }) => generation === run.generation)
  near.send({
    type: 'abort',
    fence: form.fence,
    generation: form.generation,
    step: run.version.v + 1,
    blamed: far.id,
    why: 'unopened',
    links: [far.id],
    code: 'link-timeout',
    message: 'test',
  })
  await until(
    url,
    'the relayed ring',
    ({ phase, members }) => phase === 'ring' && members.every(({ relayed }) => relayed),
  )
  return { url, job, near, far }
}

const endOf = (url: string, { id, session }: FakeVolunteer, peer: FakeVolunteer): Promise<PeerLink> =>
  openRelayLink(
    {
      self: id,
      token: session,
      clock: systemClock,
      dial: (path, token) => dialRelaySocket(url.replace(/^http/, 'ws') + path, token),
    },
    peer.id,
    AbortSignal.timeout(15_000),
  )

test('the first ballot of a real run relays the links of a volunteer that takes relays only', async () => {
  const { url } = await startCoordinator()
  await submit(url, smallJob())
  const [near] = [volunteer(url), volunteer(url, { relaysOnly: true })]
  const form = await near.heard('form', ({ members }) => members.length === 2)
  assert.deepEqual([form.relayed, near.messages.filter(({ type }) => type === 'form').length], [[[0, 1]], 1])
})

test('a relayed link of a real run behaves like every other link', async (t) => {
  const { url, job, near, far } = await relayedPair()
  for (const { name, run } of peerLinkCases)
    await t.test(name, async () => {
      const [link, other] = await Promise.all([endOf(url, near, far), endOf(url, far, near)])
      assert.deepEqual([link.carrier, link.peer, other.peer], ['relay', far.id, near.id])
      await run(link, farEndOf(other))
      link.close('the case is over')
      other.close('the case is over')
    })
  const [link] = await Promise.all([endOf(url, near, far), endOf(url, far, near)])
  const shown = await runOf(url, job)
  assert.equal(shown.relay.links, 1)
  assert.ok(shown.relay.bytes > 50_000_000, `${shown.relay.bytes} bytes are counted`)
  assert.ok(shown.relay.bytesPerSecond > 0)
  link.close('done')
})

test('strangers of the pair and of the run get no link', async () => {
  const { url, job, near, far } = await relayedPair()
  const third = volunteer(url, { obedient: false, name: 'third' })
  await once(third.socket, 'open')
  third.hello()
  third.session = (await third.heard('welcome')).session
  const dial = (query: { readonly self: MemberId; readonly peer: MemberId; readonly token: string }) =>
    dialRelaySocket(url.replace(/^http/, 'ws') + relayPath(query), query.token).then(
      () => 'open',
      (error: Error) => /\b4\d\d\b/.exec(error.message)?.[0],
    )
  assert.equal(await dial({ self: third.id, peer: near.id, token: third.session }), '403')
  assert.equal(await dial({ self: near.id, peer: third.id, token: near.session }), '403')
  assert.equal(await dial({ self: near.id, peer: near.id, token: near.session }), '403')
  assert.equal(await dial({ self: near.id, peer: far.id, token: third.session }), '401')
  assert.equal(await dial({ self: memberId('../..'), peer: far.id, token: near.session }), '403')
  const { refusals } = await runOf(url, job)
  assert.deepEqual(
    [refusals['message-unexpected'], refusals['session-unknown'], refusals['message-malformed']],
    [3, 1, 1],
  )
})

test('a link ends when it is not relayed any more, at the latest a second later', async () => {
  const server = await startServer()
  const [a, b] = await openPair(server)
  server.forbidden.add(a.self)
  assert.deepEqual(await Promise.all([a.closed, b.closed]), [
    'this link is not relayed any more',
    'this link is not relayed any more',
  ])
  assert.equal(server.relay.links, 0)
})

const nonsense: readonly [what: string, message: string | Uint8Array, code: ErrorCode][] = [
  ['text', 'hello', 'message-malformed'],
  ['less than a header', new Uint8Array(35), 'message-malformed'],
]
for (const [what, message, code] of nonsense)
  test(`${what} costs both ends their link, and is counted`, async () => {
    const server = await startServer()
    const [a, b] = await openPair(server)
    a.socket.send(message)
    assert.deepEqual(await Promise.all([a.closed, b.closed]), [code, code])
    assert.deepEqual([server.refusals, b.messages], [[code], []])
  })

test('the first message waits for the other end, a second one does not', async () => {
  const server = await startServer()
  const [a, b] = [newMemberId(), newMemberId()]
  const early = await openEnd(server, a, b)
  early.socket.send(frameOf(10))
  const late = await openEnd(server, b, a)
  await waitFor(() => late.messages.length === 1, 'the greeting')
  const alone = await openEnd(server, newMemberId(), newMemberId())
  alone.socket.send(frameOf(10))
  alone.socket.send(frameOf(10))
  assert.equal(await alone.closed, 'message-unexpected')
})

test('what one end sends faster than the other reads waits at its sender, and arrives in order', async () => {
  const server = await startServer({ messagesPerSecond: 10_000, pauseMs: 20, quietMs: 600_000 })
  const [a, b] = await openPair(server)
  b.socket.pause()
  const [frames, bytes] = [300, 100_000]
  for (let i = 0; i < frames; i++) a.socket.send(frameOf(bytes, i))
  await waitFor(() => server.forwarded > 0, 'the first frame')
  let before = -1 // on a busy machine it may rest sooner, which is no failure
  while (before !== server.forwarded) {
    before = server.forwarded
    await new Promise((resolve) => setTimeout(resolve, 300))
  }
  assert.ok(server.forwarded < 20_000_000, `${server.forwarded} bytes left the sender while the receiver read none`)
  b.socket.resume()
  await waitFor(() => b.messages.length === frames, 'all frames')
  assert.ok(b.messages.every((message, i) => message.readUInt32LE(12) === i && message.byteLength === bytes + 36))
})

test('a new socket of an end replaces the old one, and its link', async () => {
  const server = await startServer()
  const [a, b] = await openPair(server)
  const again = await openEnd(server, a.self, b.self)
  assert.deepEqual(await Promise.all([a.closed, b.closed]), [
    'another socket is this end now',
    'another socket is this end now',
  ])
  const other = await openEnd(server, b.self, a.self)
  again.socket.send(frameOf(1))
  await waitFor(() => other.messages.length === 1, 'the frame')
})

test('a session that ends takes its links with it', async () => {
  const server = await startServer()
  const [a, b] = await openPair(server)
  server.relay.drop(a.self)
  assert.deepEqual(await Promise.all([a.closed, b.closed]), ['the session ended', 'the session ended'])
})

test('a member has a few relayed links, not many', async () => {
  const server = await startServer()
  const self = newMemberId()
  for (let i = 0; i < 4; i++) await openEnd(server, self, newMemberId())
  assert.equal(await (await openEnd(server, self, newMemberId())).closed, 'too many relayed links')
})

test('an end that sends more messages than its bucket holds is read more slowly', async () => {
  // frames of more than one read of a socket each, so that few arrive in the same one
  const [frames, frameBytes, pauseMs] = [10, 128 * 1024, 300]
  const server = await startServer({ messagesPerSecond: 1, pauseMs, quietMs: 60_000 })
  const [a, b] = await openPair(server)
  const beganAt = performance.now()
  for (let step = 0; step < frames; step++) a.socket.send(frameOf(frameBytes, step))
  await waitFor(() => b.messages.length === frames, 'all frames')
  const tookMs = performance.now() - beganAt
  assert.ok(tookMs > 0.4 * frames * pauseMs, `${frames} messages took ${tookMs} ms`)
})

test('a link of which nothing was heard for a while is closed', async () => {
  const server = await startServer({ messagesPerSecond: 100, pauseMs: 20, quietMs: 500 })
  const ends = await openPair(server)
  assert.match((await Promise.all(ends.map(({ closed }) => closed)))[0] ?? '', /nothing moved for 0.5 s/)
})

test('threat 32: a member that used up its relayed bytes of the hour loses its link with that reason', async () => {
  const server = await startServer(undefined, { perMember: 200_000, perAddress: 1e9 })
  const [a, b] = await openPair(server)
  for (let i = 0; i < 10; i++) a.socket.send(frameOf(60_000, i))
  const reasons = await Promise.all([a.closed, b.closed])
  for (const reason of reasons) assert.match(reason, /no more bytes of this member or address in this hour/)
  assert.equal(server.forwarded, 3 * frameOf(60_000).byteLength)
  assert.deepEqual(server.refusals, ['rate-exceeded'])
})

test('threat 32: members of one address share its bytes, others have their own, and the next hour begins anew', () => {
  let now = 0
  const account = new RelayAccount({ perMember: 100, perAddress: 150 }, () => now)
  const sender = (address: string) => ({ self: newMemberId(), address })
  const [one, two, elsewhere] = [sender('a'), sender('a'), sender('b')]
  assert.equal(account.take(one, 100), true)
  assert.equal(account.take(one, 1), false, 'its own are spent')
  assert.equal(account.take(two, 60), false, 'those of the address are')
  assert.equal(account.take(two, 50), true)
  assert.equal(account.take(elsewhere, 100), true)
  now += 3_600_000
  assert.equal(account.take(one, 100), true)
})
