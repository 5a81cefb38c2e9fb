// Which coordinator a volunteer speaks to: it goes where its own sends it, to no machine of others, and asks the next
// one when its own does not answer.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  encode,
  GridError,
  isSameAuthority,
  jobId,
  type OnWire,
  systemClock,
  type ToVolunteer,
} from '@starling-grid/protocol'
import type { CoordinatorSocket } from '@starling-grid/volunteer'
import { CoordinatorLink } from '../src/coordinator-link.ts'
import { Coordinators } from '../src/coordinators.ts'
import type { CoordinatorDoor, VolunteerHost } from '../src/host.ts'

const HOME = 'https://c1.grid.example.org'
const OTHER = 'https://c2.grid.example.org'

test('a volunteer follows to names of the same authority, and to no other', () => {
  const table: readonly (readonly [from: string, to: string, follows: boolean])[] = [
    [HOME, OTHER, true],
    [HOME, `${HOME}:8443`, true],
    ['https://grid.example.org', 'https://c1.grid.example.org', true],
    ['http://c1.grid.example.org', 'https://c2.grid.example.org', true],
    [HOME, 'http://c2.grid.example.org', false],
    [HOME, 'https://c2.grid.example.com', false],
    [HOME, 'https://grid.example.org', false],
    [HOME, 'https://c2.other.example.org', false],
    ['https://example.org', 'https://example.com', false],
    ['https://grid', 'https://printer', false],
    ['http://192.0.2.1:8790', 'http://192.0.2.1:8791', true],
    ['http://192.0.2.1:8790', 'http://192.0.2.2:8790', false],
    ['http://[2001:db8::1]:8790', 'http://[2001:db8::2]:8790', false],
    ['http://localhost:8790', 'http://127.0.0.1:8791', true],
    [HOME, 'http://127.0.0.1:8790', false],
    [HOME, 'https://user:secret@c2.grid.example.org', false],
    [HOME, 'file:///etc/passwd', false],
    [HOME, 'nonsense', false],
  ]
  for (const [from, to, follows] of table) assert.equal(isSameAuthority(from, to), follows, `${from} → ${to}`)
})

/** Coordinators by their address; what is not there does not answer. */
interface FakeGrid {
  readonly host: VolunteerHost
  readonly dialled: string[]
  readonly answers: Map<string, readonly OnWire<ToVolunteer>[]>
}

const welcome: OnWire<ToVolunteer> = {
  type: 'welcome',
  session: '0'.repeat(64),
  fence: 1,
  signallingPath: '/signalling',
  iceServers: [],
  job: null,
}

function fakeGrid(): FakeGrid {
  const dialled: string[] = []
  const answers = new Map<string, readonly OnWire<ToVolunteer>[]>()
  const doorOf = (coordinatorUrl: string): CoordinatorDoor => ({
    coordinatorUrl,
    dialRelay: () => Promise.reject(new Error('no relay here')),
    async dialCoordinator() {
      dialled.push(coordinatorUrl)
      const given = answers.get(coordinatorUrl)
      if (given === undefined) throw new GridError('coordinator-lost', `nothing answers at ${coordinatorUrl}`)
      const socket: CoordinatorSocket = {
        onMessage: undefined,
        onClose: undefined,
        close: () => undefined,
        send: () => queueMicrotask(() => given.forEach((message) => socket.onMessage?.(encode(message)))),
      }
      setImmediate(() => socket.onMessage?.(encode({ type: 'challenge', nonce: '0'.repeat(64) })))
      return socket
    },
  })
  const signer = { publicKey: new Uint8Array(32), sign: async () => new Uint8Array(64), verify: async () => true }
  const host = {
    client: 'node',
    clock: { ...systemClock, sleep: () => systemClock.sleep(0) },
    signer: async () => signer,
    ...doorOf(HOME),
    at: doorOf,
  } as unknown as VolunteerHost
  return { host, dialled, answers }
}

