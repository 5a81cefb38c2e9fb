// PeerNetwork over PeerJS: signalling through the coordinator, retries, and the list of what is open. The same for tabs
// and Node; the platform injects the PeerJS class, and in Node a door for TCP. Independent of frames beyond the
// greeting (rtc-subflow.ts).
import {
  GridError,
  LINK_OPEN_MS,
  type MemberId,
  type Clock,
  type CancelTimer,
  systemClock,
} from '@starling-grid/protocol'
import { isInOwnNetwork } from './candidate-gate.ts'
import type { ChannelLink } from './channel-link.ts'
import { type DoorKeeper, MemberDoors } from './doors.ts'
import type { LinkOpeningOptions } from './link-opening.ts'
import type { PeerLink, PeerNetwork, SignallingAccess } from './peer-link.ts'
import { RtcLinks } from './rtc-links.ts'
import { LINGER_MS, openSubflow, type RtcConnection, type Subflow } from './rtc-subflow.ts'
import { isDoorSignal, type PeerJsSignal, readSignalled, type Signalled, SignalGate } from './signal-gate.ts'
import { linkToJoin } from './subflows.ts'

/** Milliseconds of one try to open a link: most open within one second, some never (a second try cures these). */
const TRY_MS = 4000
/** Milliseconds before the next try, when the other side could not be reached through signalling. */
const PAUSE_MS = 300
/**
 * Milliseconds before signalling is opened again after it broke; half of it is random, so that not all come at once.
 */
const SIGNALLING_RETRY_MS = 4000
/**
 * Links, open or opening, that one other member may have to us: the present one, a dead one not yet noticed, and
 * spares.
 */
const MAX_LINKS_PER_PEER = 4
/** Those and further connections of its links (subflows.ts). */
const MAX_CONNECTIONS_PER_PEER = 8

/** Where the coordinator's signalling messages come in. */
export interface SignallingSource {
  listeners(event: 'message'): ((message: unknown) => void)[]
  removeAllListeners(event: 'message'): unknown
  on(event: 'message', listener: (message: unknown) => void): unknown
  /** Without effect while signalling is away. */
  send(message: object): void
}

/** What is used of PeerJS' class Peer. */
export interface PeerJsClient {
  readonly socket: SignallingSource
  /** the connection of this id with that member, if there is one */
  getConnection(peer: string, connectionId: string): unknown
  readonly open: boolean
  readonly disconnected: boolean
  connect(peer: string, options: { serialization: 'raw'; reliable: true; label?: string }): RtcConnection | undefined
  disconnect(): void
  destroy(): void
  on(event: 'open', listener: () => void): unknown
  on(event: 'disconnected', listener: () => void): unknown
  on(event: 'connection', listener: (connection: RtcConnection) => void): unknown
  on(event: 'error', listener: (error: { readonly type: string; readonly message: string }) => void): unknown
}

export interface PeerJsOptions {
  readonly host: string
  readonly port: number
  readonly path: string
  readonly secure: boolean
  readonly token: string
  /** for RTCPeerConnection; `local` is ours: whether addresses of the local network are accepted */
  readonly config: { readonly iceServers: SignallingAccess['iceServers']; readonly local: boolean }
}

export interface PeerJsPlatform {
  /** absent: the machine's */
  readonly clock?: Clock
  createPeer(id: string, options: PeerJsOptions): PeerJsClient
  /** links over TCP, tried before WebRTC; absent: none */
  readonly door?: DoorKeeper | undefined
}

/**
 * Opens signalling; links are dialled later.
 * @throws GridError 'coordinator-lost' when signalling cannot be opened
 */
export async function openPeerJsNetwork(platform: PeerJsPlatform, access: SignallingAccess): Promise<PeerNetwork> {
  const network = new PeerJsNetwork(platform, access)
  try {
    await network.start()
    return network
  } catch (error) {
    network.stop()
    throw error
  }
}

class PeerJsNetwork implements PeerNetwork {
  onLink: PeerNetwork['onLink']
  readonly #platform: PeerJsPlatform
  #access: SignallingAccess
  #client: PeerJsClient | undefined
  #links: ChannelLink[] = []
  readonly #rtcLinks: RtcLinks
  /** connections from others that have not greeted yet */
  readonly #answering = new Set<RtcConnection>()
  /** ends the try to reach a member that signalling does not know */
  readonly #unreachable = new Map<MemberId, (reason: string) => void>()
  readonly #gate = new SignalGate()
  readonly #doors: MemberDoors
  /** links of others that come through the door and have not greeted yet, by member */
  readonly #arriving: MemberId[] = []
  /** hands a signalling message to the present client */
  #deliver: (message: Signalled) => void = () => undefined
  readonly #clock: Clock
  #cancelRetry: CancelTimer = () => undefined
  readonly #stopping = new AbortController()

