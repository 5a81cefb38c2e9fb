// Links over TCP as another process meets them: what they carry, and everything that they refuse. Its twin for WebRTC
// is volunteer/test/rtc-link.test.ts.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect as connectPlain, createServer, type AddressInfo, type Socket } from 'node:net'
import { test } from 'node:test'
import { createServer as createTls } from 'node:tls'
import { FRAME_HEADER_BYTES, packFrame } from '@starling-grid/protocol'
import { MAX_GREETING_BYTES, MAX_LINK_FRAME_BYTES } from '@starling-grid/volunteer/links'
import { farEndOf, peerLinkCases } from '@starling-grid/volunteer/testing'
import { FrameReader } from '../src/frame-reader.ts'
import { ownCertificate } from '../src/own-certificate.ts'
import { listenPlaceIn, MAX_HANDSHAKES_PER_ADDRESS, openTcpDoor } from '../src/tcp-door.ts'
import { closed, closers, dialOptions, far, HERE, knock, linked, near, openHall, until } from './tcp-hall.ts'

test('a link over TCP passes the suite of all links', async (t) => {
  for (const { name, run } of peerLinkCases)
    await t.test(name, async () => {
      const [link, other] = await linked({ self: near }, { self: far })
      assert.deepEqual([link.carrier, link.peer, other.carrier, other.peer], ['tcp', far, 'tcp', near])
      await run(link, farEndOf(other))
      link.close('the case is over')
      other.close('the case is over')
    })
})

test('a certificate is new for each process and known by its fingerprint', async () => {
  const [one, other] = [ownCertificate(), ownCertificate()]
  assert.match(one.fingerprint, /^[0-9a-f]{64}$/)
  assert.notEqual(one.fingerprint, other.fingerprint)
})

test('who shows no certificate is not let in', async () => {
  const hall = await openHall()
  await closed(knock(hall))
  assert.deepEqual([hall.asked, hall.arrivals], [[], []])
})

test('who shows another certificate than a guest is not let in', async () => {
  const hall = await openHall()
  hall.guests.set(ownCertificate().fingerprint, near)
  const stranger = ownCertificate()
  await closed(knock(hall, stranger))
  assert.deepEqual([hall.asked, hall.arrivals], [[stranger.fingerprint], []])
})

test('a member whose generation is over is not let in any more', async () => {
  const hall = await openHall()
  const guest = ownCertificate()
  hall.guests.set(guest.fingerprint, near)
  const socket = knock(hall, guest)
  await until(() => hall.arrivals.length === 1, 'the first visit')
  hall.guests.clear()
  await closed(knock(hall, guest))
  assert.equal(hall.arrivals.length, 1)
  socket.destroy()
})

test('another use of TLS is refused in its handshake', async () => {
  const hall = await openHall()
  const guest = ownCertificate()
  hall.guests.set(guest.fingerprint, near)
  await closed(knock(hall, guest, ['http/1.1']))
  await closed(knock(hall, guest, []))
  assert.deepEqual(hall.arrivals, [])
})

test('a dialler sends nothing to a door with another certificate than it was told', async () => {
  const { keeper } = await openHall()
  const said: Buffer[] = []
  const { cert, key } = ownCertificate()
  const other = createTls({ cert, key, ALPNProtocols: ['starling-link/1'] }, (socket) => {
    socket.on('error', () => undefined)
    socket.on('data', (bytes) => said.push(bytes))
  })
  const gone = new Promise((resolve) => {
    other.on('connection', (socket: Socket) => socket.once('close', resolve))
  })
  other.listen(0, '127.0.0.1')
  await once(other, 'listening')
  closers.push(() => other.close())
  const door = { ...keeper.own, port: (other.address() as AddressInfo).port, fingerprint: ownCertificate().fingerprint }
  await assert.rejects(keeper.dial({ member: far, door }, dialOptions()), { code: 'link-lost', message: /certificate/ })
  await gone
  assert.deepEqual(said, [])
})

