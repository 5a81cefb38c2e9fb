// STUN and TURN servers as volunteers are told them: credentials that the TURN server can check and that soon are worth
// nothing.
import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { test } from 'node:test'
import { isGridError, memberId } from '@starling-grid/protocol'
import { CREDENTIALS_MS, iceServersFor, renewalMs, requireIceOptions } from '../src/net/ice-servers.ts'
import { startCoordinator, submit, smallJob, volunteer } from './fixture.ts'

const member = memberId('0123456789abcdef0123456789abcdef')
const STUN = 'stun:stun.example.org:3478'
const TURN = 'turn:turn.example.org:3478?transport=udp'

test('TURN credentials are those of the TURN REST draft: until when and who, and a password that proves it', () => {
  const now = Date.UTC(2026, 0, 1)
  const [stun, turn] = iceServersFor(member, { urls: [STUN, TURN], turnSecret: 'north' }, now)
  assert.deepEqual(stun, { urls: STUN })
  const expiry = (now + CREDENTIALS_MS) / 1000
  assert.equal(turn?.username, `${expiry}:${member}`)
  // As coturn with use-auth-secret computes it: base64(HMAC-SHA1(static-auth-secret, username)).
  assert.equal(turn.credential, createHmac('sha1', 'north').update(`${expiry}:${member}`).digest('base64'))
})

test('the password is the one that OpenSSL computes for this name and secret', () => {
  const [turn] = iceServersFor(
    memberId('user'),
    { urls: [TURN], turnSecret: 'secret' },
    1_700_000_000_000 - CREDENTIALS_MS,
  )
  assert.deepEqual([turn?.username, turn?.credential], ['1700000000:user', 'I/MZeIG6MwzOV8Uubr9liB2556o='])
})

test('credentials are renewed well before they expire; STUN alone needs none', () => {
  const renewal = renewalMs({ urls: [STUN, TURN], turnSecret: 'x' })
  assert.ok(renewal !== undefined && renewal <= CREDENTIALS_MS - 60_000)
  assert.equal(renewalMs({ urls: [STUN] }), undefined)
})

test('what is no ICE server, and TURN without its secret, is refused when the coordinator is made', () => {
  const usage = (error: unknown): boolean => isGridError(error) && error.code === 'usage'
  for (const urls of [
    ['http://example.org'],
    ['stun:'],
    ['stun:a b'],
    ['stun:x?transport=sctp'],
    Array<string>(9).fill(STUN),
  ])
    assert.throws(() => requireIceOptions({ urls }), usage, urls.join())
  assert.throws(() => requireIceOptions({ urls: [TURN] }), /--turn-secret/)
  requireIceOptions({ urls: [STUN, TURN, 'turns:[2001:db8::1]:5349?transport=tcp'], turnSecret: 'x' })
})

test('how long links may take to open is told with the welcome, where it is not the usual time', async () => {
  for (const [linkOpenMs, told] of [
    [12_000, undefined],
    [3000, 3000],
  ]) {
    const { url } = await startCoordinator({ timing: { linkOpenMs: linkOpenMs ?? 0 } })
    assert.equal((await volunteer(url).heard('welcome')).linkOpenMs, told)
  }
})

test(
  'threat 32: TURN credentials come with the first ring and again before they expire, never for a hello alone',
  { timeout: 60_000 },
  async () => {
    const { url } = await startCoordinator({ ice: { urls: [STUN, TURN], turnSecret: 'north', credentialsMs: 2000 } })
    await submit(url, smallJob({ stop: { epochs: 2000 } }))
    const stranger = volunteer(url, { obedient: false })
    stranger.hello()
    assert.deepEqual((await stranger.heard('welcome')).iceServers, [{ urls: STUN }])
    const [one, two] = [volunteer(url), volunteer(url)]
    const { iceServers: first } = await one.heard('ice-servers')
    assert.ok(
      one.messages.findIndex(({ type }) => type === 'ice-servers') <
        one.messages.findIndex(({ type }) => type === 'form'),
      'before the links are opened',
    )
    assert.match(first[1]?.username ?? '', new RegExp(`^[0-9]{10}:${one.id}$`))
    assert.match((await two.heard('ice-servers')).iceServers[1]?.username ?? '', new RegExp(`:${two.id}$`))
    const expiry = (servers: typeof first): number => Number(servers[1]?.username?.split(':')[0])
    // Each newcomer is a new ballot.
    const renewed = (): boolean =>
      one.messages.some((message) => message.type === 'ice-servers' && expiry(message.iceServers) > expiry(first))
    for (let visitors = 0; !renewed() && visitors < 10; visitors++) {
      const visitor = volunteer(url)
      await visitor.heard('form')
      await new Promise((resolve) => setTimeout(resolve, 700))
    }
    assert.ok(renewed())
    assert.ok(!stranger.messages.some(({ type }) => type === 'ice-servers'))
  },
)
