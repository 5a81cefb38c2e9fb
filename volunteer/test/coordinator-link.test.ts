// The control socket when it is opened anew: messages and errors of an old one have no effect.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encode, jobId, systemClock, type ToCoordinator, type ToVolunteer } from '@starling-grid/protocol'
import type { CoordinatorSocket } from '@starling-grid/volunteer'
import { CoordinatorLink, type LinkHost } from '../src/coordinator-link.ts'
import { Coordinators } from '../src/coordinators.ts'
import type { CoordinatorDoor } from '../src/host.ts'

const sessionOf = (number: number): string => number.toString(16).padStart(64, '0')

interface Side {
  readonly socket: CoordinatorSocket
  readonly said: ToCoordinator[]
}

/** Welcomes every hello, and closes nothing. */
function patientCoordinator(sides: Side[]): LinkHost & CoordinatorDoor {
  return {
    client: 'node',
    clock: systemClock,
    coordinatorUrl: 'http://grid.test',
    signer: async () => ({
      publicKey: new Uint8Array(32),
      sign: async () => new Uint8Array(64),
      verify: async () => true,
    }),
    dialRelay: () => Promise.reject(new Error('not used')),
    dialCoordinator: async () => {
      const said: ToCoordinator[] = []
      const number = sides.length + 1
      const welcome: ToVolunteer = {
        type: 'welcome',
        session: sessionOf(number),
        fence: 1,
        signallingPath: '/signalling',
        iceServers: [],
        job: null,
      }
      const socket: CoordinatorSocket = {
        onMessage: undefined,
        onClose: undefined,
        close: () => undefined,
        send(text) {
          const message = JSON.parse(text) as ToCoordinator
          said.push(message)
          if (message.type === 'hello') queueMicrotask(() => socket.onMessage?.(encode(welcome)))
        },
      }
      sides.push({ socket, said })
      setImmediate(() => socket.onMessage?.(encode({ type: 'challenge', nonce: '0'.repeat(64) })))
      return socket
    },
  }
}

test('a socket that the volunteer gave up does not end the next one by its late close', async () => {
  const sides: Side[] = []
  let welcomed: () => void = () => undefined
  const nextWelcome = (): Promise<void> =>
    new Promise((resolve) => {
      welcomed = resolve
    })
  const ending = new AbortController()
  const first = nextWelcome()
  const heard: string[] = []
  const host = patientCoordinator(sides)
  const link = new CoordinatorLink(
    host,
    { name: 'sleeper', coordinators: new Coordinators(host) },
    {
      onWelcome: () => welcomed(),
      onMessage: ({ type }) => heard.push(type),
      onRefused: () => undefined,
      onAway: () => undefined,
    },
  )
  const running = link.run(ending.signal)
  await first
  const second = nextWelcome()
  link.renew('slept')
  assert.equal(link.connected, false)
  await second
  const [old, present] = sides
  assert.deepEqual(
    present?.said.map((message) => message.type === 'hello' && [message.incarnation, message.again]),
    [[link.member, true]],
  )
  old?.socket.onMessage?.(encode({ type: 'wait', job: jobId('a-job'), reason: 'late' }))
  old?.socket.onClose?.('code 1006')
  link.send({ type: 'leave' })
  assert.deepEqual([heard, link.session, link.connected, present?.said.at(-1)?.type], [[], sessionOf(2), true, 'leave'])
  ending.abort()
  await running
})

test('a thousand reconnects leave one listener on the signal that ends the volunteer', async () => {
  const sides: Side[] = []
  const ending = new AbortController()
  const listeners = new Set<unknown>()
  const { signal } = ending
  const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)]
  let most = 0
  Object.assign(signal, {
    addEventListener: (type: string, listener: () => void, options?: AddEventListenerOptions) => {
      listeners.add(listener)
      most = Math.max(most, listeners.size)
      return add(type, listener, options)
    },
    removeEventListener: (type: string, listener: () => void) => {
      listeners.delete(listener)
      return remove(type, listener)
    },
  })
  let reached: () => void = () => undefined
  const done = new Promise<void>((resolve) => {
    reached = resolve
  })
  let welcomes = 0
  const host = patientCoordinator(sides)
  const link = new CoordinatorLink(
    host,
    { name: 'flapping', coordinators: new Coordinators(host) },
    {
      onWelcome: () => (++welcomes === 1000 ? reached() : queueMicrotask(() => link.renew('flaps'))),
      onMessage: () => undefined,
      onRefused: () => undefined,
      onAway: () => undefined,
    },
  )
  const random = Math.random
  Math.random = () => 0 // no pause between attempts
  try {
    const running = link.run(signal)
    await done
    ending.abort()
    await running
  } finally {
    Math.random = random
  }
  assert.ok(most <= 2, `${most} listeners at once`)
})