test('a dial ends with its signal, and a door that answers nothing with its time', async () => {
  const silent = createServer(() => undefined).listen(0, '127.0.0.1')
  await once(silent, 'listening')
  closers.push(() => silent.close())
  const { keeper } = await openHall()
  const door = {
    ...keeper.own,
    port: (silent.address() as AddressInfo).port,
    fingerprint: ownCertificate().fingerprint,
  }
  await assert.rejects(keeper.dial({ member: far, door }, dialOptions({ milliseconds: 50 })), { code: 'link-lost' })
  const given = new AbortController()
  const dial = keeper.dial({ member: far, door }, dialOptions({ signal: given.signal }))
  given.abort(new Error('the generation is over'))
  await assert.rejects(dial, /the generation is over/)
})

const firstBytes: readonly [what: string, bytes: Uint8Array, reason: RegExp][] = [
  [
    'are no frame',
    new TextEncoder().encode('GET / HTTP/1.1\r\nhost: localhost\r\n\r\n'.padEnd(64)),
    /starts with "STRL"/,
  ],
  ['announce more than a greeting', header(MAX_GREETING_BYTES), /at most 236 bytes/],
  ['announce as much as a header can', header(0xffff_ffff), /at most 236 bytes/],
  [
    'are another frame than a greeting',
    packFrame({ type: 'partial', generation: 1, step: 1, bucket: 0, hop: 0, offset: 0, payload: new Uint8Array(8) }),
    /expected a greeting/,
  ],
]

/** Says that so many bytes of payload follow. */
function header(payloadBytes: number): Uint8Array {
  const bytes = packFrame({
    type: 'greeting',
    generation: 0,
    step: 0,
    bucket: 0,
    hop: 0,
    offset: 0,
    payload: new Uint8Array(0),
  })
  new DataView(bytes.buffer).setUint32(28, payloadBytes, true)
  return bytes
}

for (const [what, bytes, reason] of firstBytes)
  test(`threat 33: first bytes that ${what} end the connection`, async () => {
    const hall = await openHall()
    const guest = ownCertificate()
    hall.guests.set(guest.fingerprint, near)
    const socket = knock(hall, guest)
    await once(socket, 'secureConnect')
    socket.write(bytes)
    await closed(socket)
    await assert.rejects(hall.arrivals[0] ?? assert.fail(), reason)
  })

test('threat 33: a frame above the limit ends an open link before memory is taken for it', async () => {
  const frames: number[] = []
  const reader = new FrameReader(MAX_LINK_FRAME_BYTES, ({ byteLength }) => frames.push(byteLength))
  reader.push(header(MAX_LINK_FRAME_BYTES - FRAME_HEADER_BYTES))
  const before = process.memoryUsage().arrayBuffers
  const refused: number[] = []
  const other = new FrameReader(MAX_LINK_FRAME_BYTES, ({ byteLength }) => refused.push(byteLength))
  assert.throws(() => other.push(header(0xffff_ffff - FRAME_HEADER_BYTES)), { code: 'message-too-large' })
  assert.ok(process.memoryUsage().arrayBuffers - before < MAX_LINK_FRAME_BYTES)
  assert.deepEqual(frames, [])
  assert.deepEqual(refused, [FRAME_HEADER_BYTES], 'its owner sees what came')
})

test('frames are the same however the stream is cut', () => {
  const sizes = [0, 1, 100, 5000, 60_000, 0, 3]
  const sent = sizes.map((bytes, step) =>
    packFrame({
      type: 'chunk',
      generation: 1,
      step,
      bucket: 0,
      hop: 0,
      offset: 0,
      payload: new Uint8Array(bytes).fill(step + 1),
    }),
  )
  const stream = Buffer.concat(sent)
  for (const cut of [1, 7, 35, 36, 37, 1000, 16_384, stream.byteLength]) {
    const got: Buffer[] = []
    const reader = new FrameReader(MAX_LINK_FRAME_BYTES, (frame) => got.push(Buffer.from(frame)))
    for (let at = 0; at < stream.byteLength; at += cut) reader.push(new Uint8Array(stream.subarray(at, at + cut)))
    assert.equal(got.length, sent.length, `cut after ${cut}`)
    assert.ok(Buffer.concat(got).equals(stream), `cut after ${cut}`)
  }
})

