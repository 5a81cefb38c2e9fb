// One WebRTC data channel as a PeerLink, from the connection that PeerJS made to the moment both sides have greeted.
// The same for tabs and Node. A link counts as open only when frames went both ways: some channels open on one side
// only.
import {
  type Clock,
  describeError,
  GridError,
  type LinkEnd,
  type LinkIdentity,
  linkProof,
  LOW_WATER_BYTES,
  memberId,
  type MemberId,
  requireLinkProof,
  systemClock,
} from '@starling-grid/protocol'
import { ChannelLink, type Channel } from './channel-link.ts'
import { greeting, greetingOf, requireGreeting } from './greeting.ts'

/** Milliseconds that a closed channel may take to tell the other side before its connection is torn down. */
export const LINGER_MS = 500

/** What is used of an RTCPeerConnection; the type itself exists only where pages do. */
export interface RtcPeerConnection {
  readonly connectionState: string
  readonly localDescription: { readonly sdp?: string } | null
  readonly remoteDescription: { readonly sdp?: string } | null
  addEventListener(type: 'connectionstatechange', listener: () => void): void
  addEventListener(type: 'datachannel', listener: (event: { readonly channel: RTCDataChannel }) => void): void
}

/** What is used of PeerJS' class DataConnection. */
export interface RtcConnection {
  readonly peer: string
  /** null or absent once closed */
  readonly peerConnection?: RtcPeerConnection | null
  /** absent on the answering side until the channel came */
  readonly dataChannel?: RTCDataChannel | null
  close(): void
  on(event: 'close', listener: () => void): unknown
  on(event: 'error', listener: (error: { readonly message: string }) => void): unknown
}

export interface RtcLinkOptions {
  readonly self: MemberId
  /** both sides prove who they are, and which certificates they see */
  readonly identity?: LinkIdentity | undefined
  /** this side dialled, and greets first */
  readonly dialled: boolean
  /** after which the try is given up */
  readonly milliseconds: number
  /** absent: the machine's */
  readonly clock?: Clock | undefined
  readonly signal: AbortSignal
}

/** @throws GridError 'link-timeout' or 'link-lost', or the signal's reason; the connection is closed then */
export function openRtcLink(connection: RtcConnection, options: RtcLinkOptions): Promise<ChannelLink> {
  return new Promise((resolve, reject) => {
    const opening = new Opening(connection, options, resolve)
    const { signal, milliseconds, clock = systemClock } = options
    const cancelTimer = clock.timer(milliseconds, () =>
      opening.link.close(`not open after ${Math.round(milliseconds)} ms`),
    )
    const abort = (): void => opening.link.close(describeError(signal.reason))
    signal.addEventListener('abort', abort)
    void opening.settled.then((failure) => {
      cancelTimer()
      signal.removeEventListener('abort', abort)
      if (failure !== undefined) reject(signal.aborted ? signal.reason : new GridError('link-lost', failure))
    })
    if (signal.aborted) abort()
    else opening.start()
  })
}

class Opening {
  readonly link: ChannelLink
  readonly #connection: RtcConnection
  readonly #options: RtcLinkOptions
  readonly #resolve: (link: ChannelLink) => void
  readonly #channel: RtcChannel
  /** the other side's first frame came */
  #heard = false
  #settle: (failure: string | undefined) => void = () => {}
  /** undefined once the link is open, the reason when it did not come to that */
  readonly settled = new Promise<string | undefined>((resolve) => {
    this.#settle = resolve
  })

