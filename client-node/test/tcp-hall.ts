// Doors of a test, what they let in, and strangers at them.
import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import { after } from 'node:test'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { type MemberDoor, type MemberId, memberId, type Sha256, systemClock } from '@starling-grid/protocol'
import type { ChannelLink, PeerLink } from '@starling-grid/volunteer'
import type { DoorKeeper, LinkOpeningOptions } from '@starling-grid/volunteer/links'
import type { OwnCertificate } from '../src/own-certificate.ts'
import { type ListenPlace, openTcpDoor } from '../src/tcp-door.ts'

export const HERE = 'http://127.0.0.1:1'
export const near = memberId('a'.repeat(32))
export const far = memberId('b'.repeat(32))
const patience = new AbortController().signal

export const closers: (() => void)[] = []
after(() => {
  for (const close of closers) close()
})

/** What a door of a test lets in, and what came of it. */
export interface Hall {
  readonly keeper: DoorKeeper
  readonly door: MemberDoor
  readonly guests: Map<Sha256, MemberId>
  /** certificates that asked to come in */
  readonly asked: Sha256[]
  readonly arrivals: Promise<ChannelLink>[]
}

export interface HallOptions extends Partial<Omit<LinkOpeningOptions, 'dialled'>> {
  readonly place?: ListenPlace
}

export async function openHall({ place = {}, ...options }: HallOptions = {}): Promise<Hall> {
  const keeper = await openTcpDoor(HERE, place)
  closers.push(() => keeper.close())
  const hall: Hall = { keeper, door: keeper.own, guests: new Map(), asked: [], arrivals: [] }
  keeper.open({
    guestWith: (fingerprint) => {
      hall.asked.push(fingerprint)
      return hall.guests.get(fingerprint)
    },
    options: (dialled) => ({
      self: far,
      milliseconds: 2000,
      clock: systemClock,
      signal: patience,
      ...options,
      dialled,
    }),
    arriving: (_, opening) => {
      opening.catch(() => undefined) // looked at by the tests
      hall.arrivals.push(opening)
    },
  })
  return hall
}

export const dialOptions = (change: Partial<LinkOpeningOptions> = {}): LinkOpeningOptions => ({
  self: near,
  dialled: true,
  milliseconds: 2000,
  clock: systemClock,
  signal: patience,
  ...change,
})

/** Both ends of a link between two doors. */
export async function linked(
  a: HallOptions & { readonly self: MemberId },
  b: HallOptions & { readonly self: MemberId },
): Promise<[PeerLink, PeerLink]> {
  const [from, to] = [await openHall(a), await openHall(b)]
  to.guests.set(from.door.fingerprint, a.self)
  const dialled = await from.keeper.dial({ member: b.self, door: to.door }, dialOptions(a))
  closers.push(() => dialled.close('the tests are over'))
  return [dialled, await arrivalOf(to)]
}

export async function arrivalOf({ arrivals }: Hall): Promise<ChannelLink> {
  await until(() => arrivals.length > 0, 'an arrival')
  return arrivals[0] ?? assert.fail('no arrival')
}

export async function until(condition: () => boolean, what: string): Promise<void> {
  for (const end = performance.now() + 10_000; !condition(); await new Promise((resolve) => setTimeout(resolve, 2)))
    assert.ok(performance.now() < end, `waited too long for ${what}`)
}

/** TLS as a stranger makes it, with any certificate or none. */
export function knock(
  { door }: Hall,
  certificate?: Pick<OwnCertificate, 'cert' | 'key'>,
  protocols = ['starling-link/1'],
): TLSSocket {
  const socket = connectTls({
    host: '127.0.0.1',
    port: door.port,
    rejectUnauthorized: false,
    ALPNProtocols: protocols,
    ...(certificate === undefined ? {} : { cert: certificate.cert, key: certificate.key }),
  })
  socket.on('error', () => undefined)
  closers.push(() => socket.destroy())
  return socket
}

export async function closed(socket: Socket): Promise<void> {
  socket.resume()
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve))
}
