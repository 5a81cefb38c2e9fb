// Doors of members: whom a volunteer answers, where it dials, whatever a coordinator or a peer says.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type Clock,
  type MemberDoor,
  GridError,
  memberId,
  type MemberId,
  type Sha256,
  sleepOn,
} from '@starling-grid/protocol'
import { dialable } from '../src/link/candidate-gate.ts'
import { ChannelLink } from '../src/link/channel-link.ts'
import { type DoorHost, type DoorKeeper, MemberDoors, type DoorsParts } from '../src/link/doors.ts'
import { readSignalled } from '../src/link/signal-gate.ts'

const self = memberId('a'.repeat(32))
const peer = memberId('b'.repeat(32))
const patience = new AbortController().signal
const fingerprint = (mark: string): Sha256 => mark.repeat(64) as Sha256
const own: MemberDoor = { fingerprint: fingerprint('0'), port: 50_000, addresses: ['93.184.216.34'] }
const doorAt = (...addresses: readonly string[]): MemberDoor => ({
  fingerprint: fingerprint('1'),
  port: 40_000,
  addresses,
})
/** ms that `dial` may take at all, here */
const WITHIN = 4000

/** Its time passes when the test says so. */
class HandClock implements Clock {
  #now = 0
  #timers: { readonly at: number; readonly act: () => void }[] = []

  now(): number {
    return this.#now
  }
  wallTime(): number {
    return this.#now
  }
  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return sleepOn(this, ms, signal)
  }
  timer(ms: number, act: () => void): () => void {
    const timer = { at: this.#now + ms, act }
    this.#timers.push(timer)
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer)
    }
  }
  every(): () => void {
    return () => undefined
  }

  /** In small steps, so that what a timer starts runs before the next. */
  async pass(ms: number): Promise<void> {
    for (const end = this.#now + ms; this.#now < end;) {
      this.#now = Math.min(end, this.#now + 50)
      const due = this.#timers.filter(({ at }) => at <= this.#now)
      this.#timers = this.#timers.filter((timer) => !due.includes(timer))
      for (const { act } of due) act()
      await turn()
    }
  }
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

interface Scene {
  readonly doors: MemberDoors
  readonly clock: HandClock
  readonly said: Parameters<DoorsParts['say']>[0][]
  /** doors that were dialled */
  readonly dialled: MemberDoor[]
  readonly host: () => DoorHost
  opens: boolean
}

function scene({ coordinatorUrl = 'https://grid.example.org', room = true, hasDoor = true } = {}): Scene {
  const [clock, said, dialled] = [new HandClock(), [] as Scene['said'], [] as MemberDoor[]]
  let host: DoorHost | undefined
  const keeper: DoorKeeper = {
    own,
    dial: async ({ member, door }) => {
      dialled.push(door)
      if (!it.opens) throw new GridError('link-lost', 'refused')
      return new ChannelLink(member, { bufferedBytes: 0, write: () => undefined, close: () => undefined }, 'tcp')
    },
    open: (given) => {
      host = given
    },
    close: () => undefined,
  }
  const doors = new MemberDoors({
    clock,
    coordinatorUrl: () => coordinatorUrl,
    keeper: hasDoor ? keeper : undefined,
    say: (message) => said.push(message),
    options: (isDialled, milliseconds) => ({ self, dialled: isDialled, milliseconds, clock, signal: patience }),
    hasRoom: () => room,
    arriving: () => undefined,
  })
  const it: Scene = { doors, clock, said, dialled, opens: true, host: () => host ?? assert.fail('no keeper') }
  return it
}

/** Dials, and answers with this door. */
async function dialTo(
  it: Scene,
  door: MemberDoor | undefined,
  member: MemberId = peer,
): Promise<ChannelLink | undefined> {
  const dial = it.doors.dial(member, WITHIN, patience)
  await turn()
  it.doors.heard({ type: 'DOOR', src: member, ...(door === undefined ? {} : { payload: door }) })
  await it.clock.pass(3000)
  return dial
}

test('a member is asked for its door, told of ours, and dialled there', async () => {
  const it = scene()
  const link = await dialTo(it, doorAt('93.184.216.34'))
  assert.deepEqual(it.said, [{ type: 'KNOCK', dst: peer, payload: own }])
  assert.equal(link?.carrier, 'tcp')
  assert.deepEqual(it.dialled, [doorAt('93.184.216.34')])
})

test('a member without a door costs no time, one that does not answer a second', async () => {
  const it = scene()
  const none = it.doors.dial(peer, WITHIN, patience)
  await turn()
  it.doors.heard({ type: 'DOOR', src: peer })
  await turn()
  assert.deepEqual([await none, it.clock.now()], [undefined, 0])
  const silent = it.doors.dial(peer, WITHIN, patience)
  await it.clock.pass(1000)
  assert.equal(await silent, undefined)
  assert.deepEqual(it.dialled, [])
})

test('a platform without a door asks for none, and says that it has none', async () => {
  const it = scene({ hasDoor: false })
  assert.equal(await it.doors.dial(peer, WITHIN, patience), undefined)
  it.doors.heard({ type: 'KNOCK', src: peer, payload: doorAt('93.184.216.34') })
  assert.deepEqual(it.said, [{ type: 'DOOR', dst: peer }])
})

