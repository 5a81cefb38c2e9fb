// The links of one volunteer, by member: opened on demand, kept across generations, heartbeats on all, dead ones
// closed. Two members may dial each other at once; both links are kept then and either carries frames.
import {
  describeError,
  type ErrorCode,
  type Frame,
  FramePacker,
  type FrameType,
  GridError,
  HEARTBEAT_MS,
  LINK_OPEN_MS,
  type LinkTrouble,
  MAX_REFUSALS,
  MAX_RING_MEMBERS,
  type MemberId,
  SILENCE_MS,
  unpackFrame,
  type CancelTimer,
  type Clock,
} from '@starling-grid/protocol'
import { LinkLatency } from './link-latency.ts'
import type { LinkCarrier, PeerLink, PeerNetwork } from './peer-link.ts'

export interface LinkSetEvents {
  /** a checked frame, heartbeats apart */
  onFrame(from: MemberId, frame: Frame): void
  /** the link that frames to this member take broke; 'refused': it sent what is no frame */
  onLost(member: MemberId, why: LinkTrouble | 'refused', error: GridError): void
}

interface LinkRefusal {
  readonly code: ErrorCode
  readonly from: MemberId
  count: number
}

/** How a link comes about: by our dial, by theirs, or by both through the coordinator (R18). */
export type LinkRoute = 'dial' | 'await' | 'relay'

/** Links to members; a few more than a ring has, since neighbours change. */
const MAX_LINKS = 2 * MAX_RING_MEMBERS
/** Newcomers that fetch shards of a base and may open links; the latest ones. */
const MAX_GUESTS = 16

interface Open {
  readonly link: PeerLink
  readonly queue: FrameQueue
  readonly latency: LinkLatency
  heardAt: number
}

/** What is known of a member; forgotten when nothing of it is left. */
interface Peer {
  /** its frames take the relay, whatever else is open */
  isRelayed: boolean
  /** the newest last; two members may dial each other at once */
  readonly open: Open[]
  /** of those that wait for a link that it opens */
  readonly arrivals: Set<() => void>
}

/** awaited: the other member is to dial; direct, relayed: frames have a link of that kind to take */
export type LinkState = 'none' | 'awaited' | 'direct' | 'relayed'

export interface LinkTimes {
  readonly clock: Clock
  /** ms for a link to open; absent: LINK_OPEN_MS */
  readonly linkOpenMs?: number | undefined
}

export class LinkSet {
  readonly #network: PeerNetwork
  readonly #openRelay: (member: MemberId, signal: AbortSignal) => Promise<PeerLink>
  readonly #events: LinkSetEvents
  readonly #linkOpenMs: number
  readonly #peers = new Map<MemberId, Peer>()
  readonly #clock: Clock
  readonly #stopBeat: CancelTimer
  readonly #refusals = new Map<string, LinkRefusal>()
  #expected: readonly MemberId[] = []
  #guests: readonly MemberId[] = []
  #isClosed = false
  #beatAt: number
  bytesReceived = 0
  #bytesSentBefore = 0

  constructor(
    network: PeerNetwork,
    openRelay: (member: MemberId, signal: AbortSignal) => Promise<PeerLink>,
    events: LinkSetEvents,
    { clock, linkOpenMs = LINK_OPEN_MS }: LinkTimes,
  ) {
    this.#clock = clock
    this.#beatAt = clock.now()
    this.#network = network
    this.#openRelay = openRelay
    this.#events = events
    this.#linkOpenMs = linkOpenMs
    network.onLink = (link) => this.#add(link)
    this.#stopBeat = clock.every(HEARTBEAT_MS, () => this.#heartbeat())
  }