test('threat 22: a connection that never begins its handshake is closed, and one that never greets', async () => {
  const hall = await openHall({ milliseconds: 100 })
  const guest = ownCertificate()
  hall.guests.set(guest.fingerprint, near)
  const mute = connectPlain(hall.door.port, '127.0.0.1')
  mute.on('error', () => undefined)
  const rude = knock(hall, guest)
  await closed(rude)
  await assert.rejects(hall.arrivals[0] ?? assert.fail(), /not open after 100 ms/)
  await closed(mute)
})

test('threat 22: handshakes of one address are bounded before TLS begins, and come free again', async () => {
  const hall = await openHall()
  const begin = (): Socket => {
    const socket = connectPlain(hall.door.port, '127.0.0.1')
    socket.on('error', () => undefined)
    closers.push(() => socket.destroy())
    return socket
  }
  const waiting = Array.from({ length: MAX_HANDSHAKES_PER_ADDRESS }, begin)
  await Promise.all(waiting.map((socket) => once(socket, 'connect')))
  await closed(begin())
  assert.ok(waiting.every((socket) => !socket.closed))
  for (const socket of waiting) socket.destroy()
  const guest = ownCertificate()
  hall.guests.set(guest.fingerprint, near)
  await until(() => {
    if (hall.arrivals.length === 0) knock(hall, guest)
    return hall.arrivals.length > 0
  }, 'a place')
})

test('no member is let in before the door is opened, nor after it was closed', async () => {
  const keeper = await openTcpDoor(HERE)
  const { port } = keeper.own
  const early = connectPlain(port, '127.0.0.1')
  early.on('error', () => undefined)
  await closed(early)
  keeper.close()
  const late = connectPlain(port, '127.0.0.1')
  const [error] = (await once(late, 'error')) as [NodeJS.ErrnoException]
  assert.equal(error.code, 'ECONNREFUSED')
})

test('a door takes the first free port of its range, and says what to do when there is none', async () => {
  const one = await openHall({ place: { address: '127.0.0.1', ports: [0, 0] } })
  const { port } = one.door
  const range = { address: '127.0.0.1', ports: [port, port + 20] } as const
  const second = await openHall({ place: range })
  assert.ok(second.door.port > port && second.door.port <= port + 20)
  assert.deepEqual(second.door.addresses, ['127.0.0.1'])
  await assert.rejects(openTcpDoor(HERE, { address: '127.0.0.1', ports: [port, port] }), {
    code: 'usage',
    message: /--listen.*--no-tcp/,
  })
  await assert.rejects(openTcpDoor(HERE, { address: '203.0.113.7' }), { code: 'usage', message: /of this machine/ })
})

test('a volunteer of a coordinator on this machine is reached from this machine alone', async () => {
  const local = await openTcpDoor('http://localhost:8790')
  assert.deepEqual(local.own.addresses, ['127.0.0.1'])
  local.close()
  const other = await openTcpDoor('https://grid.example.org')
  assert.ok(!other.own.addresses.some((address) => address.startsWith('127.') || address === '::1'))
  other.close()
})

test('--listen takes an address with a port or a range of ports', () => {
  assert.deepEqual(listenPlaceIn('0.0.0.0'), { address: '0.0.0.0', ports: undefined })
  assert.deepEqual(listenPlaceIn('192.168.1.5:9000'), { address: '192.168.1.5', ports: [9000, 9000] })
  assert.deepEqual(listenPlaceIn('[::]:9000-9010'), { address: '::', ports: [9000, 9010] })
  for (const text of ['', ':9000', '0.0.0.0:80', '0.0.0.0:9010-9000', '0.0.0.0:9000-70000', '[x]:9000', 'a:b'])
    assert.throws(() => listenPlaceIn(text), { code: 'usage', message: /expected --listen/ }, text)
})