  constructor(platform: PeerJsPlatform, access: SignallingAccess) {
    this.#platform = platform
    this.#clock = platform.clock ?? systemClock
    this.#access = access
    this.#rtcLinks = new RtcLinks({ clock: this.#clock, connect: (peer, label) => this.#connectMore(peer, label) })
    this.#doors = new MemberDoors({
      clock: this.#clock,
      coordinatorUrl: () => this.#access.url,
      keeper: platform.door,
      say: (message) => this.#client?.socket.send(message),
      options: (dialled, milliseconds) => this.#options(dialled, milliseconds, this.#stopping.signal),
      hasRoom: (member) => this.onLink !== undefined && this.#linksOf(member) < MAX_LINKS_PER_PEER,
      arriving: (from, opening) => this.#arrives(from, opening),
    })
  }

  async start(): Promise<void> {
    await this.#signal()
  }

  async dial(peer: MemberId, signal: AbortSignal): Promise<PeerLink> {
    let reason = 'no try fitted into the time'
    const { linkOpenMs = LINK_OPEN_MS } = this.#access
    const clock = this.#clock
    for (const deadline = clock.now() + linkOpenMs; clock.now() < deadline; await clock.sleep(PAUSE_MS, signal)) {
      signal.throwIfAborted()
      this.#stopping.signal.throwIfAborted()
      try {
        return await this.#tryOnce(peer, deadline, signal)
      } catch (error) {
        signal.throwIfAborted()
        reason = error instanceof Error ? error.message : String(error)
      }
    }
    throw new GridError('link-timeout', `no link to ${peer} within ${linkOpenMs} ms: ${reason}`)
  }

  reconnect(access: SignallingAccess): void {
    this.#access = { ...access, identity: this.#access.identity }
    this.#signal().catch(() => this.#retryLater())
  }

  expect(members: readonly MemberId[]): void {
    this.#doors.expect(members)
    for (const message of this.#gate.expect(members, this.#clock.now())) this.#deliver(message)
  }

  stop(): void {
    if (this.#stopping.signal.aborted) return
    this.#stopping.abort(new GridError('cancelled', 'the network was stopped'))
    this.#cancelRetry()
    this.#doors.stop()
    for (const link of [...this.#links]) link.close('the network stopped')
    const client = this.#client
    client?.disconnect()
    this.#clock.timer(LINGER_MS, () => client?.destroy())
  }

  /** A fresh PeerJS client takes over signalling. The old one is only disconnected: its links live on. */
  #signal(): Promise<void> {
    this.#cancelRetry()
    const old = this.#client
    const client = this.#platform.createPeer(this.#access.self, peerJsOptions(this.#access))
    this.#client = client
    this.#guard(client)
    old?.disconnect()
    client.on('connection', (connection) => this.#answer(connection))
    return new Promise((resolve, reject) => {
      const fail = (why: string): void =>
        reject(new GridError('coordinator-lost', `signalling at ${this.#access.url} failed: ${why}`))
      const cancelTimer = this.#clock.timer(LINK_OPEN_MS, () => fail(`no answer within ${LINK_OPEN_MS} ms`))
      client.on('open', () => {
        cancelTimer()
        resolve()
      })
      client.on('error', (error) => {
        cancelTimer()
        this.#noteUnreachable(error)
        fail(error.message)
      })
      client.on('disconnected', () => {
        if (this.#client === client && !this.#stopping.signal.aborted) this.#retryLater()
      })
    })
  }

  /** PeerJS answers every offer that it is shown: what this volunteer does not take never gets there. */
  #guard(client: PeerJsClient): void {
    const { socket } = client
    const listeners = socket.listeners('message')
    const pass = (message: unknown): void => {
      for (const listener of listeners) listener(message)
    }
    this.#deliver = (message) => {
      if (isDoorSignal(message)) this.#doors.heard(message)
      else if (this.#fits(client, message)) pass(message)
    }
    socket.removeAllListeners('message')
    socket.on('message', (value) => {
      if (isOpening(value)) return pass(value)
      const message = readSignalled(value)
      if (message !== undefined && this.#gate.takes(message, this.#clock.now())) this.#deliver(message)
    })
  }

  /** PeerJS keeps what is for no connection of its own for ever, and counts no connections. */
  #fits(client: PeerJsClient, { type, src, payload }: PeerJsSignal): boolean {
    if (type === 'OFFER') return this.#isOpenTo(src, payload?.label)
    return type === 'LEAVE' || type === 'EXPIRE' || Boolean(client.getConnection(src, payload?.connectionId ?? ''))
  }

  #linksOf(member: string): number {
    const all = [...[...this.#links, ...this.#answering].map(({ peer }) => peer), ...this.#arriving]
    return all.filter((peer) => peer === member).length
  }

  /** `label`: whether an offer is of a link or of a further connection. Its channel has to say the same. */
  #isOpenTo(member: string, label = ''): boolean {
    if (this.onLink === undefined || this.#stopping.signal.aborted) return false
    const links = this.#linksOf(member)
    return linkToJoin(label) === undefined
      ? links < MAX_LINKS_PER_PEER
      : links + this.#rtcLinks.furtherOf(member) < MAX_CONNECTIONS_PER_PEER
  }

  #retryLater(): void {
    this.#cancelRetry()
    if (this.#stopping.signal.aborted) return
    const delay = SIGNALLING_RETRY_MS * (0.5 + Math.random() / 2)
    this.#cancelRetry = this.#clock.timer(delay, () => void this.#signal().catch(() => this.#retryLater()))
  }

  async #tryOnce(peer: MemberId, deadline: number, signal: AbortSignal): Promise<ChannelLink> {
    this.#gate.dials(peer)
    const { linkOpenMs = LINK_OPEN_MS } = this.#access
    try {
      const stop = AbortSignal.any([signal, this.#stopping.signal])
      const link = this.#platform.door && (await this.#doors.dial(peer, linkOpenMs / 4, stop))
      if (link !== undefined) return this.#keep(link)
      return await this.#open(peer, Math.min(TRY_MS, deadline - this.#clock.now()), signal)
    } finally {
      this.#gate.dialled(peer)
    }
  }

  async #open(peer: MemberId, milliseconds: number, signal: AbortSignal): Promise<ChannelLink> {
    const giveUp = new AbortController()
    this.#unreachable.set(peer, (reason) => giveUp.abort(new Error(reason)))
    try {
      const subflow = await this.#connect(peer, milliseconds, AbortSignal.any([signal, giveUp.signal]))
      const link = this.#rtcLinks.linkOf(subflow, subflow.label)
      if (link === undefined) throw new Error('internal: its label is a new one')
      return this.#keep(link)
    } finally {
      this.#unreachable.delete(peer)
    }
  }

  async #connectMore(peer: MemberId, label: string): Promise<Subflow> {
    this.#gate.dials(peer)
    try {
      return await this.#connect(peer, TRY_MS, this.#stopping.signal, label)
    } finally {
      this.#gate.dialled(peer)
    }
  }

  async #connect(peer: MemberId, milliseconds: number, signal: AbortSignal, label?: string): Promise<Subflow> {
    const options = { serialization: 'raw', reliable: true, ...(label === undefined ? {} : { label }) } as const
    const connection = this.#client?.connect(peer, options)
    if (connection === undefined) throw new GridError('coordinator-lost', 'signalling is away')
    const stop = AbortSignal.any([signal, this.#stopping.signal])
    return openSubflow(connection, this.#options(true, milliseconds, stop))
  }

  /**
   * PeerJS reports a member that the coordinator cannot reach as an error of the client, with the id only in its text.
   */
  #noteUnreachable(error: { readonly type: string; readonly message: string }): void {
    if (error.type !== 'peer-unavailable') return
    for (const [peer, giveUp] of this.#unreachable) if (error.message.includes(peer)) giveUp(error.message)
  }

  #answer(connection: RtcConnection): void {
    const { peer, label } = connection
    if (!this.#isOpenTo(peer, label)) return connection.close()
    this.#answering.add(connection)
    const opening = openSubflow(connection, this.#options(false, TRY_MS, this.#stopping.signal))
    this.#acceptFrom(
      opening.then((subflow) => this.#rtcLinks.linkOf(subflow, label)),
      () => this.#answering.delete(connection),
    )
  }

  /** As many of one member at once as may be open. */
  #arrives(from: MemberId, opening: Promise<ChannelLink>): void {
    this.#arriving.push(from)
    this.#acceptFrom(opening, () => this.#arriving.splice(this.#arriving.indexOf(from), 1))
  }

  /** When it fails, the dialler notices and tries again. */
  #acceptFrom(opening: Promise<ChannelLink | undefined>, settled: () => void): void {
    opening.finally(settled).then(
      (link) => link !== undefined && this.#accept(link),
      () => {},
    )
  }

  #options(dialled: boolean, milliseconds: number, signal: AbortSignal): LinkOpeningOptions {
    const { self, identity } = this.#access
    return { self, identity, dialled, milliseconds, clock: this.#clock, signal }
  }

  #accept(link: ChannelLink): void {
    this.#keep(link)
    if (this.onLink === undefined || this.#stopping.signal.aborted) link.close('links are not taken now')
    else this.onLink(link)
  }

  #keep(link: ChannelLink): ChannelLink {
    this.#links.push(link)
    void link.closed.then(() => {
      this.#links = this.#links.filter((other) => other !== link)
    })
    return link
  }
}

/** The coordinator took this socket; the only message of the server's own that it sends. */
function isOpening(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'type' in value && value.type === 'OPEN'
}

function peerJsOptions({ url, path, token, iceServers }: SignallingAccess): PeerJsOptions {
  const { hostname, port, protocol } = new URL(url)
  const secure = protocol === 'https:'
  const defaultPort = secure ? 443 : 80
  return {
    host: hostname,
    port: port === '' ? defaultPort : Number(port),
    path,
    secure,
    token: encodeURIComponent(token),
    config: { iceServers, local: isInOwnNetwork(url) },
  }
}