  stateOf(member: MemberId): LinkState {
    const route = this.#route(member)
    if (route !== undefined) return isRelayed(route.link) ? 'relayed' : 'direct'
    return (this.#peers.get(member)?.arrivals.size ?? 0) > 0 ? 'awaited' : 'none'
  }

  /** Frames to this member have a link to take. */
  has(member: MemberId): boolean {
    return this.#route(member) !== undefined
  }

  hasDirect(member: MemberId): boolean {
    return this.#peers.get(member)?.open.some(({ link }) => !isRelayed(link)) ?? false
  }

  /** Links in use that the coordinator relays. */
  get relayedLinks(): number {
    return this.#count('relayed')
  }

  /** Members whose frames take this carrier. */
  over(carrier: LinkCarrier): MemberId[] {
    return [...this.#peers.keys()].filter((member) => this.#route(member)?.link.carrier === carrier)
  }

  /** ms that a frame takes to the slowest of these members, one way; undefined: not measured yet. */
  latencyMs(members: readonly MemberId[]): number | undefined {
    const measured = members.flatMap((member) => this.#route(member)?.latency.ms ?? [])
    return measured.length === 0 ? undefined : Math.max(...measured)
  }

  get bytesSent(): number {
    let bytes = this.#bytesSentBefore
    for (const { queue } of this.#links) bytes += queue.bytesSent
    return bytes
  }

  /**
   * Resolves when a link to `member` is open on the wanted way; frames take that way from here on.
   * @throws GridError 'link-timeout', or the signal's reason
   */
  async ensure(member: MemberId, way: LinkRoute, signal: AbortSignal): Promise<void> {
    this.#changed(member, (peer) => {
      peer.isRelayed = way === 'relay'
    })
    if (this.has(member)) return
    if (way === 'await') return this.#arrival(member, signal)
    this.#add(await (way === 'relay' ? this.#openRelay(member, signal) : this.#network.dial(member, signal)))
  }

  /**
   * Tries whether a direct link works again; frames go on taking the way that they take. @throws GridError
   * 'link-timeout'
   */
  async redial(member: MemberId, signal: AbortSignal): Promise<void> {
    if (!this.hasDirect(member)) this.#add(await this.#network.dial(member, signal))
  }

  /** Other members may open links to this one; those that are open stay. Once closed, the network is for others. */
  expect(members: readonly MemberId[]): void {
    if (this.#isClosed) return
    this.#expected = members
    this.#network.expect([...members, ...this.#guests])
  }

  /** This newcomer may open a link, whatever generations come and go meanwhile. */
  welcome(guest: MemberId): void {
    this.#guests = [...this.#guests.filter((id) => id !== guest), guest].slice(-MAX_GUESTS)
    this.expect(this.#expected)
  }

  /** Bulk frames that wait for the link to this member. */
  waiting(member: MemberId): number {
    return this.#route(member)?.queue.bulk ?? 0
  }

  /** Queues a frame. The payload is read when it leaves: it must stay as it is while its generation lives. */
  send(to: MemberId, frame: Frame): void {
    this.#route(to)?.queue.add(frame) // without a link its loss has been reported
  }

  /** Counts frames of a member that are not expected here; the coordinator shows the sums. */
  countRefusal(code: ErrorCode, from: MemberId): void {
    const existing = this.#refusals.get(`${code} ${from}`)
    if (existing !== undefined) existing.count++
    else if (this.#refusals.size < MAX_REFUSALS) this.#refusals.set(`${code} ${from}`, { code, from, count: 1 })
  }

  /** Refusals since the last call. */
  takeRefusals(): LinkRefusal[] {
    const taken = [...this.#refusals.values()]
    this.#refusals.clear()
    return taken
  }

  /** Drops what is still queued of generations: they are over (R3). Shards of a base go on: they belong to none. */
  dropGenerations(): void {
    for (const { queue } of this.#links) queue.dropGenerations()
  }

  /** All links are lost, as after a silence: each is opened anew when it is needed. */
  giveUp(why: string): void {
    for (const open of this.#links) this.#drop(open, 'silent', new GridError('link-lost', why))
  }

  close(): void {
    if (this.#isClosed) return
    this.#stopBeat()
    this.#guests = []
    this.expect([])
    this.#isClosed = true
    this.#network.onLink = undefined
    for (const { link } of this.#links) link.close('leaving')
  }

  /** The newest link of the way that frames to this member take. */
  #route(member: MemberId): Open | undefined {
    const peer = this.#peers.get(member)
    return peer?.open.findLast(({ link }) => isRelayed(link) === peer.isRelayed)
  }

  /** All that are open, as of now. */
  get #links(): Open[] {
    return [...this.#peers.values()].flatMap(({ open }) => open)
  }

  #count(state: LinkState): number {
    return [...this.#peers.keys()].filter((member) => this.stateOf(member) === state).length
  }

  #changed(member: MemberId, change: (peer: Peer) => void): void {
    const peer = this.#peers.get(member) ?? { isRelayed: false, open: [], arrivals: new Set() }
    change(peer)
    if (peer.isRelayed || peer.open.length + peer.arrivals.size > 0) this.#peers.set(member, peer)
    else this.#peers.delete(member)
  }

  #add(link: PeerLink): void {
    const linked = [...this.#peers.values()].filter(({ open }) => open.length > 0)
    const existing = this.#peers.get(link.peer)
    if (linked.length >= MAX_LINKS && (existing?.open.length ?? 0) === 0) return link.close('too many links')
    const open: Open = {
      link,
      queue: new FrameQueue(link, this.#clock, () => this.#othersBusy(link)),
      latency: new LinkLatency(),
      heardAt: this.#clock.now(),
    }
    this.#changed(link.peer, (peer) => void peer.open.push(open))
    link.onClose = (reason) => this.#remove(open, 'closed', new GridError('link-lost', reason))
    link.onFrame = (bytes) => this.#received(open, bytes)
    if (isRelayed(link)) return
    for (const arrived of [...(existing?.arrivals ?? [])]) arrived()
  }

  /** members whose links are waited for: shown to be bounded */
  get awaited(): number {
    return this.#count('awaited')
  }

  #othersBusy(than: PeerLink): boolean {
    return this.#links.some(({ link, queue }) => link !== than && queue.busy)
  }

  #received(open: Open, bytes: Uint8Array): void {
    open.heardAt = this.#clock.now()
    this.bytesReceived += bytes.byteLength
    try {
      const frame = unpackFrame(bytes)
      if (frame.type === 'heartbeat') return this.#heardBeat(open, frame)
      if (frame.type !== 'greeting') this.#events.onFrame(open.link.peer, frame)
    } catch (error) {
      const refusal =
        error instanceof GridError ? error : new GridError('message-malformed', describeError(error), { cause: error })
      this.countRefusal(refusal.code, open.link.peer)
      this.#drop(open, 'refused', refusal)
    }
  }

  #heardBeat({ latency, queue }: Open, beat: Frame): void {
    const answer = latency.heard(beat, this.#clock.now())
    if (answer !== undefined) queue.add(answer)
  }

  /** A member that sends what is no frame loses its link, and only that. */
  #drop(open: Open, why: LinkTrouble | 'refused', error: GridError): void {
    this.#remove(open, why, error)
    open.link.close(error.code)
  }

  /** The loss of a spare link is not reported. With the link in use, frames may be lost. */
  #remove(open: Open, why: LinkTrouble | 'refused', error: GridError): void {
    const member = open.link.peer
    const links = this.#peers.get(member)?.open
    const at = links?.indexOf(open) ?? -1
    if (links === undefined || at < 0) return
    const inUse = this.#route(member) === open
    this.#bytesSentBefore += open.queue.bytesSent
    this.#changed(member, (peer) => void peer.open.splice(at, 1))
    if (inUse || links.length === 0) this.#events.onLost(member, why, error)
  }

  /**
   * Every link is kept alive, also those that carry nothing now. Time in which this process slept does not count as
   * silence.
   */
  #heartbeat(): void {
    const now = this.#clock.now()
    const slept = now - this.#beatAt - HEARTBEAT_MS
    this.#beatAt = now
    for (const open of this.#links) {
      if (slept > HEARTBEAT_MS) open.heardAt += slept
      if (now - open.heardAt > SILENCE_MS)
        this.#drop(open, 'silent', new GridError('link-lost', `silent for ${SILENCE_MS / 1000} s`))
      else open.queue.add(open.latency.beat(now))
    }
  }

  /** Ends with the link, the time or the signal, and leaves nothing behind. */
  #arrival(member: MemberId, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (act: () => void): void => {
        cancelTimer()
        signal.removeEventListener('abort', onAbort)
        this.#changed(member, ({ arrivals }) => void arrivals.delete(onLink))
        act()
      }
      const onLink = (): void => settle(resolve)
      const onAbort = (): void => settle(() => reject(signal.reason))
      const late = new GridError(
        'link-timeout',
        `no link from ${member.slice(0, 8)} within ${this.#linkOpenMs / 1000} s`,
      )
      const cancelTimer = this.#clock.timer(this.#linkOpenMs, () => settle(() => reject(late)))
      signal.addEventListener('abort', onAbort, { once: true })
      this.#changed(member, ({ arrivals }) => void arrivals.add(onLink))
    })
  }
}