test('a certificate is let in after a knock, for ten seconds, and while its member is expected', async () => {
  const it = scene()
  assert.equal(it.host().guestWith(fingerprint('1')), undefined)
  it.doors.expect([peer])
  it.doors.heard({ type: 'KNOCK', src: peer, payload: doorAt() })
  assert.deepEqual(it.said, [{ type: 'DOOR', dst: peer, payload: own }])
  assert.equal(it.host().guestWith(fingerprint('1')), peer)
  assert.equal(it.host().guestWith(fingerprint('2')), undefined)
  await it.clock.pass(10_001)
  assert.equal(it.host().guestWith(fingerprint('1')), undefined, 'its time is over')
  it.doors.heard({ type: 'KNOCK', src: peer, payload: doorAt() })
  it.doors.expect([])
  assert.equal(it.host().guestWith(fingerprint('1')), undefined, 'its generation is over')
})

test('a member that has all its links is let in no more', () => {
  const it = scene({ room: false })
  it.doors.heard({ type: 'KNOCK', src: peer, payload: doorAt() })
  assert.equal(it.host().guestWith(fingerprint('1')), undefined)
})

test('threat 29: a coordinator learns nothing of an address by the time after which WebRTC begins', async () => {
  const it = scene()
  it.opens = false
  const dial = it.doors.dial(peer, WITHIN, patience)
  await turn()
  it.doors.heard({ type: 'DOOR', src: peer, payload: doorAt('93.184.216.34') })
  let isOver = false
  void dial.then(() => {
    isOver = true
  })
  await it.clock.pass(1950)
  assert.equal(isOver, false, 'it was refused at once')
  await it.clock.pass(100)
  assert.equal(await dial, undefined)
})

test('a door that did not open is tried again after ten minutes, or when its member comes back', async () => {
  const it = scene()
  it.opens = false
  await dialTo(it, doorAt('93.184.216.34'))
  assert.equal(await it.doors.dial(peer, WITHIN, patience), undefined)
  assert.equal(it.said.length, 1, 'it was not even asked')
  await it.clock.pass(600_000)
  await dialTo(it, doorAt('93.184.216.34'))
  assert.equal(it.dialled.length, 2)
  it.doors.expect([])
  await dialTo(it, doorAt('93.184.216.34'))
  assert.equal(it.dialled.length, 3)
})

test('threat 29: addresses that let a volunteer in at no time are bounded in an hour', async () => {
  const it = scene()
  it.opens = false
  const memberOf = (i: number): MemberId => memberId(i.toString(16).padStart(32, '0'))
  for (let i = 0; i < 40; i++)
    await dialTo(it, doorAt(...Array.from({ length: 8 }, (_, k) => `93.184.${i}.${k}`)), memberOf(i))
  assert.equal(it.dialled.flatMap(({ addresses }) => addresses).length, 128)
  it.opens = true
  assert.equal(await dialTo(it, doorAt('93.184.200.1'), memberOf(99)), undefined, 'no more in this hour')
  await it.clock.pass(3_600_000)
  assert.equal((await dialTo(it, doorAt('93.184.200.1'), memberOf(99)))?.carrier, 'tcp')
})

test('an address that lets a volunteer in does not count as tried', async () => {
  const it = scene()
  for (let i = 0; i < 200; i++) assert.ok(await dialTo(it, doorAt(`93.184.0.${i}`)))
})

test('threat 29: a member that names our own door leads us nowhere', async () => {
  const it = scene()
  await dialTo(it, own)
  assert.deepEqual(it.dialled, [])
})

const GLOBAL = ['93.184.216.34', '2606:2800:220:1::1']
const SITE = ['10.0.0.1', '172.16.3.4', '172.31.0.1', '192.168.0.1', '100.64.0.1', 'fd00::2']
const LOOPBACK = ['127.0.0.1', '127.8.8.8', '::1']
const NEVER = [
  '169.254.169.254',
  'fe80::1',
  '0.0.0.0',
  '::',
  '224.0.0.1',
  '255.255.255.255',
  'ff02::1',
  '::ffff:10.0.0.1',
  '10.0.0',
  '10.0.0.1.evil.test',
  'router',
]
const everywhere = [...GLOBAL, ...SITE, ...LOOPBACK, ...NEVER]

test('threat 55: a door is dialled where anybody comes, or in a network where the coordinator is, too', () => {
  assert.deepEqual(dialable(everywhere, 'https://grid.example.org'), GLOBAL)
  assert.deepEqual(dialable(everywhere, 'http://93.184.216.1:8790'), GLOBAL)
  assert.deepEqual(dialable(everywhere, 'http://192.168.0.7:8790'), [...GLOBAL, ...SITE])
  assert.deepEqual(dialable(everywhere, 'http://lab.local'), [...GLOBAL, ...SITE])
  assert.deepEqual(dialable(everywhere, 'http://localhost:8790'), [...GLOBAL, ...SITE, ...LOOPBACK])
})

const knock = (payload: unknown): unknown => ({ type: 'KNOCK', src: peer, payload })
const strangeDoors: readonly unknown[] = [
  undefined,
  null,
  {},
  { ...own, port: 22 },
  { ...own, port: 65_536 },
  { ...own, port: 50_000.5 },
  { ...own, fingerprint: 'f' },
  { ...own, addresses: ['printer.local'] },
  { ...own, addresses: Array.from({ length: 9 }, () => '93.184.216.34') },
  { ...own, addresses: '93.184.216.34' },
  { ...own, more: 1 },
]
for (const door of strangeDoors)
  test(`threat 29: a knock with the door ${JSON.stringify(door)} is not read`, () => {
    assert.ok(readSignalled(knock(own)))
    assert.equal(readSignalled(knock(door)), undefined)
    if (door !== undefined) assert.equal(readSignalled({ type: 'DOOR', src: peer, payload: door }), undefined)
  })