  constructor(connection: RtcConnection, options: RtcLinkOptions, resolve: (link: ChannelLink) => void) {
    this.#connection = connection
    this.#options = options
    this.#resolve = resolve
    this.#channel = new RtcChannel(connection, options.clock ?? systemClock)
    this.link = new ChannelLink(memberId(connection.peer), this.#channel)
    void this.link.closed.then((reason) => this.#settle(reason))
  }

  start(): void {
    const { link } = this
    this.#connection.on('close', () => link.close('the connection closed'))
    this.#connection.on('error', (error) => link.close(error.message))
    this.#watchConnection()
    const channel = this.#connection.dataChannel
    if (channel) return this.#adopt(channel)
    this.#connection.peerConnection?.addEventListener('datachannel', (event) => this.#adopt(event.channel))
  }

  /**
   * PeerJS looks at the state of ICE alone. Under load the farewell of the other side can get lost. Chromium then
   * leaves ICE at `disconnected` for ever, with the channel open, while the connection as a whole has failed.
   */
  #watchConnection(): void {
    const { peerConnection } = this.#connection
    peerConnection?.addEventListener('connectionstatechange', () => {
      if (peerConnection.connectionState === 'failed') this.link.close('the connection failed')
    })
  }

  #adopt(channel: RTCDataChannel): void {
    const { link } = this
    // One channel per connection: a second one is an attack.
    if (!this.#channel.adopt(channel)) return channel.close()
    channel.addEventListener('message', (event) => this.#receive(event.data))
    channel.addEventListener('bufferedamountlow', () => link.drained())
    channel.addEventListener('close', () => link.close('closed by the other side'))
    channel.addEventListener('error', () => link.close('the channel failed'))
    if (channel.readyState === 'open') this.#opened()
    else channel.addEventListener('open', () => this.#opened())
  }

  #opened(): void {
    if (this.#options.dialled) this.#closing(this.#greet())
  }

  #receive(data: unknown): void {
    if (!(data instanceof ArrayBuffer)) return this.link.close('expected binary frames on a link, got text')
    const bytes = new Uint8Array(data)
    // The link keeps what comes while the greeting is checked.
    if (this.#heard) return this.link.received(bytes)
    this.#heard = true
    this.#closing(this.#greeted(bytes))
  }

  /** No frame of ours leaves before our greeting. */
  async #greeted(bytes: Uint8Array): Promise<void> {
    const payload = requireGreeting(bytes)
    const { identity, dialled } = this.#options
    if (identity !== undefined) await requireLinkProof(payload, identity, this.#there(), this.#here())
    if (!dialled) await this.#greet()
    this.#settle(undefined)
    this.#resolve(this.link)
  }

  async #greet(): Promise<void> {
    const { identity, self } = this.#options
    const frame =
      identity === undefined ? greeting(self) : greetingOf(await linkProof(identity, this.#here(), this.#there()))
    this.link.send(frame).catch(() => {})
  }

  #closing(work: Promise<void>): void {
    work.catch((error: unknown) => this.link.close(describeError(error)))
  }

  #here(): LinkEnd {
    const { peerConnection } = this.#connection
    return { member: this.#options.self, fingerprint: fingerprintIn(peerConnection?.localDescription) }
  }

  #there(): LinkEnd {
    const { peerConnection, peer } = this.#connection
    return { member: memberId(peer), fingerprint: fingerprintIn(peerConnection?.remoteDescription) }
  }
}

/** Of the one certificate that DTLS accepts. @throws GridError 'identity-unproven' */
function fingerprintIn(description: { readonly sdp?: string } | null | undefined): string {
  const lines = (description?.sdp ?? '').match(/^a=fingerprint:.*$/gim) ?? []
  const found = new Set(lines.map((line) => line.slice('a=fingerprint:'.length).trim().toLowerCase()))
  const [only] = found
  if (only !== undefined && found.size === 1) return only
  throw new GridError('identity-unproven', `expected one fingerprint in a session description, got ${found.size}`)
}

class RtcChannel implements Channel {
  readonly #connection: RtcConnection
  readonly #clock: Clock
  #channel: RTCDataChannel | undefined
  #closed = false

  constructor(connection: RtcConnection, clock: Clock) {
    this.#connection = connection
    this.#clock = clock
  }

  adopt(channel: RTCDataChannel): boolean {
    if (this.#channel !== undefined || this.#closed) return false
    channel.binaryType = 'arraybuffer'
    channel.bufferedAmountLowThreshold = LOW_WATER_BYTES
    this.#channel = channel
    return true
  }

  get bufferedBytes(): number {
    return this.#channel?.readyState === 'open' ? this.#channel.bufferedAmount : 0
  }

  write(frame: Uint8Array<ArrayBuffer>): void {
    if (this.#channel === undefined) throw new Error('internal: nothing is sent before the channel is open')
    this.#channel.send(frame)
  }

  /** Closes the channel, which tells the other side; then the connection, which would not. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    const channel = this.#channel
    if (channel === undefined || channel.readyState === 'closed') return this.#connection.close()
    const cancelTimer = this.#clock.timer(LINGER_MS, () => this.#connection.close())
    channel.addEventListener('close', () => {
      cancelTimer()
      this.#connection.close()
    })
    channel.close()
  }
}