function isRelayed({ carrier }: PeerLink): boolean {
  return carrier === 'relay'
}

/** of frames that belong to no generation: heartbeats, and shards of a base */
const NO_GENERATION = 0
/** Frames that others wait for without haste: no step depends on them. */
const BULK: ReadonlySet<FrameType> = new Set(['chunk', 'hashes'])
/** Bytes under way up to which the next bulk frame leaves: two of them, 60 ms of a link of 2 MB/s. */
const BULK_WATER_BYTES = 128 * 1024
/** ms between looks at what is under way: a link has no event for that. 128 KiB in each of them are 25 MB/s */
const LOOK_MS = 5
/**
 * ms between bulk frames while other links carry frames of the ring: 1 MB/s, so that a busy ring starves no receiver
 */
const TRICKLE_MS = 60

/**
 * Frames that wait for one link. Frames of the ring go first. A newcomer's state is bulk: it is sent only when little
 * else is on its way on any link. So a step of the ring waits for a few of its chunks at most.
 */
export class FrameQueue {
  readonly #link: PeerLink
  readonly #clock: Clock
  /** one is enough: a link has copied the bytes of one frame before the next is packed */
  readonly #packer = new FramePacker()
  #ring: Frame[] = []
  #bulk: Frame[] = []
  readonly #othersBusy: () => boolean
  #sending = false
  #bulkAt = 0
  bytesSent = 0

