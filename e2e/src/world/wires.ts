// The network of a simulated grid: control sockets, and links between members. Bytes of one wire arrive in their order
// and late; those of different wires in any order. A cut link holds what is on it until it is whole again or given up.
import { EventEmitter } from 'node:events'
import { CLOSE_BROKEN, GridError, LOW_WATER_BYTES, type MemberId } from '@starling-grid/protocol'
import {
  type Channel,
  ChannelLink,
  type CoordinatorSocket,
  type PeerLink,
  type PeerNetwork,
} from '@starling-grid/volunteer'
import type { Dice } from './dice.ts'
import type { VirtualProcess } from './virtual-time.ts'

/** ms that bytes take one way */
const LEAST_MS = 1
const MOST_MS = 40
/** of the lines of a network that shuffles, how many are slow */
const SLOW_LINES = 0.2
/** ms between looks at whether a member that is dialled answers */
const LOOK_MS = 300

export interface LineParts {
  readonly dice: Dice
  /** ms that anything takes one way at most */
  readonly latencyMs: number
  /** ms on some lines; undefined: on none */
  readonly slowLineMs?: number | undefined
}

/** One direction: in order, late, and not at all once it is broken. */
export class Lane {
  readonly #to: VirtualProcess
  readonly #dice: Dice
  readonly #mostMs: number
  #lastAt = 0
  /** raised when what is on its way is lost */
  #era = 0
  /** ms: nothing arrives before */
  heldUntil = 0

  constructor(to: VirtualProcess, { dice, latencyMs, slowLineMs }: LineParts) {
    this.#to = to
    this.#dice = dice
    this.#mostMs = slowLineMs !== undefined && dice.chance(SLOW_LINES) ? slowLineMs : latencyMs
  }

  /** `notBefore`: ms, when what holds it back is over */
  carry(act: () => void, notBefore = 0): void {
    const now = this.#to.now()
    if (notBefore === Number.POSITIVE_INFINITY) return
    const era = this.#era
    this.#lastAt = Math.max(this.#lastAt, this.heldUntil, notBefore, now + this.#dice.between(LEAST_MS, this.#mostMs))
    this.#to.timer(this.#lastAt - now, () => era === this.#era && act())
  }

  /** What is on its way is lost. */
  lose(): void {
    this.#era++
  }
}

/** The coordinator's end of a control socket, as `ws` has it. */
export class CoordinatorEnd extends EventEmitter {
  readonly OPEN = 1
  readyState = 1
  readonly bufferedAmount = 0
  readonly wire: ControlWire

  constructor(wire: ControlWire) {
    super()
    this.wire = wire
  }

  send(text: string): void {
    this.wire.toVolunteer(text)
  }

  ping(): void {
    this.wire.ping()
  }

  close(code: number, text: string): void {
    this.wire.closedByCoordinator(code, text)
  }

  terminate(): void {
    this.wire.closedByCoordinator(CLOSE_BROKEN, '')
  }
}

interface WireParts extends LineParts {
  readonly member: VirtualProcess
  readonly coordinator: VirtualProcess
  readonly tap: Tap
}

/** Gets what passes a control socket, before it arrives. What it answers false or undefined to is lost. */
export interface Tap {
  /** the coordinator sends it */
  sent(text: string): boolean
  /** it reaches the volunteer */
  heard(text: string): boolean
  /** the volunteer sends it; what leaves in its place */
  said(text: string): string | undefined
}

export class ControlWire {
  readonly near: CoordinatorSocket
  readonly far = new CoordinatorEnd(this)
  readonly member: VirtualProcess
  readonly #up: Lane
  readonly #down: Lane
  readonly #tap: Tap
  readonly #dice: Dice
  #isOpen = true

  constructor({ member, coordinator, tap, ...line }: WireParts) {
    this.member = member
    this.#tap = tap
    this.#dice = line.dice
    this.#up = new Lane(coordinator, line)
    this.#down = new Lane(member, line)
    this.near = {
      onMessage: undefined,
      onClose: undefined,
      send: (text) => this.#toCoordinator(text),
      close: () => this.#endOfMember(1000),
    }
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** As if the volunteer had sent it. */
  #toCoordinator(text: string): void {
    const leaving = this.#isOpen ? this.#tap.said(text) : undefined
    if (leaving !== undefined && this.isOpen) this.forge(leaving)
  }

  /** The coordinator gets this as if the volunteer had sent it. */
  forge(text: string): void {
    this.#up.carry(() => this.far.emit('message', Buffer.from(text), false))
  }

  /** Nothing passes before, ms. */
  stall(until: number): void {
    this.#up.heldUntil = until
    this.#down.heldUntil = until
  }

