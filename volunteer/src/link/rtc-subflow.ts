// One WebRTC connection of a link, from what PeerJS made to the moment both sides have greeted. The same for tabs and
// Node. It counts as open only when frames went both ways: some channels open on one side only.
import { type Clock, describeError, GridError, memberId, systemClock } from '@starling-grid/protocol'
import { ChannelLink, type Channel, MAX_LINK_FRAME_BYTES } from './channel-link.ts'
import { FlightWindow, type Receipt, receiptIn, Receipts } from './flight-window.ts'
import { NUMBER_BYTES, stepsTo } from './frame-order.ts'
import type { PathSample } from './further-subflows.ts'
import { LinkOpening, type LinkOpeningOptions } from './link-opening.ts'

/** Milliseconds that a closed channel may take to tell the other side before its connection is torn down. */
export const LINGER_MS = 500

/** What is used of statistics (W3C, Identifiers for WebRTC's Statistics API). */
interface RtcStats {
  readonly id: string
  readonly type: string
  /** of a transport */
  readonly selectedCandidatePairId?: string
  /** of a pair of candidates; seconds */
  readonly currentRoundTripTime?: number
  readonly responsesReceived?: number
}

/** What is used of an RTCPeerConnection; the type itself exists only where pages do. */
export interface RtcPeerConnection {
  readonly connectionState: string
  readonly localDescription: { readonly sdp?: string } | null
  readonly remoteDescription: { readonly sdp?: string } | null
  getStats?(): Promise<{ values(): Iterable<RtcStats> }>
  addEventListener(type: 'connectionstatechange', listener: () => void): void
  addEventListener(type: 'datachannel', listener: (event: { readonly channel: RTCDataChannel }) => void): void
}

/** What is used of PeerJS' class DataConnection. */
export interface RtcConnection {
  readonly peer: string
  /** of its channel, as signalling says */
  readonly label: string
  /** null or absent once closed */
  readonly peerConnection?: RtcPeerConnection | null
  /** absent on the answering side until the channel came */
  readonly dataChannel?: RTCDataChannel | null
  close(): void
  on(event: 'close', listener: () => void): unknown
  on(event: 'error', listener: (error: { readonly message: string }) => void): unknown
}

export interface SubflowOptions extends Omit<LinkOpeningOptions, 'clock'> {
  /** absent: the machine's */
  readonly clock?: Clock
}

/** A connection of a link; MPTCP's word (RFC 8684). Its frames are the link's with their numbers. */
export interface Subflow {
  readonly link: ChannelLink
  /** of its data channel: the side that dialled chose it */
  readonly label: string
  readonly flight: Pick<FlightWindow, 'hasRoom' | 'underWay' | 'isShared' | 'framesHeld'>
  /** Sends now, and has copied the bytes when it returns. */
  write(message: Uint8Array<ArrayBuffer>): void
  /** The number of the frame that the link's owner gets next, for receipts. */
  nextFrame: () => number
  /** Called with each receipt of the other side; `wasFull`: until it came no frame could leave. */
  onReceipt: (receipt: Receipt, wasFull: boolean) => void
  /** Says now what came. */
  sendReceipt(): void
  /** Undefined: this WebRTC does not say. */
  samplePath(): Promise<PathSample | undefined>
}

/** @throws GridError 'link-lost', or the signal's reason; the connection is closed then */
export async function openSubflow(
  connection: RtcConnection,
  { clock = systemClock, ...options }: SubflowOptions,
): Promise<Subflow> {
  const channel = new RtcChannel(connection, clock)
  const { peerConnection } = connection
  const opening = new LinkOpening(
    channel.link,
    { ...options, clock },
    {
      here: () => fingerprintIn(peerConnection?.localDescription),
      there: () => fingerprintIn(peerConnection?.remoteDescription),
    },
  )
  await opening.open(() => new RtcOpening(connection, channel, opening).start())
  return channel
}

class RtcOpening {
  readonly #connection: RtcConnection
  readonly #channel: RtcChannel
  readonly #opening: LinkOpening
  readonly #link: ChannelLink

  constructor(connection: RtcConnection, channel: RtcChannel, opening: LinkOpening) {
    this.#connection = connection
    this.#channel = channel
    this.#opening = opening
    this.#link = opening.link
  }

