// Places of a coordinator: for how long a volunteer may prepare, and which addresses give way when it is full.
import assert from 'node:assert/strict'
import { sign } from 'node:crypto'
import { EventEmitter, once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import {
  helloText,
  jobId,
  type JobTerms,
  MAX_VOLUNTEERS,
  PROTOCOL_VERSION,
  type PushHeader,
} from '@starling-grid/protocol'
import { type CoordinatorClock, processClock } from '../src/clock.ts'
import { type SessionHost, VolunteerSession } from '../src/net/session.ts'
import { Sessions } from '../src/net/sessions.ts'
import { newFakeSelf } from './fake-volunteer.ts'
import { smallJob, startCoordinator, submit, volunteer } from './fixture.ts'

const NAME = 'localhost:1'

class FakeSocket extends EventEmitter {
  static readonly OPEN = 1
  readonly OPEN = FakeSocket.OPEN
  readyState = FakeSocket.OPEN
  bufferedAmount = 0
  readonly sent: string[] = []
  pings = 0

  send(text: string): void {
    this.sent.push(text)
  }

  ping(): void {
    this.pings++
    this.emit('pong')
  }

  close(): void {
    this.readyState = 3
  }

  terminate(): void {
    this.close()
  }
}

/** A clock that the test turns: the coordinator's own stands still longer than a second in no turn. */
function turnedClock(context: TestContext): (seconds: number) => void {
  let at = performance.now()
  const beats: (() => void)[] = []
  context.mock.method(performance, 'now', () => at)
  context.mock.method(globalThis, 'setInterval', (beat: () => void) => {
    beats.push(beat)
    return { unref: () => undefined }
  })
  return (seconds) => {
    for (let i = 0; i < seconds; i++) {
      at += 1000
      for (const beat of beats) beat()
    }
  }
}

function newSession(
  desk: SessionHost,
  clock: CoordinatorClock = processClock,
): { readonly socket: FakeSocket; readonly session: VolunteerSession } {
  const socket = new FakeSocket()
  const session = new VolunteerSession(socket as unknown as ConstructorParameters<typeof VolunteerSession>[0], {
    clock,
    desk,
    token: 'token',
    names: [NAME],
    address: '192.0.2.1',
    network: 'a network',
  })
  return { socket, session }
}

test('every volunteer is pinged each second, one of a crowd only when nothing came of it for two', () => {
  const pingsIn = (seconds: number, isOneOfCrowd: boolean): number => {
    let at = 0
    const { socket, session } = newSession({} as SessionHost, { ...processClock, awake: () => at })
    for (let second = 0; second < seconds; second++) {
      at += 1000
      session.check(isOneOfCrowd)
    }
    return socket.pings
  }
  assert.equal(pingsIn(4, false), 4)
  assert.equal(pingsIn(4, true), 2, 'each answer counts for two seconds')
})

test('threat 22: a volunteer that is offered a job loses its place when it is not ready in five minutes', (context) => {
  const transition = turnedClock(context)
  const gone: unknown[] = []
  const desk = {
    greet: () => undefined,
    gone: (session: unknown) => gone.push(session),
    offered: () => undefined,
    heard: () => undefined,
    refused: (code: string, what: string) => assert.fail(`${code}: ${what}`),
  } as unknown as SessionHost
  const { socket, session } = newSession(desk)
  session.challenge()
  const { nonce } = JSON.parse(socket.sent[0] ?? '') as { readonly nonce: string }
  const { key, ...self } = newFakeSelf()
  const text = helloText({ nonce, coordinator: NAME, incarnation: self.incarnation })
  const signature = sign(null, text, key).toString('hex')
  const hello = { type: 'hello', protocol: PROTOCOL_VERSION, name: 'x', client: 'node', ...self }
  socket.emit('message', Buffer.from(JSON.stringify({ ...hello, coordinator: NAME, signature })), false)
  const terms = { id: jobId('a-job') } as JobTerms
  session.offer(terms, (job) => ({ type: 'job', job }))
  for (let second = 0; second < 299; second++) {
    transition(1)
    session.check()
  }
  assert.deepEqual(gone, [], 'it plans a large model')
  transition(3)
  session.check()
  assert.deepEqual(gone, [session])
})

test('threat 44: a full coordinator takes a newcomer in place of one from the most crowded address', () => {
  const refused: string[] = []
  const sessions = new Sessions({
    clock: processClock,
    onRefused: (code: string) => refused.push(code),
    onGone: () => undefined,
    placeFor: () => undefined,
    lastRun: () => undefined,
    relayedLinks: () => 0,
  } as unknown as ConstructorParameters<typeof Sessions>[0])
  const admit = (address: string): FakeSocket => {
    const socket = new FakeSocket()
    sessions.admit(socket as unknown as Parameters<Sessions['admit']>[0], { names: [], address })
    return socket
  }
  const wasRefused = ({ sent }: FakeSocket): boolean => sent.some((text) => text.includes('"code":"grid-full"'))
  const crowd = 256
  const full = Array.from({ length: MAX_VOLUNTEERS }, (_, i) => admit(`10.0.0.${Math.floor(i / crowd)}`))
  assert.deepEqual(refused, [])
  const newcomer = admit('192.0.2.1')
  assert.ok(!wasRefused(newcomer))
  assert.deepEqual(
    full.flatMap((socket, i) => (wasRefused(socket) ? [i] : [])),
    [crowd - 1],
    'the newest of the first crowd',
  )
  assert.ok(wasRefused(admit('10.0.0.1')), 'one more of a crowd finds no place')
  const lone = admit('192.0.2.2')
  assert.ok(!wasRefused(lone) && !wasRefused(newcomer))
})

test('threat 25: a push under a stale lease is refused before a byte of its body is sent', async () => {
  const { url, port } = await startCoordinator()
  const { id } = await submit(url, smallJob({ mode: 'async', volunteers: { min: 1 } }))
  const member = volunteer(url, { works: false })
  const { base, leases, modeEpoch } = await member.heard('grant')
  const stale = (leases[0]?.leaseEpoch ?? 0) + 1000
  const counts = { samples: 1, targets: 1, lossSum: 1, correct: 0 }
  const { answer } = announcePush(port, id, member.session, {
    incarnation: member.id,
    modeEpoch,
    base,
    leaseEpoch: stale,
    blocks: leases.length,
    ...counts,
  })
  assert.match(await answer, /^HTTP\/1.1 409 [^]*"code":"lease-stale"/)
})

test('threat 25: a member sends one gradient at a time, and a second one is refused before its body', async () => {
  const { url, port } = await startCoordinator()
  const { id } = await submit(url, smallJob({ mode: 'async', volunteers: { min: 1 } }))
  const member = volunteer(url, { works: false })
  const { base, leases, modeEpoch } = await member.heard('grant')
  const counts = { samples: 1, targets: 1, lossSum: 1, correct: 0 }
  const granted = { leaseEpoch: leases[0]?.leaseEpoch ?? 0, blocks: leases.length }
  const push: PushHeader = { incarnation: member.id, modeEpoch, base, ...granted, ...counts }
  const first = announcePush(port, id, member.session, push)
  let text = ''
  while (!text.startsWith('HTTP/1.1 429')) text = await announcePush(port, id, member.session, push).answer
  assert.match(text, /"code":"rate-exceeded"/)
  first.socket.destroy()
})

/** Says what a push would be, and sends none of its body. A second one: it is answered when the first has a seat. */
function announcePush(
  port: number,
  job: string,
  session: string | undefined,
  push: PushHeader,
): { readonly socket: Socket; readonly answer: Promise<string> } {
  const socket = connect(port, '127.0.0.1')
  let text = ''
  socket.setEncoding('utf8').on('data', (part) => {
    text += part
  })
  socket.on('error', () => undefined)
  socket.write(
    `POST /api/jobs/${job}/pushes HTTP/1.1\r\nHost: localhost:${port}\r\nAuthorization: Bearer ${session}\r\n` +
      'Content-Type: application/octet-stream\r\nContent-Length: 30000\r\nx-starling-push: ' +
      `${JSON.stringify(push)}\r\n\r\n`,
  )
  const answer = once(socket, 'end').then(() => {
    socket.end()
    return text
  })
  return { socket, answer }
}
