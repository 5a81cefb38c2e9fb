// PeerLink and PeerNetwork inside one process, for tests and for trying a collective without a network.
// Frames arrive in order, in a later task than the one that sent them, as they do on a real link.
import { type Clock, GridError, type MemberId, systemClock } from '@starling-grid/protocol'
import { ChannelLink, type Channel } from './channel-link.ts'
import type { PeerLink, PeerNetwork } from './peer-link.ts'

/** One direction between two links. */
class MemoryChannel implements Channel {
  bufferedBytes = 0
  #queue: Uint8Array<ArrayBuffer>[] = []
  #ends: { readonly near: ChannelLink; readonly far: ChannelLink } | undefined
  #closed = false
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  connect(near: ChannelLink, far: ChannelLink): void {
    this.#ends = { near, far }
  }

  write(frame: Uint8Array<ArrayBuffer>): void {
    this.bufferedBytes += frame.byteLength
    this.#queue.push(frame.slice())
    if (this.#queue.length === 1) this.#clock.timer(0, () => this.#handOver())
  }

  /** What was accepted before the close still arrives, then the other side sees the close. */
  close(reason: string): void {
    if (this.#closed) return
    this.#closed = true
    this.#clock.timer(0, () => this.#ends?.far.close(`closed by the other side: ${reason}`))
  }

  #handOver(): void {
    const frames = this.#queue
    this.#queue = []
    this.bufferedBytes = 0
    for (const frame of frames) this.#ends?.far.received(frame)
    this.#ends?.near.drained()
  }
}

/** Two ends of one link: [the end that `near` holds, the end that `far` holds]. */
export function memoryLinkPair(near: MemberId, far: MemberId, clock: Clock = systemClock): [PeerLink, PeerLink] {
  const there = new MemoryChannel(clock)
  const back = new MemoryChannel(clock)
  const nearEnd = new ChannelLink(far, there, 'memory')
  const farEnd = new ChannelLink(near, back, 'memory')
  there.connect(nearEnd, farEnd)
  back.connect(farEnd, nearEnd)
  return [nearEnd, farEnd]
}

/** Members that reach each other inside this process. */
export class MemoryGrid {
  readonly #networks = new Map<MemberId, MemoryNetwork>()
  readonly clock: Clock

  constructor(clock: Clock = systemClock) {
    this.clock = clock
  }

  /** @example const near = grid.join(newMemberId()) */
  join(self: MemberId): PeerNetwork {
    const network = new MemoryNetwork(self, this)
    this.#networks.set(self, network)
    return network
  }

  find(member: MemberId): MemoryNetwork | undefined {
    return this.#networks.get(member)
  }

  leave(member: MemberId): void {
    this.#networks.delete(member)
  }
}

class MemoryNetwork implements PeerNetwork {
  onLink: PeerNetwork['onLink']
  readonly #self: MemberId
  readonly #grid: MemoryGrid
  readonly #links: PeerLink[] = []

  constructor(self: MemberId, grid: MemoryGrid) {
    this.#self = self
    this.#grid = grid
  }

  async dial(peer: MemberId, signal: AbortSignal): Promise<PeerLink> {
    await Promise.resolve()
    signal.throwIfAborted()
    const other = this.#grid.find(peer)
    if (other?.onLink === undefined || this.#grid.find(this.#self) !== this)
      throw new GridError('link-timeout', `no answer from ${peer}`)
    const [near, far] = memoryLinkPair(this.#self, peer, this.#grid.clock)
    this.#links.push(near)
    other.#links.push(far)
    other.onLink(far)
    return near
  }

  /** Nothing to do: members in memory need no signalling, and hide no address. */
  reconnect(): void {}
  expect(): void {}

  stop(): void {
    this.#grid.leave(this.#self)
    for (const link of this.#links) link.close('the network stopped')
  }
}