  /** `othersBusy`: frames of the ring wait on other links, which share the line to the network */
  constructor(link: PeerLink, clock: Clock, othersBusy: () => boolean = () => false) {
    this.#link = link
    this.#clock = clock
    this.#othersBusy = othersBusy
  }

  /** Frames of the ring wait here, or lie in the link beyond what bulk may put there. */
  get busy(): boolean {
    return this.#ring.length > 0 || this.#link.bufferedBytes > 2 * BULK_WATER_BYTES
  }

  /** Bulk frames that wait here. */
  get bulk(): number {
    return this.#bulk.length
  }

  add(frame: Frame): void {
    const queue = BULK.has(frame.type) ? this.#bulk : this.#ring
    queue.push(frame)
    if (!this.#sending) void this.#drain()
  }

  dropGenerations(): void {
    this.#keep(({ generation }) => generation === NO_GENERATION)
  }

  #keep(wanted: (frame: Frame) => boolean): void {
    this.#ring = this.#ring.filter(wanted)
    this.#bulk = this.#bulk.filter(wanted)
  }

  async #drain(): Promise<void> {
    this.#sending = true
    try {
      while (this.#ring.length + this.#bulk.length > 0) {
        const frame = this.#ring.shift() ?? this.#nextBulk()
        if (frame === undefined) {
          await this.#clock.sleep(LOOK_MS)
          continue
        }
        const bytes = this.#packer.pack(frame)
        this.bytesSent += bytes.byteLength
        await this.#link.send(bytes)
      }
    } catch {
      this.#keep(() => false) // the link's onClose reports the loss
    } finally {
      this.#sending = false
    }
  }

  #nextBulk(): Frame | undefined {
    const now = this.#clock.now()
    if (this.#link.bufferedBytes > BULK_WATER_BYTES || (now - this.#bulkAt < TRICKLE_MS && this.#othersBusy()))
      return undefined
    this.#bulkAt = now
    return this.#bulk.shift()
  }
}