/** Until it is welcome, or was away so often. */
async function run({ host }: FakeGrid, coordinators: Coordinators, mostAways = 12): Promise<readonly string[]> {
  const aways: string[] = []
  const ending = new AbortController()
  const link = new CoordinatorLink(
    host,
    { name: 'follower', coordinators },
    {
      onWelcome: () => ending.abort(),
      onMessage: () => undefined,
      onRefused: () => undefined,
      onAway: (why) => aways.push(why) >= mostAways && ending.abort(),
    },
  )
  await link.run(ending.signal)
  return aways
}

test('a volunteer that is sent to another coordinator says hello there at once', async () => {
  const grid = fakeGrid()
  grid.answers.set(HOME, [{ type: 'moved', url: OTHER, to: jobId('digits-1') }])
  grid.answers.set(OTHER, [welcome])
  const coordinators = new Coordinators(grid.host)
  await run(grid, coordinators)
  assert.deepEqual([grid.dialled, coordinators.url], [[HOME, OTHER], OTHER])
})

test('threat 55: a coordinator sends no volunteer to the machine of another authority', async () => {
  const victim = 'https://victim.example.net'
  const grid = fakeGrid()
  grid.answers.set(HOME, [
    { type: 'coordinators', urls: [victim, 'http://192.168.1.1', 'http://127.0.0.1:8790'] },
    { type: 'moved', url: victim, to: null },
  ])
  grid.answers.set(victim, [welcome])
  const aways = await run(grid, new Coordinators(grid.host))
  assert.deepEqual(new Set(grid.dialled), new Set([HOME]))
  assert.match(aways[0] ?? '', /expected a coordinator of the same authority as https:\/\/c1\.grid\.example\.org/)
})

test('an owner may name a coordinator of another authority', async () => {
  const named = 'https://grid.example.net'
  const grid = fakeGrid()
  grid.answers.set(HOME, [{ type: 'moved', url: named, to: null }])
  grid.answers.set(named, [welcome])
  await run(grid, new Coordinators(grid.host, [named]))
  assert.deepEqual(grid.dialled, [HOME, named])
})

test('a volunteer whose coordinator is gone asks the others that this one named, in turn, and it again', async () => {
  const grid = fakeGrid()
  const third = 'https://c3.grid.example.org'
  const coordinators = new Coordinators(grid.host)
  coordinators.learn([OTHER, third])
  await run(grid, coordinators, 7)
  assert.deepEqual(grid.dialled, [HOME, HOME, OTHER, third, HOME, OTHER, third])
})

test('a volunteer that a live coordinator sends to a dead one comes back to the live one', async () => {
  const grid = fakeGrid()
  grid.answers.set(OTHER, [
    { type: 'coordinators', urls: [HOME] },
    { type: 'moved', url: HOME, to: null },
  ])
  const coordinators = new Coordinators(grid.host)
  coordinators.learn([OTHER])
  await run(grid, coordinators, 7)
  assert.deepEqual(grid.dialled, [HOME, HOME, OTHER, HOME, OTHER, HOME, OTHER])
})

test('two coordinators that send a volunteer to and fro do not keep it busy: it waits after two hops', async () => {
  const grid = fakeGrid()
  grid.answers.set(HOME, [{ type: 'moved', url: OTHER, to: null }])
  grid.answers.set(OTHER, [{ type: 'moved', url: HOME, to: null }])
  const waits: number[] = []
  const sleepNoted = (ms: number): Promise<void> => {
    waits.push(ms)
    return grid.host.clock.sleep(ms)
  }
  const host = { ...grid.host, clock: { ...grid.host.clock, sleep: sleepNoted } }
  await run({ ...grid, host: host as VolunteerHost }, new Coordinators(host as VolunteerHost), 400)
  assert.ok(
    waits.slice(2).every((ms) => ms > 0),
    `it waited ${waits.slice(0, 8).join(', ')}`,
  )
})
