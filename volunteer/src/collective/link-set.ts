// The links of one volunteer, by member: opened on demand, kept across generations, heartbeats on all, dead ones closed.
// Two members may dial each other at once; both links are kept then and either carries frames.
import { describeError, type ErrorCode, type Frame, GridError, HEARTBEAT_MS, LINK_OPEN_MS, MAX_RING_MEMBERS, type MemberId, packFrame, SILENCE_MS, unpackFrame } from '@starling-grid/protocol'
import type { PeerLink, PeerNetwork } from './peer-link.ts'

export interface LinkSetEvents {
  /** a checked frame, heartbeats apart */
  onFrame(from: MemberId, frame: Frame): void
  /** the last link to this member broke, or it sent what is no frame */
  onLost(member: MemberId, error: GridError): void
}

/** Links to members; a few more than a ring has, since neighbours change. */
const MAX_LINKS = 2 * MAX_RING_MEMBERS

interface Open {
  readonly link: PeerLink
  heardAt: number
  readonly queue: Frame[]
  sending: boolean
}

export class LinkSet {
  readonly #network: PeerNetwork
  readonly #events: LinkSetEvents
  readonly #open = new Map<MemberId, Open[]>()
  readonly #arrivals = new Map<MemberId, (() => void)[]>()
  readonly #beat: ReturnType<typeof setInterval>
  readonly #refusals = new Map<ErrorCode, number>()
  bytesSent = 0
  bytesReceived = 0

  constructor(network: PeerNetwork, events: LinkSetEvents) {
    this.#network = network
    this.#events = events
    network.onLink = (link) => this.#add(link)
    this.#beat = setInterval(() => this.#heartbeat(), HEARTBEAT_MS)
  }

  has(member: MemberId): boolean {
    return (this.#open.get(member)?.length ?? 0) > 0
  }

  relayed(member: MemberId): boolean {
    return this.#open.get(member)?.at(-1)?.link.relayed ?? false
  }

  /**
   * Resolves when a link to `member` is open. `dial`: open one ourselves; otherwise wait for the other side's.
   * @throws GridError 'link-timeout', or the signal's reason
   */
  async ensure(member: MemberId, dial: boolean, signal: AbortSignal): Promise<void> {
    if (this.has(member)) return
    if (!dial) return this.#arrival(member, signal)
    const link = await this.#network.dial(member, signal)
    this.#add(link)
  }

  /** Queues a frame. The payload is read when it leaves: it must stay as it is while its generation lives. */
  send(to: MemberId, frame: Frame): void {
    const open = this.#open.get(to)?.at(-1)
    if (open === undefined) return // its loss has been reported
    open.queue.push(frame)
    if (!open.sending) void this.#drain(open)
  }

  /** Counts what another member sent and nobody here wanted; the coordinator shows the sums. */
  countRefusal(code: ErrorCode): void {
    this.#refusals.set(code, (this.#refusals.get(code) ?? 0) + 1)
  }

  /** Refusals since the last call. */
  takeRefusals(): { readonly code: ErrorCode; readonly count: number }[] {
    const taken = [...this.#refusals].map(([code, count]) => ({ code, count }))
    this.#refusals.clear()
    return taken
  }

  /** Drops what is still queued: its generation is over (R3). */
  clear(): void {
    for (const links of this.#open.values()) for (const open of links) open.queue.length = 0
  }

  close(): void {
    clearInterval(this.#beat)
    this.#network.onLink = undefined
    for (const links of this.#open.values()) for (const { link } of [...links]) link.close('leaving')
  }

  async #drain(open: Open): Promise<void> {
    open.sending = true
    try {
      for (let frame = open.queue.shift(); frame !== undefined; frame = open.queue.shift()) {
        const bytes = packFrame(frame)
        this.bytesSent += bytes.byteLength
        await open.link.send(bytes)
      }
    } catch {
      open.queue.length = 0 // the link's onClose reports the loss
    } finally {
      open.sending = false
    }
  }

  #add(link: PeerLink): void {
    const links = this.#open.get(link.peer) ?? []
    if (this.#open.size >= MAX_LINKS && links.length === 0) return link.close('too many links')
    const open: Open = { link, heardAt: performance.now(), queue: [], sending: false }
    links.push(open)
    this.#open.set(link.peer, links)
    link.onClose = (reason) => this.#remove(open, new GridError('link-lost', reason))
    link.onFrame = (bytes) => this.#received(open, bytes)
    for (const arrived of this.#arrivals.get(link.peer) ?? []) arrived()
    this.#arrivals.delete(link.peer)
  }

  #received(open: Open, bytes: Uint8Array): void {
    open.heardAt = performance.now()
    this.bytesReceived += bytes.byteLength
    try {
      const frame = unpackFrame(bytes)
      if (frame.type !== 'heartbeat' && frame.type !== 'greeting') this.#events.onFrame(open.link.peer, frame)
    } catch (error) {
      const refusal = error instanceof GridError ? error : new GridError('message-malformed', describeError(error), { cause: error })
      this.countRefusal(refusal.code)
      this.#drop(open, refusal)
    }
  }

  /** A member that sends what is no frame loses its link, and only that. */
  #drop(open: Open, error: GridError): void {
    this.#remove(open, error)
    open.link.close(error.code)
  }

  #remove(open: Open, error: GridError): void {
    const links = this.#open.get(open.link.peer)
    const at = links?.indexOf(open) ?? -1
    if (links === undefined || at < 0) return
    links.splice(at, 1)
    if (links.length > 0) return
    this.#open.delete(open.link.peer)
    this.#events.onLost(open.link.peer, error)
  }

  #heartbeat(): void {
    const now = performance.now()
    const beat: Frame = { type: 'heartbeat', generation: 0, step: 0, bucket: 0, hop: 0, offset: 0, payload: new Uint8Array(0) }
    for (const [member, links] of this.#open) {
      for (const open of [...links]) if (now - open.heardAt > SILENCE_MS) this.#drop(open, new GridError('link-lost', `silent for ${SILENCE_MS / 1000} s`))
      this.send(member, beat)
    }
  }

  #arrival(member: MemberId, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new GridError('link-timeout', `no link from ${member.slice(0, 8)} within ${LINK_OPEN_MS / 1000} s`)), LINK_OPEN_MS)
      const settle = (act: () => void): void => (clearTimeout(timer), act())
      signal.addEventListener('abort', () => settle(() => reject(signal.reason)), { once: true })
      this.#arrivals.set(member, [...(this.#arrivals.get(member) ?? []), () => settle(resolve)])
    })
  }
}