  toVolunteer(text: string): void {
    if (!this.#isOpen || !this.#tap.sent(text)) return
    this.#down.carry(() => this.#tap.heard(text) && this.near.onMessage?.(text))
  }

  ping(): void {
    this.#down.carry(() => this.#up.carry(() => this.far.emit('pong')))
  }

  closedByCoordinator(code: number, text: string): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.far.readyState = 3
    this.#down.carry(() => this.#closedForMember(text || `code ${code}`))
    this.#up.carry(() => this.far.emit('close', code))
  }

  /** Its process died, or closes it. */
  #endOfMember(code: number): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.#down.lose()
    this.#up.carry(() => {
      this.far.readyState = 3
      this.far.emit('close', code)
    })
  }

  /**
   * Both ends learn of it, each for itself. What was on its way to the member is lost; to the coordinator it arrives or
   * is lost.
   */
  break(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.far.readyState = 3
    if (this.#dice.chance(0.5)) this.#up.lose()
    this.#down.lose()
    this.member.timer(MOST_MS, () => this.#closedForMember('the connection broke'))
    this.#up.carry(() => this.far.emit('close', CLOSE_BROKEN))
  }

  #closedForMember(reason: string): void {
    const { onClose } = this.near
    this.near.onClose = undefined
    onClose?.(reason)
  }
}

/** Members that reach each other, and pairs that do not. */
export interface AirParts extends LineParts {
  /** of a link between members */
  readonly linkBytesPerMs: number
}

/** Asked again and again: members come and go. */
export interface AirRules {
  /** may these two open a link now? The coordinator introduces them */
  mayTalk(a: MemberId, b: MemberId): boolean
  /** does nothing ever arrive in this direction? */
  isBroken(from: MemberId, to: MemberId): boolean
}