  start(): void {
    this.#connection.on('close', () => this.#link.close('the connection closed'))
    this.#connection.on('error', (error) => this.#link.close(error.message))
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
      if (peerConnection.connectionState === 'failed') this.#link.close('the connection failed')
    })
  }

  #adopt(channel: RTCDataChannel): void {
    // One channel per connection: a second one is an attack.
    if (!this.#channel.adopt(channel)) return channel.close()
    channel.addEventListener('message', (event) => this.#receive(event.data))
    channel.addEventListener('close', () => this.#link.close('closed by the other side'))
    channel.addEventListener('error', () => this.#link.close('the channel failed'))
    if (channel.readyState === 'open') this.#opening.opened()
    else channel.addEventListener('open', () => this.#opening.opened())
  }

  #receive(data: unknown): void {
    if (!(data instanceof ArrayBuffer)) return this.#link.close('expected binary frames on a link, got text')
    try {
      const receipt = receiptIn(data)
      if (receipt !== undefined) return this.#channel.arrived(receipt)
      const before = this.#channel.nextFrame()
      this.#opening.received(new Uint8Array(data))
      this.#channel.received(data.byteLength, stepsTo(this.#channel.nextFrame(), before))
    } catch (error) {
      this.#link.close(describeError(error))
    }
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

class RtcChannel implements Channel, Subflow {
  readonly link: ChannelLink
  readonly flight = new FlightWindow()
  nextFrame: Subflow['nextFrame'] = () => 0
  onReceipt: Subflow['onReceipt'] = () => undefined
  readonly #connection: RtcConnection
  readonly #clock: Clock
  readonly #receipts = new Receipts()
  #channel: RTCDataChannel | undefined
  #closed = false

  constructor(connection: RtcConnection, clock: Clock) {
    this.#connection = connection
    this.#clock = clock
    this.link = new ChannelLink(memberId(connection.peer), this, 'webrtc', MAX_LINK_FRAME_BYTES + NUMBER_BYTES)
  }

  get label(): string {
    return this.#channel?.label ?? ''
  }

  adopt(channel: RTCDataChannel): boolean {
    if (this.#channel !== undefined || this.#closed) return false
    channel.binaryType = 'arraybuffer'
    this.#channel = channel
    return true
  }

  get bufferedBytes(): number {
    return this.#channel?.readyState === 'open' ? this.#channel.bufferedAmount : 0
  }

  write(frame: Uint8Array<ArrayBuffer>): void {
    if (this.#channel === undefined) throw new Error('internal: nothing is sent before the channel is open')
    this.#channel.send(frame)
    this.flight.sent(frame.byteLength, this.#clock.now())
  }

  get hasRoom(): boolean {
    return this.flight.hasRoom
  }

  /**
   * At the other side. What waits may leave now: a receipt is the only sign of it that tabs and Node have in common.
   * @throws GridError 'message-malformed'
   */
  arrived(receipt: Receipt): void {
    const wasFull = !this.flight.hasRoom
    this.flight.arrived(receipt.bytes, this.#clock.now())
    this.onReceipt(receipt, wasFull)
    this.link.drained()
  }

  /** Here, and `frames` of the link were handed on with it: if more than one, its sender waits to hear of it. */
  received(bytes: number, frames: number): void {
    if (this.#receipts.after(bytes) || frames > 1) this.sendReceipt()
  }

  /** A channel may be closed natively before it says so, and throws then. */
  sendReceipt(): void {
    try {
      if (this.#channel?.readyState === 'open') this.#channel.send(this.#receipts.latest(this.nextFrame()))
    } catch (error) {
      this.link.close(describeError(error))
    }
  }

  async samplePath(): Promise<PathSample | undefined> {
    const stats = [...((await this.#connection.peerConnection?.getStats?.())?.values() ?? [])]
    const used = stats.find(({ type }) => type === 'transport')?.selectedCandidatePairId
    const { currentRoundTripTime, responsesReceived } = stats.find(({ id }) => id === used) ?? {}
    if (currentRoundTripTime === undefined || responsesReceived === undefined) return undefined
    return { ms: currentRoundTripTime * 1000, count: responsesReceived }
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
