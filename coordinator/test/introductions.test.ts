// Which members may open links to each other: only those that the coordinator named to each other.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { genesis, jobId, type MemberId, memberId, type MessageTo, sessionProtocols } from '@starling-grid/protocol'
import { WebSocket } from 'ws'
import { baseSources, Introductions } from '../src/host/introductions.ts'
import { smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

const ZERO = genesis(jobId('test'), 'model', 1)
const names = (text: string): MemberId[] => [...text].map(memberId)
const [a, b, c, d, x] = names('abcdx') as [MemberId, MemberId, MemberId, MemberId, MemberId]

function formOf(members: string, change: Partial<MessageTo<'form'>> = {}): MessageTo<'form'> {
  return {
    type: 'form',
    fence: 1,
    generation: 1,
    members: names(members),
    weights: [...members].map(() => 1),
    relayed: [],
    committed: ZERO,
    records: [],
    target: ZERO,
    sources: [],
    coordinatorHolds: false,
    modeEpoch: 0,
    kind: 'ring',
    ...change,
  }
}

function introduced(form: MessageTo<'form'>): Introductions {
  const introductions = new Introductions()
  for (const id of form.members) introductions.told(id, form, 0)
  return introductions
}

test('threat 27: around a ring neighbours may talk, in direct exchange all, and no member to a stranger', () => {
  const ring = introduced(formOf('abcd'))
  assert.deepEqual(
    [ring.mayTalk(a, b, 1), ring.mayTalk(d, a, 1), ring.mayTalk(a, c, 1), ring.mayTalk(a, x, 1)],
    [true, true, false, false],
  )
  const direct = introduced(formOf('abcd', { exchange: { type: 'direct', reason: 'test' } }))
  assert.deepEqual([direct.mayTalk(a, c, 1), direct.mayTalk(x, a, 1)], [true, false])
})

test('a newcomer may talk to the members that have the base, for as long as it may prepare', () => {
  const ring = introduced(formOf('ab'))
  ring.sought(x, [a, b], 1)
  assert.deepEqual([ring.mayTalk(x, a, 2), ring.mayTalk(b, x, 2), ring.mayTalk(x, c, 2)], [true, true, false])
  assert.equal(ring.mayTalk(x, a, 300_001), false)
  for (let i = 0; i < 256; i++) ring.sought(memberId(`newcomer-${i}`), [a], 2)
  assert.equal(ring.mayTalk(x, a, 3), false, 'the oldest of many gives way')
})

test('members that have a base are named in turn, and none whose links all go through the coordinator', () => {
  const ids = Array.from({ length: 5 }, (_, i) => memberId(`${i}`.repeat(32)))
  const members = ids.map((id, i) => ({ id, relaysOnly: i === 2 }))
  const named = ids.map((id) => baseSources(id, { members, fetching: [] }))
  assert.ok(named.every((sources, i) => sources.length === 3 && !sources.includes(ids[i] as MemberId)))
  assert.ok(named.every((sources) => !sources.includes(ids[2] as MemberId)))
  assert.ok(new Set(named.map(([first]) => first)).size > 1, 'a herd spreads')
  assert.deepEqual(baseSources(x, { members: [], fetching: [] }), [])
})

test('newcomers that fetch a base give it to those that asked later, beside one member that has all of it', () => {
  const book = new Introductions()
  assert.deepEqual(book.seekersBefore(a, 1), [])
  for (const id of [a, b, c, d]) book.sought(id, [], 1)
  assert.deepEqual(book.seekersBefore(c, 2), [a, b])
  book.sought(b, [a], 2)
  assert.deepEqual(book.seekersBefore(c, 3), [a, b], 'who asks again keeps its place')
  assert.deepEqual(book.seekersBefore(x, 3), [a, b, c, d])
  assert.deepEqual(book.seekersBefore(x, 300_001), [b], 'who prepares for too long gives nothing')
  const ids = Array.from({ length: 40 }, (_, i) => memberId(`${i.toString(16).padStart(8, '0')}`.repeat(4)))
  const whole = memberId('ff'.repeat(16))
  for (const [i, id] of ids.entries()) {
    const sources = baseSources(id, {
      members: [{ id: whole }, { id: x, relaysOnly: true }],
      fetching: ids.slice(0, i),
    })
    assert.equal(sources.length, Math.min(3, i + 1))
    assert.ok(sources.includes(whole) && !sources.includes(id) && new Set(sources).size === sources.length)
  }
  assert.deepEqual(baseSources(x, { members: [], fetching: [a] }), [a])
})

test('a newcomer is sent to those that asked before it for the same job, as long as they prepare for it', async () => {
  const { url } = await startCoordinator()
  await submit(url, smallJob({ volunteers: { min: 9 } }))
  const seeking = async () => {
    const one = volunteer(url, { obedient: false })
    await one.heard('challenge')
    one.hello()
    await one.heard('welcome')
    one.send({ type: 'seek-base' })
    return { one, sources: (await one.heard('base-sources')).members }
  }
  const first = await seeking()
  const second = await seeking()
  assert.deepEqual([first.sources, second.sources], [[], [first.one.id]])
  assert.equal((await first.one.heard('share-base')).member, second.one.id)
  first.one.close()
  await first.one.closed
  const third = await seeking()
  assert.deepEqual(third.sources, [second.one.id])
  for (const { one } of [second, third]) one.close()
})

test('a member may talk to its sources of state, a newcomer to those that keep copies for it', () => {
  assert.equal(introduced(formOf('abcd', { sources: [c] })).mayTalk(a, c, 1), true)
  const learning = introduced(formOf('ab'))
  learning.told(
    x,
    { type: 'prefetch', fence: 1, generation: 1, version: ZERO, sources: [b], coordinatorHolds: false },
    0,
  )
  assert.deepEqual([learning.mayTalk(b, x, 1), learning.mayTalk(a, x, 1)], [true, false])
  learning.told(
    x,
    { type: 'follow', fence: 1, generation: 1, records: [], sources: [a] } as unknown as MessageTo<'follow'>,
    1,
  )
  assert.equal(learning.mayTalk(x, a, 2), true)
})

test('what was allowed lingers for a minute when the next generation forms or a member goes, and not longer', () => {
  const introductions = introduced(formOf('ab'))
  for (const id of [a, c]) introductions.told(id, formOf('ac'), 1000)
  introductions.left(b, 1000)
  assert.equal(introductions.mayTalk(a, b, 60_000), true)
  assert.equal(introductions.mayTalk(a, b, 61_001), false)
})

test('threat 27: a stranger outside every ring cannot make an offer to a member of one', async () => {
  const { url } = await startCoordinator()
  await submit(url, smallJob({ volunteers: { min: 2 }, stop: { epochs: 200 } }))
  const [one, two, stranger] = [volunteer(url), volunteer(url), volunteer(url, { obedient: false })]
  await stranger.heard('challenge')
  await until(url, 'a ring of two', (run) => run.phase === 'ring')
  stranger.hello()
  await stranger.heard('welcome')
  const dial = async (from: typeof one): Promise<WebSocket> => {
    const socket = new WebSocket(
      `${url.replace(/^http/, 'ws')}/signalling/peerjs?key=peerjs&id=${from.id}&version=1.5.5`,
      sessionProtocols(from.session),
    )
    await once(socket, 'message')
    return socket
  }
  const [near, far, outside] = [await dial(one), await dial(two), await dial(stranger)]
  const sdp = [
    'v=0',
    'o=- 1 2 IN IP4 127.0.0.1',
    's=-',
    't=0 0',
    'm=application 9 UDP/DTLS/SCTP webrtc-datachannel',
    'c=IN IP4 0.0.0.0',
    '',
  ].join('\r\n')
  const offer = (dst: MemberId): string =>
    JSON.stringify({
      type: 'OFFER',
      dst,
      payload: {
        type: 'data',
        connectionId: 'dc_1',
        label: 'dc_1',
        reliable: true,
        serialization: 'raw',
        sdp: { type: 'offer', sdp },
      },
    })
  const answered = once(outside, 'message')
  outside.send(offer(two.id))
  assert.equal((JSON.parse(String((await answered)[0])) as { type: string }).type, 'EXPIRE')
  const heard = once(far, 'message')
  near.send(offer(two.id))
  assert.equal((JSON.parse(String((await heard)[0])) as { src: MemberId }).src, one.id)
  for (const socket of [near, far, outside]) socket.close()
  for (const fake of [one, two, stranger]) fake.close()
})