export class Air {
  readonly parts: AirParts
  /** told of every frame, when it leaves its sender and when it has reached its receiver */
  onFrame: (self: MemberId, at: 'sends' | 'gets', frame: Uint8Array) => void = () => undefined
  /** what a member sends in place of a frame, if it does not send that */
  changed: (self: MemberId, frame: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer> = (_, frame) => frame
  /** may these two open a link now? The coordinator introduces them */
  readonly mayTalk: (a: MemberId, b: MemberId) => boolean
  readonly #networks = new Map<MemberId, AirNetwork>()
  /** from one member to another → ms until which nothing passes */
  readonly #cuts = new Map<string, number>()
  /** from one member to another nothing ever passes: links open, and are silent in this direction */
  readonly #isBroken: (from: MemberId, to: MemberId) => boolean

  constructor(parts: AirParts, { mayTalk, isBroken }: AirRules) {
    this.parts = parts
    this.mayTalk = mayTalk
    this.#isBroken = isBroken
  }

  join(self: MemberId, process: VirtualProcess, { linkOpenMs, isMute }: Joining): PeerNetwork {
    const network = new AirNetwork({ self, process, air: this, linkOpenMs, isMute })
    this.#networks.set(self, network)
    return network
  }

  find(member: MemberId): AirNetwork | undefined {
    const found = this.#networks.get(member)
    return found?.process.isDead === true ? undefined : found
  }

  leave(member: MemberId): void {
    this.#networks.get(member)?.broke('its process ended')
    this.#networks.delete(member)
  }

  cut(a: MemberId, b: MemberId, until: number): void {
    this.cutOneWay(a, b, until)
    this.cutOneWay(b, a, until)
  }

  /** The other way everything passes. */
  cutOneWay(from: MemberId, to: MemberId, until: number): void {
    this.#cuts.set(`${from} ${to}`, until)
  }

  /** All its links are as if cut, ms. */
  isolate(member: MemberId, until: number): void {
    for (const other of this.#networks.keys()) if (other !== member) this.cut(member, other, until)
  }

  /** What is open between them closes, and may open again at once. */
  breakLink(a: MemberId, b: MemberId): void {
    this.find(a)?.brokeTo(b)
    this.find(b)?.brokeTo(a)
  }

  /** ms: nothing passes in this direction before. */
  openAt(from: MemberId, to: MemberId): number {
    return this.#isBroken(from, to) ? Number.POSITIVE_INFINITY : (this.#cuts.get(`${from} ${to}`) ?? 0)
  }

  /** In one direction at least. */
  isCut(a: MemberId, b: MemberId, now: number): boolean {
    return [`${a} ${b}`, `${b} ${a}`].some((way) => (this.#cuts.get(way) ?? 0) > now)
  }

  get members(): readonly MemberId[] {
    return [...this.#networks.keys()]
  }
}

interface Joining {
  /** ms */
  readonly linkOpenMs: number
  /** no link to it ever opens */
  readonly isMute: boolean
}

interface NetworkParts extends Joining {
  readonly self: MemberId
  readonly process: VirtualProcess
  readonly air: Air
}

class AirNetwork implements PeerNetwork {
  onLink: PeerNetwork['onLink']
  readonly process: VirtualProcess
  readonly #parts: NetworkParts
  #expected: ReadonlySet<MemberId> = new Set()
  readonly #channels = new Map<AirChannel, MemberId>()

  constructor(parts: NetworkParts) {
    this.#parts = parts
    this.process = parts.process
  }

  async dial(peer: MemberId, signal: AbortSignal): Promise<PeerLink> {
    const { self, process, air, linkOpenMs } = this.#parts
    const deadline = process.now() + linkOpenMs
    for (; process.now() < deadline; await process.sleep(LOOK_MS, signal)) {
      signal.throwIfAborted()
      await process.sleep(2 * air.parts.dice.between(LEAST_MS, MOST_MS), signal)
      signal.throwIfAborted()
      const other = air.find(peer)
      if (
        this.#parts.isMute ||
        other?.isOpenTo(self) !== true ||
        !air.mayTalk(self, peer) ||
        air.isCut(self, peer, process.now())
      )
        continue
      return this.#link(other, peer)
    }
    throw new GridError('link-timeout', `no link to ${peer} within ${linkOpenMs} ms`)
  }

  #link(other: AirNetwork, peer: MemberId): PeerLink {
    const { self, air, process } = this.#parts
    const there = new AirChannel({
      process,
      lane: new Lane(other.process, air.parts),
      openAt: () => air.openAt(self, peer),
      air,
      from: self,
      to: peer,
    })
    const back = new AirChannel({
      process: other.process,
      lane: new Lane(process, air.parts),
      openAt: () => air.openAt(peer, self),
      air,
      from: peer,
      to: self,
    })
    const [near, far] = [new ChannelLink(peer, there, 'memory'), new ChannelLink(self, back, 'memory')]
    there.connect(near, far)
    back.connect(far, near)
    this.#channels.set(there, peer)
    other.#channels.set(back, self)
    other.process.timer(0, () => other.onLink?.(far))
    return near
  }

  isOpenTo(member: MemberId): boolean {
    return !this.#parts.isMute && this.onLink !== undefined && this.#expected.has(member)
  }

  expect(members: readonly MemberId[]): void {
    this.#expected = new Set(members)
  }

  reconnect(): void {}

  /** The far ends learn of it. */
  broke(reason: string): void {
    for (const channel of this.#channels.keys()) channel.close(reason)
  }

  brokeTo(peer: MemberId): void {
    for (const [channel, other] of this.#channels) if (other === peer) channel.close('the link broke')
  }

  stop(): void {
    this.broke('the network stopped')
  }
}

interface ChannelParts {
  /** of the sender */
  readonly process: VirtualProcess
  readonly lane: Lane
  readonly openAt: () => number
  readonly air: Air
  readonly from: MemberId
  readonly to: MemberId
}

class AirChannel implements Channel {
  readonly #parts: ChannelParts
  #ends: { readonly near: ChannelLink; readonly far: ChannelLink } | undefined
  #isClosed = false
  /** ms: when the last byte has left */
  #freeAt = 0
  bufferedBytes = 0

  constructor(parts: ChannelParts) {
    this.#parts = parts
  }

  connect(near: ChannelLink, far: ChannelLink): void {
    this.#ends = { near, far }
  }

  write(frame: Uint8Array<ArrayBuffer>): void {
    const { process, air, from } = this.#parts
    const copy = air.changed(from, frame.slice())
    const now = process.now()
    this.bufferedBytes += copy.byteLength
    this.#freeAt = Math.max(this.#freeAt, now) + copy.byteLength / air.parts.linkBytesPerMs
    process.timer(this.#freeAt - now, () => this.#left(copy))
    air.onFrame(from, 'sends', copy)
  }

  #left(frame: Uint8Array): void {
    this.bufferedBytes -= frame.byteLength
    const { lane, openAt, air, to } = this.#parts
    lane.carry(() => {
      this.#ends?.far.received(frame)
      air.onFrame(to, 'gets', frame)
    }, openAt())
    if (this.bufferedBytes <= LOW_WATER_BYTES) this.#ends?.near.drained()
  }

  close(reason: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    const { lane, openAt } = this.#parts
    lane.carry(() => this.#ends?.far.close(`closed by the other side: ${reason}`), openAt())
  }
}
